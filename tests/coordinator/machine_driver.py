"""Drives a commit machine by hand: every effect waits until the test answers it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import pyarrow as pa

from rootline.client.create_drop import build_definition
from rootline.coordinator.protocol.commit_machine import step
from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.coordinator.protocol.machine_state import (
    Attempt,
    Phase,
    Policy,
    Staging,
    TableMachine,
    Undecided,
    Waiting,
)
from rootline.coordinator.protocol.messages import (
    Arrived,
    Effect,
    Event,
    HeadLoaded,
    ObjectsStored,
    PublishVerdicts,
    PutReplied,
    Tick,
)
from rootline.ports.object_store import PutReply, PutStatus
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.identifiers import LogId, LogPosition, TableName
from rootline.schemas.intent import DataFile, GenericStatistics, Intent, IntentKind
from rootline.schemas.verdict import Verdict
from rootline.tree.draft.batch import Record

TABLE = TableName("a.b")
LOG = LogId("embedded/test")
POLICY = Policy("me", BatchLimits(100, 1_000_000, 0.25), RetryPolicy(0.02, 5.0, 8), 4)
E = TypeVar("E", bound=Effect)


@dataclass(slots=True)
class Driver:
    """A machine, what it asked for last, and everything it has published."""

    machine: TableMachine = field(default_factory=lambda: TableMachine(TABLE, POLICY))
    effects: list[Effect] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    now_s: float = 0.0
    ids: int = 0
    offset: int = 0
    answers_ms: int | None = 1_000

    def tell(self, event: Event) -> list[Effect]:
        self.ids += 1
        self.now_s += 0.01
        tick = Tick(1_700_000_000_000 + int(self.now_s * 1000), self.now_s, f"{self.ids:032x}", 0.5)
        self.machine, self.effects = step(self.machine, event, tick)
        for effect in self.effects:
            if isinstance(effect, PublishVerdicts):
                self.verdicts.extend(item.verdict for item in effect.decided)
        return self.effects

    def asked(self, kind: type[E]) -> E:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        assert len(found) == 1, f"expected one {kind.__name__}, got {self.effects}"
        return found[0]

    def arrive(self, *intents: Intent) -> list[Effect]:
        records = []
        for intent in intents:
            records.append(Record(LogPosition(LOG, 0, self.offset), intent, 100))
            self.offset += 1
        return self.tell(Arrived(tuple(records)))

    def put_answers(self, answer: PutStatus) -> list[Effect]:
        return self.tell(PutReplied(PutReply(answer, self.answers_ms)))

    @property
    def phase(self) -> Phase:
        return self.machine.kind

    @property
    def attempt(self) -> Attempt | None:
        """The root in flight, also while its request waits to be sent again."""
        return attempt_of(self.machine)


def attempt_of(machine: TableMachine) -> Attempt | None:
    phase = machine.phase.resume if isinstance(machine.phase, Waiting) else machine.phase
    return phase.attempt if isinstance(phase, Staging | Undecided) else None


def with_table() -> Driver:
    """A driver whose table exists and rests at version 0."""
    driver = Driver()
    driver.arrive(create_intent())
    driver.tell(HeadLoaded(None, 0))
    driver.tell(ObjectsStored())
    driver.put_answers(PutStatus.CREATED)
    assert driver.phase is Phase.IDLE
    return driver


@cache
def create_intent() -> Intent:
    schema = pa.schema([pa.field("id", pa.int64())])
    definition = build_definition(schema, table_uuid=uuid.UUID(int=7))
    return Intent(intent_id="create", table=TABLE, kind=IntentKind.CREATE, definition=definition.to_json().decode())


def append_intent(name: str, *, writer: str | None = None, sequence: int | None = None) -> Intent:
    added = DataFile(
        location=f"data/{name}.parquet",
        record_count=10,
        file_size_in_bytes=100,
        statistics=(GenericStatistics(field_id=1, lower_value=0, upper_value=9),),
    )
    return Intent(
        intent_id=f"append-{name}",
        table=TABLE,
        kind=IntentKind.APPEND,
        add_data_files=(added,),
        writer_id=writer,
        writer_sequence=sequence,
    )
