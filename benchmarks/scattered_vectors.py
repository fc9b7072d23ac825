"""Scans of many files with a vector each, after the vectors were joined, beside the version before.

Owns: the table, and both measurements. Does not own: services (`tests.services`), interleaving (`measure`).
Invariants: subject and yardstick are two versions of one table with the same rows, scanned in turn by one client.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

import rootline
from benchmarks.far_services import far_store
from benchmarks.measure import Result, interleaved, load_average
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.maintenance.plan import vectors_of_puffin
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedVector, Intent, IntentKind
from rootline.schemas.object_keys import key_of
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.kinds import BY_HAND, maintain

FILES: Final = int(os.environ.get("ROOTLINE_BENCH_VECTORS", "10000"))
FILES_FAR: Final = int(os.environ.get("ROOTLINE_BENCH_VECTORS_FAR", "1000"))
_SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_VECTORS_SAMPLES", "3"))
_ROWS: Final = 10
_AN_INTENT: Final = 500
_ADDED_MS: Final = 20
_AT_ONCE: Final = 16
_TABLE: Final = TableName("demo.scattered")


def measure() -> list[Result]:
    """In a folder, and in a bucket that answers 20 ms late."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        results = [_measured(str(Path(folder).resolve() / "lake"), FILES, "a folder")]
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder, far_store(_ADDED_MS) as far:
        os.environ.update(far.environment())
        log = f"sqlite://{Path(folder).resolve()}"
        warehouse = f"s3://{far.bucket}/{uuid.uuid4().hex}"
        results.append(_measured(warehouse, FILES_FAR, f"S3 +{_ADDED_MS} ms", log))
    return results


def _measured(warehouse: str, files: int, where: str, log: str | None = None) -> Result:
    with rootline.connect(warehouse, log=log) as lake:
        off = {"rootline.expire": "false", "rootline.compact.vector-files": "1000000"}  # nothing but what is measured
        table = lake.create_table(str(_TABLE), pa.schema([("id", pa.int64())]), properties=off)
        _write(lake, table, files)
        before = table.scan().plan().version
        intents, seconds = lake.holder.run(_join)
        after = table.scan().plan().version

        async def timed(version: int) -> float:
            began = time.perf_counter()
            assert table.scan(version=version).to_arrow().num_rows == files * (_ROWS - 1)
            return time.perf_counter() - began

        ours, theirs = asyncio.run(
            interleaved(lambda _: timed(after), lambda _: timed(before), samples=_SAMPLES, warm_up=1)
        )
    return Result(
        "vectors",
        f"scan of {files:,} files with a vector each, {where}",
        ours,
        theirs,
        "the same before they were joined",
        ours.median / theirs.median,
        "< 1",
        load_average(),
        f"{files:,} Puffin files became {intents}, by as many intents, in {seconds:.1f} s",
    )


def _write(lake: rootline.Lake, table: TableHandle, files: int) -> None:
    """Files of ten rows, and a vector of one row for each, in a Puffin file of its own; all of it moves to leaves."""
    names = [f"data/{number:06}.parquet" for number in range(files)]
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(pa.table([pa.array(range(_ROWS), pa.int64())], pa.schema([field])), file.name)
        made = rootline.DataFile.from_parquet(names[0], table.definition(), source=file.name)
        body = Path(file.name).read_bytes()
    lake.holder.run(lambda session: _put(session, dict.fromkeys(names, body)))
    for start in range(0, files, _AN_INTENT):
        some = names[start : start + _AN_INTENT]
        table.add_files([made.model_copy(update={"location": name}) for name in some])
    for start in range(0, files, _AN_INTENT):
        some = names[start : start + _AN_INTENT]
        lake.holder.run(lambda session, some=some: _delete(session, some))
    lake.holder.run(lambda session: _maintained(session, "flush"))


async def _put(session: Session, bodies: dict[str, bytes]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, body: bytes) -> None:
        async with slots:
            await session.store.put_if_absent(key_of(_TABLE, name), body)

    await asyncio.gather(*(one(name, body) for name, body in bodies.items()))


async def _delete(session: Session, names: list[str]) -> None:
    vectors: list[AddedVector] = []
    bodies: dict[str, bytes] = {}
    for name in names:
        blob = VectorBlob(name, BitMap64([3]))
        puffin = encode_puffin([blob])
        location = puffin_name(f"data/{uuid.uuid4()}-deletes", puffin.body)
        bodies[location] = puffin.body
        vectors += vectors_of_puffin(location, puffin, [blob], [None])
    await _put(session, bodies)
    intent = Intent(intent_id=uuid.uuid4().hex, table=_TABLE, kind=IntentKind.ROW_DELTA, add_vectors=tuple(vectors))
    position = await session.log.publish(_TABLE.encode(), encode_intent(intent))
    verdict = await session.log.wait_verdict(position, timeout_s=120)
    assert verdict is not None
    assert verdict.code is None, verdict


async def _join(session: Session) -> tuple[int, float]:
    """How many intents it took, and seconds."""
    began, intents = time.perf_counter(), 0
    while await _maintained(session, "compact-vectors") is JobOutcome.COMMITTED:
        intents += 1
    await _maintained(session, "flush")
    return intents, time.perf_counter() - began


async def _maintained(session: Session, kind: str) -> JobOutcome:
    done = await maintain(session.store, session.log, session.environment, _TABLE, BY_HAND[kind], dry_run=False)
    return done.outcome
