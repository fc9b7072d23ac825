"""When to flush: what a commit and a cold plan cost while the root grows, at several distances of the store.

Owns: roots of so many data files or vectors, on a store with so many milliseconds added to each reply. Does not own:
the store, the tree.
Invariants: a commit is the step that makes the next root and the conditional PUT of it; a plan begins with nothing; a
vector's data file stands in a leaf, so that only vectors fill the root; the sizes of one store alternate.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyroaring import BitMap64

from benchmarks.large_table import LOG, build
from benchmarks.measure import Spread
from benchmarks.sample_table import TABLE, append_record, definition
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.identifiers import CommitId, LogPosition
from rootline.schemas.intent import AddedVector, Intent, IntentKind
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.object_keys import root_key
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Needs, Record, Stamp
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.state.table_state import TableState
from tests.services.s3_service import S3Service, running_s3
from tests.services.toxiproxy import running_toxiproxy

ADDED_MS: Final = (0, 20, 60)
ROWS: Final = (100, 300, 1_000, 3_000, 10_000)
_SAMPLES: Final = 12
_PER_INTENT: Final = 400


@dataclass(slots=True)
class _Grown:
    """A table whose root has so many rows of one kind."""

    state: TableState
    next_file: int
    commits: list[float]
    plans: list[float]


def section() -> str:
    """The chapter as Markdown."""
    lines = [
        f"Median of {_SAMPLES}, in milliseconds: a commit of one file (the step and its conditional PUT) and a cold "
        "plan of the whole table, by the rows in the root and the milliseconds added to every reply of the store. "
        "Vectors are of files in one leaf, which a plan reads.",
        "",
        "| rows in the root | root, KiB | " + " | ".join(f"+{ms} ms: commit | plan" for ms in ADDED_MS) + " |",
        "|---|---:|" + "---:|" * (2 * len(ADDED_MS)),
        *asyncio.run(_measured()),
    ]
    return "\n".join([*lines, "", _READING])


_READING: Final = (
    "What follows from it: a commit hardly notices the length of the root. Blocks that did not change are joined as "
    "they are, so a thousand rows add about a millisecond, at any distance of the store, until the root is a megabyte "
    "long. A cold plan decodes every row: about 20 ms for a thousand, files and vectors alike. So the worker flushes "
    "at 1,000 data files, where planning has cost about as much as one more request would to a store that is 20 ms "
    "away, and the coordinator by itself at 5,000 rows, before commits slow down (`rootline.flush.*`). Nothing here "
    "requires vectors to go earlier than files. They do, at 200, because a scan that prunes a data file's leaf has to "
    "read a vector in the root for nothing, but does not even open the leaf's delete leaf."
)


async def _measured() -> list[str]:
    cells: dict[tuple[str, int], list[str]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="rootline-numbers-") as folder,
        running_s3(Path(folder) / "s3") as service,
        running_toxiproxy(Path(folder)) as toxiproxy,
    ):
        for added_ms in ADDED_MS:
            with toxiproxy.proxy(f"far-{added_ms}", service.address) as proxy:
                if added_ms:
                    proxy.add("latency", stream="downstream", latency=added_ms)
                far = S3Service(proxy.endpoint, service.access_key_id, service.secret_access_key, service.bucket)
                for kind in ("data files", "vectors"):
                    for rows, grown in (await _at_one_distance(far, kind)).items():
                        found = cells.setdefault((kind, rows), [f"{grown.state.root.size_in_bytes / 1024:,.0f}"])
                        found += [f"{1_000 * Spread.of(each).median:.1f}" for each in (grown.commits, grown.plans)]
    return [f"| {rows:,} {kind} | " + " | ".join(found) + " |" for (kind, rows), found in cells.items()]


async def _at_one_distance(service: S3Service, kind: str) -> dict[int, _Grown]:
    stores = {rows: service.store() for rows in ROWS}
    try:
        tables = {rows: await _grown(store, kind, rows) for rows, store in stores.items()}
        for _ in range(_SAMPLES):
            for rows, table in tables.items():
                await _sample(stores[rows], table)
        return tables
    finally:
        for store in stores.values():
            await store.close()


async def _grown(store: ObjectStore, kind: str, rows: int) -> _Grown:
    state = await build(store, rows if kind == "vectors" else 1)
    codec = StatisticsCodec(definition().tracked_fields)
    for first in range(0, rows, _PER_INTENT):
        some = range(first, min(first + _PER_INTENT, rows))
        if kind == "vectors":
            intent = _vectors_of(some)
        else:
            numbers = range(1_000 + some.start, 1_000 + some.stop)
            intent = decode_intent(append_record(numbers, codec), {}, IntentLimits())
        state = (await _step(store, state, intent)).state
    return _Grown(state, 1_000_000, [], [])


async def _sample(store: ObjectStore, table: _Grown) -> None:
    codec = StatisticsCodec(definition().tracked_fields)
    intent = decode_intent(append_record(range(table.next_file, table.next_file + 1), codec), {}, IntentLimits())
    began = time.perf_counter()
    applied = await _step(store, table.state, intent)
    table.commits.append(time.perf_counter() - began)
    table.next_file += 1
    began = time.perf_counter()
    root = await read_root(store, TABLE, applied.state.header.version)
    found = await read_definition(store, root.header)
    plan = await plan_scan(store, root, found, PruningFilter.of(None, found))
    assert sum(1 for _ in plan.tasks()) == root.header.totals.data_files
    table.plans.append(time.perf_counter() - began)
    table.state = applied.state


def _vectors_of(numbers: Iterable[int]) -> Intent:
    vectors = tuple(
        AddedVector(
            location=f"data/vectors-{number // 100}.puffin",
            offset=4 + 60 * (number % 100),
            size_in_bytes=50,
            file_size_in_bytes=9_000,
            cardinality=1,
            referenced_file=f"data/{uuid.UUID(int=number)}.parquet",
        )
        for number in numbers
    )
    return Intent(
        intent_id=f"vectors-{vectors[0].referenced_file}", table=TABLE, kind=IntentKind.ROW_DELTA, add_vectors=vectors
    )


async def _step(store: ObjectStore, state: TableState, intent: Intent) -> Applied:
    version = state.header.version + 1
    record = Record(LogPosition(LOG, 0, version), intent, 1_000)
    stamp = Stamp(CommitId(f"{version:032x}"), "bench", 1_700_000_000_000 + version)
    fetched = FetchedObjects()
    while True:
        found = apply_batch(state, TABLE, [record], fetched, stamp, acknowledged={(LOG, 0): version})
        if not isinstance(found, Needs):
            break
        fetched = FetchedObjects(dict.fromkeys(found, BitMap64([1])))
    assert isinstance(found, Applied), found
    _check(found.verdicts)
    await store.put_if_absent(root_key(TABLE, version), found.body)
    return found


def _check(verdicts: Sequence[object]) -> None:
    for verdict in verdicts:
        if getattr(verdict, "code", None) is not None:
            raise RuntimeError(f"the benchmark's own intent came to {verdict}")
