"""Many writers: stable ids and sequences, every kind of intent, the same receipt again whenever no verdict comes.

Some tables have a founder, who replaces them, drops them and makes them again all the time; most of their writers say
which table and schema they mean, as they know them, and some do not.

Owns: what is published, and what writers were told. Does not own: what becomes of it, faults.
Invariants: what is published again is the identical intent; a file's location is used by one intent, unless it is meant
to be rejected; a data file is stored before the intent that names it.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aiokafka.errors import KafkaError

from rootline.adapters.settings import KafkaSettings
from rootline.client.lake import Lake
from rootline.client.producer import AsyncProducer, AsyncReceipt
from rootline.client.session import Session
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import Location, LogPosition, TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.root_reader import read_definition, table_root
from rootline.tree.evolution.changes import DefinitionChanges, SetCurrentSchema
from tests.kafka.hostile_batches import CODECS, MEBIBYTE, batch_of, compressed, put, record_of_zeros

BODY = b"a coordinator never reads a data file"
UNKNOWN_TABLE = "chaos.nowhere"
FOUNDERS = 3
"""So many of the tables are dropped and replaced."""
_FOREIGN_KEYS = (b"chaos.t0", b"chaos.t1", b"no table at all", b"")
_PASSING_EVERY = 5
"""Every fifth writer has a process's own id, which ledgers forget when it has long been idle."""
_BOMBS_MAX = 3
_BOMB_MIB = 40
"""More than a coordinator decompresses; those who judge do decompress it."""
_FOREIGN_VALUES = (b"", b"\xc3\x01garbage", b'{"kind": "append"', b'{"intent_id": 7}', b"\x00" * 300)


async def elapsed(seconds: float) -> None:
    """Chaos takes real time."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


class Incarnation(NamedTuple):
    """What writers know of a table: which one it is, and the schema that they write under."""

    table_uuid: uuid.UUID
    schema_id: int


@dataclass
class Ledger:
    """What all writers know."""

    intents: dict[str, Intent] = field(default_factory=dict)
    told: dict[tuple[int, int], Verdict] = field(default_factory=dict)
    """The verdict that a writer was given on the record at (partition, offset)."""
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)
    """The intent whose record the log has acknowledged there."""
    sent_again: int = 0
    unknown: int = 0
    decided: int = 0


@dataclass
class Crowd:
    """`store` and `kafka`: where data files and foreign batches go, by ways without faults."""

    lakes: Sequence[Lake]
    store: ObjectStore
    tables: Sequence[str]
    seed: int
    writers: int
    kafka: KafkaSettings
    ledger: Ledger = field(default_factory=Ledger)
    known: dict[str, Incarnation] = field(default_factory=dict)
    """Of the tables that have a founder."""
    founded: Counter[IntentKind] = field(default_factory=Counter)
    """What founders did."""
    _enough: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Begin to write."""
        for number in range(self.writers):
            writer = _Writer(self, number, random.Random(f"{self.seed}/writer/{number}"))
            self._tasks.append(asyncio.create_task(writer.run(), name=f"writer {number}"))
        for number, table in enumerate(self.tables[-FOUNDERS:]):
            founder = _Founder(self, number, random.Random(f"{self.seed}/founder/{number}"), founds=table)
            self._tasks.append(asyncio.create_task(founder.run(), name=f"founder {number}"))
        stranger = _Stranger(self, random.Random(f"{self.seed}/stranger"))
        self._tasks.append(asyncio.create_task(stranger.run(), name="stranger"))

    def raise_failure(self) -> None:
        """What ended a writer, if anything did."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def finish(self, patience_s: float) -> None:
        """Every writer ends with what it is at, and is told what became of it."""
        self._enough.set()
        done, late = await asyncio.wait(self._tasks, timeout=patience_s)
        for task in late:
            task.cancel()
        for task in done:
            task.result()
        names = [task.get_name() for task in late]
        assert not late, f"liveness: {patience_s:.0f} s after the faults stopped, no one has told {names}"

    async def give_up(self) -> None:
        """Whatever they are at."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def pause(self, seconds: float) -> bool:
        """Think; whether it is enough."""
        try:
            await asyncio.wait_for(self._enough.wait(), seconds)
        except TimeoutError:
            return False
        return True


@dataclass
class _Writer:
    """One writer of one table, one intent after the other."""

    crowd: Crowd
    number: int
    rng: random.Random
    sequence: int = 0
    minted: int = 0
    live: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = f"writer-{self.number}"
        self.table = self.crowd.tables[self.number % len(self.crowd.tables)]
        self.lake = self.crowd.lakes[self.number % len(self.crowd.lakes)]
        self.is_passing = self.number % _PASSING_EVERY == 0

    async def run(self) -> None:
        async with self.lake.async_producer(None if self.is_passing else self.name) as producer:
            while not await self.crowd.pause(self.rng.expovariate(1 / 0.15)):
                intent = await self._next_intent()
                verdict = await self._until_decided(producer, intent)
                if verdict.kind is VerdictKind.REJECTED and self.rng.random() < 0.5:
                    mended = await self._append(1)
                    verdict = await self._until_decided(producer, mended)
                    intent = mended
                if verdict.kind is not VerdictKind.REJECTED:
                    self._remember(intent)
                self.sequence += 1

    async def _until_decided(self, producer: AsyncProducer, intent: Intent) -> Verdict:
        ledger = self.crowd.ledger
        ledger.intents[intent.intent_id] = intent
        what: Intent | AsyncReceipt = intent
        receipts: list[AsyncReceipt] = []
        while True:
            try:
                receipt = await producer.publish(
                    what, writer_sequence=None if self.is_passing or isinstance(what, AsyncReceipt) else self.sequence
                )
            except (OutcomeUnknown, Unavailable):
                ledger.unknown += 1
                await elapsed(0.1)
                continue
            receipts.append(receipt)
            ledger.acknowledged[receipt.position.partition, receipt.position.offset] = intent.intent_id
            asked = self.rng.choice(receipts)
            try:
                verdict = await asked.verdict(timeout_s=self.rng.choice((0.3, 2.0, 5.0, 20.0)))
            except (OutcomeUnknown, Unavailable):
                what = receipt
                ledger.sent_again += 1
                continue
            self._note(asked, verdict)
            ledger.decided += 1
            if self.rng.random() < 0.1:  # as a writer that crashed before it wrote down what it was told
                receipts.append(await self._once_more(producer, receipt))
            return verdict

    async def _once_more(self, producer: AsyncProducer, receipt: AsyncReceipt) -> AsyncReceipt:
        self.crowd.ledger.sent_again += 1
        try:
            again = await producer.publish(receipt)
        except (OutcomeUnknown, Unavailable):
            return receipt
        self.crowd.ledger.acknowledged[again.position.partition, again.position.offset] = receipt.intent.intent_id
        return again

    def _note(self, receipt: AsyncReceipt, verdict: Verdict) -> None:
        assert verdict.intent_id == receipt.intent.intent_id
        place = receipt.position.partition, receipt.position.offset
        before = self.crowd.ledger.told.setdefault(place, verdict)
        assert before == verdict, f"{self.name} was told {before}, then {verdict}"

    def _remember(self, intent: Intent) -> None:
        removed = {file.location for file in intent.remove_files}
        self.live = [name for name in self.live if name not in removed]
        self.live += [file.location for file in intent.add_data_files]
        self.gone = [*self.gone, *removed][-8:]

    async def _next_intent(self) -> Intent:
        roll = self.rng.random()
        if roll < 0.10 and self.live:
            return self._intent(IntentKind.REMOVE, remove_files=(self._removed(self.live),))
        if roll < 0.18 and self.live:
            added = await self._files(1)
            return self._intent(IntentKind.OVERWRITE, add_data_files=added, remove_files=(self._removed(self.live),))
        if roll < 0.21 and self.gone:  # was removed before: stale-source
            return self._intent(IntentKind.REMOVE, remove_files=(self._removed(self.gone),))
        if roll < 0.24:
            wrong = self._file("../outside.parquet")
            return self._intent(IntentKind.APPEND, add_data_files=(wrong,))
        if roll < 0.26 and self.live:  # live already
            return self._intent(IntentKind.APPEND, add_data_files=(self._file(self.rng.choice(self.live)),))
        if roll < 0.28:
            return self._intent(IntentKind.APPEND, table=UNKNOWN_TABLE, add_data_files=(self._file("data/x.parquet"),))
        return await self._append(self.rng.randint(1, 3))

    async def _append(self, count: int) -> Intent:
        return self._intent(IntentKind.APPEND, add_data_files=await self._files(count))

    async def _files(self, count: int) -> tuple[DataFile, ...]:
        files = []
        for _ in range(count):
            location = f"data/{self._fresh('file')}.parquet"
            await self.crowd.store.put_if_absent(key_of(TableName(self.table), Location(location)), BODY)
            files.append(self._file(location))
        return tuple(files)

    def _intent(self, kind: IntentKind, **cargo: object) -> Intent:
        known = self.crowd.known.get(self.table)
        named = {} if known is None or self.rng.random() < 0.1 else known._asdict()
        own = {"intent_id": self._fresh("intent"), "table": self.table, "kind": kind}
        return Intent.model_validate({**own, **named, **cargo})

    def _removed(self, of: list[str]) -> RemovedFile:
        return RemovedFile(location=self.rng.choice(of))

    def _file(self, location: str) -> DataFile:
        return DataFile(location=location, record_count=10, file_size_in_bytes=len(BODY))

    def _fresh(self, what: str) -> str:
        self.minted += 1
        return f"{what}-{self.name}-{self.minted}"


@dataclass
class _Founder(_Writer):
    """Replaces a table, or drops it and makes another one of its name; never ends while there is none."""

    founds: str = ""

    def __post_init__(self) -> None:
        self.name, self.table, self.is_passing = f"founder-{self.number}", self.founds, False
        self.lake = self.crowd.lakes[self.number % len(self.crowd.lakes)]

    async def run(self) -> None:
        first, _ = await self._there()
        async with self.lake.async_producer(self.name) as producer:
            while not await self.crowd.pause(self.rng.expovariate(1 / 3.0)):
                if self.rng.random() < 0.6:
                    await self._found(producer, await self._replace())
                    continue
                which = {"table_uuid": self.crowd.known[self.table].table_uuid, "schema_id": None}
                await self._found(producer, self._intent(IntentKind.DROP, **which))
                await elapsed(self.rng.expovariate(1 / 0.5))
                another = replace(first, table_uuid=uuid.UUID(int=self.rng.getrandbits(128), version=4))
                text, unnamed = another.to_json().decode(), dict.fromkeys(Incarnation._fields)
                await self._found(producer, self._intent(IntentKind.CREATE, definition=text, **unnamed))
                await self._there()

    async def _found(self, producer: AsyncProducer, intent: Intent) -> None:
        verdict = await self._until_decided(producer, intent)
        assert verdict.kind is not VerdictKind.REJECTED, f"{self.name}: {verdict}"
        self.sequence += 1
        self.crowd.founded[intent.kind] += 1
        if intent.kind is IntentKind.REPLACE:
            await self._there()

    async def _replace(self) -> Intent:
        definition, digest = await self._there()
        keeps = DefinitionChanges(digest, (SetCurrentSchema(definition.current_schema_id),))
        which = {"table_uuid": definition.table_uuid, "schema_id": None}
        files = await self._files(self.rng.randint(0, 2))
        return self._intent(IntentKind.REPLACE, definition=keeps.to_json(), add_data_files=files, **which)

    async def _there(self) -> tuple[TableDefinition, bytes]:
        """The table as it is; no one else changes its definition."""
        root = await table_root(self.crowd.store, TableName(self.table))
        definition = await read_definition(self.crowd.store, root.header)
        self.crowd.known[self.table] = Incarnation(definition.table_uuid, definition.current_schema_id)
        return definition, root.header.definition.digest


@dataclass
class _Stranger:
    """Publishes what is no intent, and now and then a batch that is far larger than it looks."""

    crowd: Crowd
    rng: random.Random
    bombs: int = 0

    async def run(self) -> None:
        while not await self.crowd.pause(self.rng.expovariate(1.0)):
            if self.bombs < _BOMBS_MAX and self.rng.random() < 0.2:
                await self._bomb()
            else:
                await self._publish(self.rng.choice(_FOREIGN_KEYS), self.rng.choice(_FOREIGN_VALUES))

    async def _bomb(self) -> None:
        self.bombs += 1
        partition, zstd = self.rng.randrange(2), CODECS["zstd"]
        records = [*record_of_zeros(10), *record_of_zeros(_BOMB_MIB * MEBIBYTE, 1), *record_of_zeros(10, 2)]
        batch = await asyncio.to_thread(lambda: batch_of(zstd, compressed(zstd, records), 3))
        try:
            [first] = await put(self.crowd.kafka, (batch, 3), partition=partition)
        except KafkaError:
            return
        for offset in range(first, first + 3):
            self.crowd.ledger.acknowledged[partition, offset] = ""

    async def _publish(self, key: bytes, value: bytes) -> None:
        async def publishing(session: Session) -> LogPosition:
            return await session.log.publish(key, value)

        try:
            position = await self.crowd.lakes[0].holder.run_async(publishing)
        except (OutcomeUnknown, Unavailable):
            return
        self.crowd.ledger.acknowledged[position.partition, position.offset] = ""
