"""Goals 1, 2 and 7: one writer's commit against a bare conditional PUT, and what a commit writes.

Owns: the measurement on S3, on local files, and with 60 ms of delay. Does not own: services (`tests.services`).
Invariants: subject and yardstick put the same number of bytes, in turn, on the same store.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Result, interleaved, load_average, result
from benchmarks.own_coordinator import coordinating, require_commit
from benchmarks.sample_table import TABLE, append_record, create_record, definition
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.s3_object_store import s3_client
from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.identifiers import ObjectKey
from tests.services.s3_service import S3Service

BarePut = Callable[[int, bytes], Awaitable[None]]
SAMPLES = int(os.environ.get("ROOTLINE_BENCH_SAMPLES", "200"))
_WARM_UP = 10
_FILLED = 1_000
_PER_INTENT = 400


@dataclass(slots=True)
class CountingStore:
    """Counts requests and bytes on their way to a store."""

    store: ObjectStore
    requests: int = 0
    objects: int = 0
    written: int = 0
    last_size: int = 0

    async def get(self, key: ObjectKey) -> StoredObject | None:
        self.requests += 1
        return await self.store.get(key)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        self.requests += 1
        self.objects += 1
        self.written += len(body)
        self.last_size = len(body)
        return await self.store.put_if_absent(key, body, after=after)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        self.requests += 1
        return await self.store.list(prefix, limit=limit)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        return await self.store.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        self.requests += 1
        return await self.store.folders(prefix)

    async def close(self) -> None:
        await self.store.close()


@dataclass(slots=True)
class Table:
    """A running coordinator with a filled table, and one writer."""

    store: CountingStore
    log: MemoryIntentLog
    codec: StatisticsCodec
    files: int = field(default=0)

    async def commit(self, count: int = 1) -> float:
        """Publish one intent of `count` files; how many seconds until its verdict."""
        record = append_record(range(self.files, self.files + count), self.codec)
        self.files += count
        return await self._publish(record)

    async def _publish(self, record: bytes) -> float:
        began = time.perf_counter()
        position = await self.log.publish(TABLE.encode(), record)
        verdict = await self.log.wait_verdict(position, timeout_s=30)
        taken = time.perf_counter() - began
        require_commit(verdict)
        return taken


@contextlib.asynccontextmanager
async def filled_table(store: ObjectStore) -> AsyncIterator[Table]:
    """A table of 1,000 files with a coordinator in this process."""
    counting = CountingStore(store)
    table_definition = definition()
    async with coordinating(counting) as log:
        table = Table(counting, log, StatisticsCodec(table_definition.tracked_fields))
        await table._publish(create_record(table_definition))
        while table.files < _FILLED:
            await table.commit(min(_PER_INTENT, _FILLED - table.files))
        yield table


async def on_s3(service: S3Service, name: str, goal: str, samples: int = SAMPLES) -> list[Result]:
    """Goal 1 on an S3 store, and the counts of goal 7 with it."""
    async with s3_client(service.settings()) as client:

        async def bare(number: int, body: bytes) -> None:
            key = f"bare-{uuid.uuid4().hex}/{number}"
            await client.put_object(Bucket=service.bucket, Key=key, Body=body, IfNoneMatch="*")

        store = service.store()
        try:
            return await _against(store, bare, f"commit on {name}", "bare conditional PUT", goal, "≤ 1.15", samples)
        finally:
            await store.close()


async def on_local_files(folder: Path, samples: int = SAMPLES) -> list[Result]:
    """Goal 2: the durable put-if-absent is write, fsync, link, fsync of the folder."""
    bare_folder = folder / "bare"
    bare_folder.mkdir(parents=True)

    async def bare(number: int, body: bytes) -> None:
        durable_put_if_absent(bare_folder, str(number), body)

    store = LocalObjectStore(folder / "lake")
    try:
        return await _against(store, bare, "commit on local files", "bare durable put-if-absent", "2", "≤ 1.5", samples)
    finally:
        await store.close()


def durable_put_if_absent(folder: Path, name: str, body: bytes) -> None:
    """The fewest calls that make a file durable and its name exclusive."""
    temporary = folder / f".{name}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(handle, body)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.link(temporary, folder / name)
    temporary.unlink()
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


async def _against(
    store: ObjectStore, bare: BarePut, what: str, yardstick_name: str, goal: str, target: str, samples: int
) -> list[Result]:
    async with filled_table(store) as table:
        size = table.store.last_size
        before = (table.store.requests, table.store.objects, table.store.written)
        roots = 0

        async def subject(number: int) -> float:
            nonlocal size, roots
            taken = await table.commit()
            size = table.store.last_size
            roots += size
            return taken

        async def yardstick(number: int) -> None:
            await bare(number, os.urandom(size))

        ours, theirs = await interleaved(subject, yardstick, samples, _WARM_UP)
        commits = samples + _WARM_UP
        requests, objects, written = (
            now - then
            for now, then in zip((table.store.requests, table.store.objects, table.store.written), before, strict=True)
        )
    notes = f"root of {size / 1024:.0f} KiB, {_FILLED} files with 20 columns of statistics"
    return [
        result(goal, what, ours, theirs, yardstick_name, target, notes),
        Result(
            "7",
            f"{what}: requests a commit",
            None,
            None,
            "one request",
            requests / commits,
            "1",
            load_average(),
            f"{objects / commits:.3f} objects a commit; {written / roots:.3f} × the root's bytes written",
        ),
    ]
