"""Parked tables as dead letters that an operator replays, in place of parked records (decision 0121).

Owns: a prototype of it in two forms, and executions that say which promises hold. Does not own: the coordinators, the
group's log (`tests.coordinator.group_service`).
Invariants: virtual time, no randomness; every execution runs under today's parking too, beside the prototype; nothing
is asserted of the prototype, its outcomes are printed.

Theory. `LETTERS` rejects every undecided record of a table that is due, as `table-parked`, with a dead letter, and
gives the table a loop that knows nothing. `LETTERS_NOT_GIVEN` rejects only records that no coordinator of the present
assignment has handed to the table's machine: a root may contain the others. An operator's replay publishes the letter's
intent again under a new `intent_id` with its writer and sequence, as `rootline dlq replay` does.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import structlog

from rootline.coordinator.runtime.assignment import partition_assignment
from rootline.coordinator.runtime.assignment.parking import Parking
from rootline.ports.intent_feed import Partition, Pause
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.intent import DataFile, EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.root_header import PartitionOffset
from rootline.schemas.verdict import Verdict
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent
from tests.coordinator.test_consumer_loop import Outage
from tests.coordinator.test_parking import FREE, STUCK, WEEK_S, Damage, quarantined
from tests.support.group_log import GroupLog
from tests.support.loaded_tables import load_table


class Form(Enum):
    """What becomes of the undecided records of a table that cannot go on."""

    PARKED = "today: parked records"
    LETTERS = "letters for all"
    LETTERS_NOT_GIVEN = "letters for what no machine was given"


_form = Form.PARKED


class LetterParking(Parking):
    """The prototype. It stores nothing: what is due is rejected, or stays undecided."""

    async def _park(self, place: Partition, tables: list[TableName]) -> None:
        if _form is Form.PARKED:
            await super()._park(place, tables)
            return
        owner, frontier = self.owner, self.owner.frontier
        for table in tables:
            where = (table, place)
            start = frontier.parked_to(place, table)
            given_to = self._may_be_decided_to(where) if _form is Form.LETTERS_NOT_GIVEN else 0
            end = frontier.next_offset(place)
            found = await owner.log.read_again(f"letters/{table}", PartitionOffset(*place, start), limit=4_096)
            records = [raw for raw in found.records if raw.position.offset < end]
            own = self.late.records_of(place, records, {table: start})[table]
            if _form is Form.LETTERS:
                owner.open_table(table, [PartitionOffset(*place, end)])  # its machine forgets what it was given
            self._reject(table, [item for item in own if item[0].position.offset >= given_to], "it was set aside")
            if given_to > start:  # it stays undecided, so it holds the frontier back, and the table is not parked
                del self.late.parked[where]
                frontier.unparked(place, table, at_least=end)
            else:
                frontier.parked(place, table, end)
                frontier.reread(place, table, end)
            await owner.log.forget_reader(f"letters/{table}")


@dataclass(slots=True)
class Scene:
    """Coordinators, one log partition, the table that gets stuck, and one that does not."""

    group: Group
    log: GroupLog
    outage: Outage
    said: list[str] = field(default_factory=list)

    async def others_commit(self, minutes: int) -> None:
        """The other table commits once a minute."""
        for number in range(minutes):
            await self.group.commit(append_intent(f"free-{self.group.log.span(0)[1]}-{number}", FREE))
            await asyncio.sleep(60.0)

    def lag(self, last: LogPosition) -> int:
        """How many records up to `last` hold the group's offset back."""
        return max(0, last.offset + 1 - (self.log.remembered(0) or 0))

    def told(self, places: Sequence[LogPosition]) -> list[str]:
        return [_word(self.log.verdicts.get(place)) for place in places]

    async def replayed(self) -> list[str]:
        """Every dead letter of the table, published again as `dlq replay` does; the verdicts."""
        letters = [letter for letter in self.log.letters if letter.table == STUCK]
        intents = [decode_intent(letter.value) for letter in letters]
        again = [one.model_copy(update={"intent_id": f"{one.intent_id}-again"}) for one in intents]
        return [_word(verdict) for verdict in await self.group.decided(self.group.publish(*again))] if again else []

    def lift(self) -> None:
        self.log.group.parked.lift(STUCK)

    async def live(self) -> str:
        """Live files of the table with their sequence numbers."""
        state = await load_table(self.group.store.inner, STUCK)
        assert state is not None
        found = sorted(
            (item.entry.location, item.entry.version_info.sequence_number, item.entry.content_type)
            for item in state.live.entries()
        )
        marks = {ContentType.DATA: "", ContentType.EQUALITY_DELETE: "delete "}
        return ", ".join(f"{marks.get(kind, '? ')}{name} at {number}" for name, number, kind in found) or "nothing"


def _word(verdict: Verdict | None) -> str:
    return "none" if verdict is None else verdict.code or verdict.kind.value


async def given(scene: Scene, *, writer: str | None) -> None:
    """A root lands, its answer is lost, and the store does not answer for the table any more."""
    group, outage = scene.group, scene.outage
    named: dict[str, Any] = {} if writer is None else {"writer_id": writer, "writer_sequence": 1}

    async def lost(operation: str, key: str) -> None:
        if operation == "put" and key.startswith("q/q") and not outage.on:
            outage.on = True
            raise TimeoutError

    group.store.after = lost
    stuck = group.publish(append_intent("one", STUCK, **named))
    await scene.others_commit(25)
    scene.said.append(f"after 25 minutes: {scene.told(stuck)}, held back: {scene.lag(stuck[-1])}")
    outage.on, group.store.after = False, _nothing
    await group.stop("a")
    group.start("b")
    scene.lift()
    await scene.others_commit(25)
    scene.said.append(f"after the repair: {scene.told(stuck)}, live: {await scene.live()}")
    if scene.log.letters:
        scene.said.append(f"replayed: {await scene.replayed()}, live: {await scene.live()}")


async def _nothing(operation: str, key: str) -> None:
    return None


def _upsert(number: int) -> Intent:
    """Row 1 gets its value number `number`: its older values are deleted by key."""
    data = DataFile(location=f"data/v{number}.parquet", record_count=1, file_size_in_bytes=100)
    delete = EqualityDeleteFile(
        location=f"data/d{number}.parquet", record_count=1, file_size_in_bytes=100, equality_ids=(1,)
    )
    named = {"writer_id": "upserts", "writer_sequence": number}
    return Intent(
        intent_id=f"upsert-{number}", table=STUCK, kind=IntentKind.ROW_DELTA, add_data_files=(data,),
        add_equality_deletes=(delete,), **named,
    )  # fmt: skip


async def order(scene: Scene) -> None:
    """A row is set twice, while the table is stuck and after its repair; which value is the newest in the end."""
    group = scene.group
    damage = Damage(group.store)
    await quarantined(group, damage)
    first = group.publish(_upsert(1))
    await scene.others_commit(25)
    scene.said.append(f"first: {scene.told(first)}, held back: {scene.lag(first[-1])}")
    damage.mend()
    await group.stop("a")
    group.start("b")
    scene.lift()
    await scene.others_commit(5)
    second = group.publish(_upsert(2))
    await scene.others_commit(25)
    scene.said.append(f"second: {scene.told(second)}")
    if scene.log.letters:
        scene.said.append(f"first, replayed: {await scene.replayed()}")
    scene.said.append(f"live: {await scene.live()}")


async def waiting(scene: Scene) -> None:
    """Thirty writers wait for their verdicts while the table is stuck; the operator replays twice, to be sure."""
    group = scene.group
    damage = Damage(group.store)
    await quarantined(group, damage)
    stuck = group.publish(
        *(append_intent(f"w-{number}", STUCK, writer_id=f"w{number}", writer_sequence=1) for number in range(30))
    )
    await scene.others_commit(25)
    scene.said.append(f"told while stuck: {_counts(scene.told(stuck))}, held back: {scene.lag(stuck[-1])}")
    damage.mend()
    await group.stop("a")
    group.start("b")
    scene.lift()
    await scene.others_commit(25)
    scene.said.append(f"told at their own positions: {_counts(scene.told(stuck))}")
    if scene.log.letters:
        scene.said.append(f"replayed: {_counts(await scene.replayed())}")
        scene.said.append(f"replayed once more: {_counts(await scene.replayed())}")
    scene.said.append(f"live files: {len(await group.files(STUCK))}")


async def paused(scene: Scene) -> None:
    """`rootline pause`, for half an hour: decision 0086 promises that it loses nothing."""
    group = scene.group
    await group.stop("a")
    scene.log.group.paused.append(Pause(STUCK, 1, "its source is wrong"))
    group.start("b")
    stuck = group.publish(append_intent("one", STUCK), append_intent("two", STUCK))
    await scene.others_commit(25)
    scene.said.append(f"told while paused: {scene.told(stuck)}, held back: {scene.lag(stuck[-1])}")
    scene.log.group.paused.clear()
    await scene.others_commit(25)
    scene.said.append(f"after `resume`: {scene.told(stuck)}, live: {await scene.live()}")


async def retention(scene: Scene) -> None:
    """The log removes what is older than a week while the table is stuck; the other table needs the next owner."""
    group = scene.group
    await quarantined(group, Damage(group.store))
    stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(3)))
    await scene.others_commit(25)
    scene.log.truncate_before(0, stuck[-1].offset + 1)
    await group.stop("a")
    group.start("b")
    try:
        async with asyncio.timeout(600):
            [free] = await group.commit(append_intent("after", FREE))
        scene.said.append(f"the other table: {_word(free)}")
    except TimeoutError:
        scene.said.append("the other table: no verdict")
        await group.stop("b")


def _counts(words: Sequence[str]) -> dict[str, int]:
    return {word: words.count(word) for word in dict.fromkeys(words)}


async def given_to_a_writerless(scene: Scene) -> None:
    """`given`, of an intent without a writer."""
    await given(scene, writer=None)


async def given_to_a_writer(scene: Scene) -> None:
    """`given`, of an intent under a ledger key."""
    await given(scene, writer="w")


_EXECUTIONS: Final[dict[str, Callable[[Scene], Awaitable[None]]]] = {
    "a root landed and no one knows; no ledger key": given_to_a_writerless,
    "a root landed and no one knows; a ledger key": given_to_a_writer,
    "a row set twice, before and after the repair": order,
    "thirty writers wait, each with a ledger key": waiting,
    "a pause of half an hour": paused,
    "the log's retention passes the stuck records": retention,
}


def main() -> None:
    """Print each execution under each form."""
    global _form
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    vars(partition_assignment)["Parking"] = LetterParking
    for title, execution in _EXECUTIONS.items():
        print(f"\n{title}")
        for _form in Form:
            print(f"  {_form.value}")
            for line in _outcome(execution):
                print(f"    {line}")


def _outcome(execution: Callable[[Scene], Awaitable[None]]) -> list[str]:
    said: list[str] = []

    async def run() -> None:
        outage, log = Outage(STUCK), GroupLog(1, retention_s=WEEK_S)
        store = HookedStore(before=outage)
        async with coordinating("a", log=log, store=store) as group:
            if execution not in (order, waiting, retention):  # those create the tables, and damage one
                await group.create(STUCK, FREE)
                await group.until_settled()
            await execution(Scene(group, log, outage, said))

    try:
        run_virtually(run())
    except AssertionError as error:  # the log's test double refuses what must never be
        said.append(f"must never be: {_shortened(str(error))}")
    except RootlineError as error:
        said.append(f"the coordinator ends: {error.code}: {error.message[:200]}")
    return said


def _shortened(text: str) -> str:
    """`two verdicts on …`, with kinds only."""
    kinds = re.findall(r"kind=<VerdictKind.(\w+)", text)
    return f"{text.split('(')[0].strip()}: {', then '.join(kinds)}" if kinds else text[:200]


if __name__ == "__main__":
    main()
