"""What `rootline.verify.files` costs: a commit's latency, and commits of 32 writers, with it and without.

Owns: the measurement on S3, beside us and 60 ms away. Does not own: the looks (`rootline.storage.rows.file_footers`).
Invariants: both tables are of one coordinator on one store; samples alternate; every file is stored before its intent.
"""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.far_services import ADDED_MS, far_store
from benchmarks.measure import Result, Spread, interleaved, load_average
from benchmarks.own_coordinator import coordinating, require_commit
from rootline.adapters.memory import MemoryIntentLog
from rootline.client.create_drop import build_definition
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.object_keys import key_of
from rootline.tree.proof.file_proof import FOOTER, VERIFY_PROPERTY
from tests.services.s3_service import S3Service, running_s3

SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_VERIFY_SAMPLES", "60"))
_FAR_SAMPLES: Final = 25
_WARM_UP: Final = 5
_WRITERS: Final = 32
_ROUNDS: Final = 8
_ROWS: Final = 1_000


def measure() -> list[Result]:
    """Measure on a store beside us, then on one that is far away."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as data, running_s3(Path(data)) as near:
        results = asyncio.run(_on(near, "S3", SAMPLES))
    with far_store() as far:
        return [*results, *asyncio.run(_on(far, f"S3 +{ADDED_MS} ms", _FAR_SAMPLES))]


@dataclass(slots=True)
class _Table:
    """A table, and as many stored files as it will be asked to add."""

    store: ObjectStore
    log: MemoryIntentLog
    name: TableName
    body: bytes
    added: int = 0

    async def create(self, verify: str) -> None:
        table = build_definition(
            pa.schema([pa.field(f"c{at}", pa.int64()) for at in range(20)]),
            table_uuid=uuid.uuid4(),
            properties={VERIFY_PROPERTY: verify},
        )
        text = table.to_json().decode()
        await self._publish(Intent(intent_id="create", table=self.name, kind=IntentKind.CREATE, definition=text))

    async def fill(self, count: int) -> None:
        slots = asyncio.Semaphore(_WRITERS)

        async def put(number: int) -> None:
            async with slots:
                await self.store.put_if_absent(key_of(self.name, f"data/{number}.parquet"), self.body)

        await asyncio.gather(*map(put, range(count)))

    async def commit(self) -> float:
        file = DataFile(location=f"data/{self.added}.parquet", record_count=_ROWS, file_size_in_bytes=len(self.body))
        self.added += 1
        began = time.perf_counter()
        await self._publish(
            Intent(intent_id=uuid.uuid4().hex, table=self.name, kind=IntentKind.APPEND, add_data_files=(file,))
        )
        return time.perf_counter() - began

    async def commits_per_s(self) -> float:
        """With all writers in a closed loop."""

        async def writer() -> None:
            for _ in range(_ROUNDS):
                await self.commit()

        began = time.perf_counter()
        await asyncio.gather(*(writer() for _ in range(_WRITERS)))
        return _WRITERS * _ROUNDS / (time.perf_counter() - began)

    async def _publish(self, intent: Intent) -> None:
        position = await self.log.publish(self.name.encode(), encode_intent(intent))
        require_commit(await self.log.wait_verdict(position, timeout_s=60))


async def _on(service: S3Service, where: str, samples: int) -> list[Result]:
    store = service.store()
    sink = io.BytesIO()
    pq.write_table(pa.table({f"c{at}": range(_ROWS) for at in range(20)}), sink)
    try:
        async with coordinating(store) as log:
            tables = {
                verify: _Table(store, log, TableName(f"bench.{verify}"), sink.getvalue()) for verify in ("none", FOOTER)
            }
            for verify, table in tables.items():
                await table.create(verify)
                await table.fill(samples + _WARM_UP + 2 * _WRITERS * _ROUNDS)
            plain, verified = tables["none"], tables[FOOTER]
            ours, theirs = await interleaved(
                lambda number: verified.commit(), lambda number: plain.commit(), samples, _WARM_UP
            )
            rates: dict[str, list[float]] = {"none": [], FOOTER: []}
            for _ in range(2):
                for verify, table in tables.items():
                    rates[verify].append(await table.commits_per_s())
    finally:
        await store.close()
    return _results(where, ours, theirs, rates)


def _results(where: str, ours: Spread, theirs: Spread, rates: dict[str, list[float]]) -> list[Result]:
    load = load_average()
    with_looks, without = max(rates[FOOTER]), max(rates["none"])
    return [
        Result(
            "–",
            f"commit of a file whose footer is looked at, {where}",
            ours,
            theirs,
            "the same without a look",
            ours.median / theirs.median,
            "–",
            load,
        ),
        Result(
            "–",
            f"intents/s of {_WRITERS} writers whose files are looked at, {where}",
            None,
            None,
            "the same without a look",
            with_looks / without,
            "–",
            load,
            f"{with_looks:,.0f} against {without:,.0f} intents/s, the better of two rounds of each",
        ),
    ]
