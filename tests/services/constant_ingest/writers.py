"""Writers of one table: appends, upserts, equality deletes, deletes by vectors, removals; some crash before publishing.

Owns: what is written, and what is noted of it. Does not own: what versions must hold (`row_history`).
Invariants: a row is changed by the writer that made it alone, who does one thing after the other, so whatever order
intents come in, each has one effect; what a writer is not told within `PATIENCE_S` fails the run.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from rootline.client.lake import Lake
from rootline.client.new_files import write_and_store
from rootline.client.planned_change import ChangeOptions
from rootline.client.producer import AsyncProducer, AsyncReceipt
from rootline.client.row_changes import delete_rows
from rootline.client.session import Session
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, EqualityDeleteFile, Intent, IntentKind, Isolation, RemovedFile
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from tests.services.constant_ingest.gate import Gate
from tests.services.constant_ingest.row_history import RowHistory, Rows

TABLE: Final = TableName("ingest.rows")
SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("part", pa.string()), ("v", pa.int64()), ("pad", pa.string())]
)
PARTS: Final = 4
PATIENCE_S: Final = 300.0
_KEY_ID: Final = 2
_KEYS_MAX: Final = 10
"""A writer with more live keys deletes before it adds, so the table has a size."""
_TARGET_BYTES: Final = 1 << 26
_KEPT_MAX: Final = 40


def value_of(rows: Rows) -> Rows:
    """What `v` of a row is."""
    return rows * 7 + 3


@dataclass
class Told:
    """What the writers of a table were told, and how long it took."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """By kind of intent, verdict and code."""
    waits_s: list[tuple[float, float]] = field(default_factory=list)
    """When an intent was published (monotonic), and how long its verdict took."""
    planned_s: list[float] = field(default_factory=list)
    """Of deletes by vectors, with the reading."""
    abandoned: list[Intent] = field(default_factory=list)
    """Intents whose files are stored; they were never published."""
    receipts: list[AsyncReceipt] = field(default_factory=list)
    """Of intents that were committed long ago."""


@dataclass
class Writers:
    """All writers of one table. `abandons`: whether some crash between upload and publishing."""

    lake: Lake
    count: int
    think_s: float
    abandons: bool
    gate: Gate
    history: RowHistory = field(default_factory=RowHistory)
    told: Told = field(default_factory=Told)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, definition: TableDefinition) -> None:
        """Until `enough`."""
        async with asyncio.TaskGroup() as group, self.lake.async_producer() as producer:
            writers = [_Writer(self, producer, definition, number) for number in range(self.count)]
            tasks = [group.create_task(writer.run()) for writer in writers]
            await asyncio.wait(tasks)

    async def publish_late(self, producer: AsyncProducer, what: Intent | AsyncReceipt) -> Verdict:
        """What was left, or was committed, long ago."""
        receipt = await producer.publish(what)
        return await receipt.verdict(timeout_s=PATIENCE_S)


@dataclass
class _Writer:
    """One of them. `live`: its rows by key. `files`: rows of the files that it added lately."""

    crowd: Writers
    producer: AsyncProducer
    definition: TableDefinition
    number: int
    live: dict[int, Rows] = field(default_factory=lambda: defaultdict(lambda: np.empty(0, np.int64)))
    files: list[tuple[DataFile, Rows]] = field(default_factory=list)
    keys: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.number)
        self.part = str(self.number % PARTS)

    async def run(self) -> None:
        crowd = self.crowd
        while not crowd.enough.is_set():
            async with crowd.gate.passing():
                change = crowd.history.begin()
                await self._change()
                crowd.history.end(change)
            try:
                await asyncio.wait_for(crowd.enough.wait(), self.rng.expovariate(1 / crowd.think_s))
            except TimeoutError:
                continue

    async def _change(self) -> None:
        roll = self.rng.random()
        if len(self.live) > _KEYS_MAX:
            roll = 0.55 + roll * 0.4
        if roll < 0.55 or len(self.live) < 3:
            await self._append()
        elif roll < 0.65:
            await self._upsert()
        elif roll < 0.78:
            await self._delete_by_key()
        elif roll < 0.91:
            await self._delete_rows()
        elif roll < 0.97 or not self.crowd.abandons:
            await self._remove_file()
        else:
            files, _ = await self._files(self._fresh_keys())
            intent = self._intent(IntentKind.APPEND, add_data_files=tuple(files))
            self.crowd.told.abandoned.append(intent)

    def _fresh_keys(self) -> list[int]:
        first, self.keys = self.keys, self.keys + self.rng.randint(1, 2)
        return [self.number + 1_000 * key for key in range(first, self.keys)]

    async def _append(self) -> None:
        files, rows = await self._files(self._fresh_keys())
        verdict = await self._decided(self._intent(IntentKind.APPEND, add_data_files=tuple(files)))
        self._came(verdict, files, rows)

    async def _upsert(self) -> None:
        """The rows of one key become others: an equality delete, which reaches no row of its own intent."""
        key = self.rng.choice(list(self.live))
        files, rows = await self._files([key])
        deletes = await self._deletes([key])
        cargo = {"add_data_files": tuple(files), "add_equality_deletes": deletes}
        verdict = await self._decided(self._intent(IntentKind.ROW_DELTA, **cargo))
        if verdict.kind is VerdictKind.COMMITTED:
            self._went(verdict.version, {key: self.live.pop(key)})
        self._came(verdict, files, rows)

    async def _delete_by_key(self) -> None:
        keys = self.rng.sample(list(self.live), self.rng.randint(1, 2))
        verdict = await self._decided(
            self._intent(IntentKind.ROW_DELTA, add_equality_deletes=await self._deletes(keys))
        )
        if verdict.kind is VerdictKind.COMMITTED:
            self._went(verdict.version, {key: self.live.pop(key) for key in keys})

    async def _delete_rows(self) -> None:
        """Some rows of one or two keys, by position; all of a file's sometimes, then it is removed."""
        picked: dict[int, Rows] = {}
        for key in self.rng.sample(list(self.live), self.rng.randint(1, 2)):
            rows = self.live[key]
            picked[key] = rows if self.rng.random() < 0.2 else rows[:: self.rng.randint(2, 4)]
        wanted = np.concatenate(list(picked.values()))
        where = f"part = '{self.part}' and id in ({', '.join(map(str, wanted.tolist()))})"
        options = ChangeOptions.of(Isolation.SNAPSHOT, PATIENCE_S, _TARGET_BYTES, None)
        began_s = time.monotonic()
        lake = self.crowd.lake
        try:
            commit = await lake.holder.run_async(
                lambda session: delete_rows(session, lake.stamp, TABLE, where, options)
            )
        except Invalid as error:
            self.crowd.told.verdicts[f"delete_where rejected {error.code}"] += 1
            return
        assert commit.is_new, f"writer {self.number}: {where} found no row, all of them are live"
        self.crowd.told.planned_s.append(time.monotonic() - began_s)
        self.crowd.told.verdicts["delete_where committed"] += 1
        self._went(commit.version, picked)

    async def _remove_file(self) -> None:
        """One of the last files, as it was written: too late if upkeep has written it again, or it has a vector."""
        if not self.files:
            return
        file, rows = self.files.pop(self.rng.randrange(len(self.files)))
        verdict = await self._decided(
            self._intent(IntentKind.REMOVE, remove_files=(RemovedFile(location=file.location),))
        )
        if verdict.kind is VerdictKind.COMMITTED:
            held = {key: np.intersect1d(live, rows) for key, live in self.live.items()}
            self._went(verdict.version, {key: found for key, found in held.items() if len(found)})

    async def _files(self, keys: Sequence[int]) -> tuple[list[DataFile], dict[int, Rows]]:
        """Stored, with fresh rows of these keys."""
        rows = {key: self.crowd.history.mint(self.rng.randint(8, 30)) for key in keys}
        every = np.concatenate(list(rows.values()))
        table = self._table(every, np.repeat(list(rows), [len(found) for found in rows.values()]))
        files = await self.crowd.lake.holder.run_async(
            lambda session: write_and_store(session, TABLE, self.definition, table, _TARGET_BYTES)
        )
        return files, rows

    async def _deletes(self, keys: Sequence[int]) -> tuple[EqualityDeleteFile, ...]:
        """A stored file that deletes these keys' rows."""
        table = self._table(np.zeros(len(keys), np.int64), np.array(keys))

        async def store(session: Session) -> list[DataFile]:
            return await write_and_store(session, TABLE, self.definition, table, _TARGET_BYTES)

        files = await self.crowd.lake.holder.run_async(store)
        held = [file.model_dump(exclude={"equality_ids"}) for file in files]
        return tuple(EqualityDeleteFile(**fields, equality_ids=(_KEY_ID,)) for fields in held)

    def _table(self, rows: Rows, keys: Rows) -> pa.Table:
        pads = [uuid.uuid4().hex * 2 for _ in range(len(rows))]
        columns = [rows, keys, [self.part] * len(rows), value_of(rows), pads]
        return pa.table([pa.array(column) for column in columns], schema=SCHEMA)

    def _intent(self, kind: IntentKind, **cargo: object) -> Intent:
        definition = self.definition
        fixed = {"table": TABLE, "table_uuid": definition.table_uuid, "schema_id": definition.current_schema_id}
        return Intent.model_validate({"intent_id": uuid.uuid4().hex, "kind": kind, **fixed, **cargo})

    async def _decided(self, intent: Intent) -> Verdict:
        began_s = time.monotonic()
        receipt = await self.producer.publish(intent)
        verdict = await receipt.verdict(timeout_s=PATIENCE_S)
        told = self.crowd.told
        told.waits_s.append((began_s, time.monotonic() - began_s))
        told.verdicts[" ".join(filter(None, (intent.kind.value, verdict.kind.value, verdict.code)))] += 1
        if verdict.kind is VerdictKind.COMMITTED and len(told.receipts) < _KEPT_MAX:
            told.receipts.append(receipt)
        return verdict

    def _came(self, verdict: Verdict, files: Sequence[DataFile], rows: dict[int, Rows]) -> None:
        if verdict.kind is not VerdictKind.COMMITTED:
            return
        assert verdict.version is not None
        every = np.concatenate(list(rows.values()))
        self.crowd.history.note(verdict.version, came=every)
        self.live.update(rows)
        if len(files) == 1:
            self.files = [*self.files, (files[0], every)][-4:]

    def _went(self, version: int | None, rows: dict[int, Rows]) -> None:
        assert version is not None
        for key, gone in rows.items():
            self.crowd.history.note(version, went=gone)
            left = np.setdiff1d(self.live.pop(key, np.empty(0, np.int64)), gone)
            if len(left):
                self.live[key] = left
