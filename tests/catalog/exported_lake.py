"""A lake in a folder with a table that has been through everything, and its exports as PyIceberg reads them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from rootline.adapters.open import open_store
from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exporter import ExportedTable, TableExporter
from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.verdict import VerdictKind
from rootline.testing.object_stores import Fault, FaultyObjectStore, Operation
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.kinds import COMPACT, FLUSH, MaintenanceKind, maintain

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])
V2, V3 = FormatVersion.V2, FormatVersion.V3
TABLE = TableName("demo.flights")


def rows(*ids: int) -> pa.Table:
    """Rows with these ids: of UA where even, of AA where odd, of no carrier where divisible by seven."""
    carriers = [None if i % 7 == 0 else ("UA", "AA")[i % 2] for i in ids]
    return pa.table({"id": list(ids), "carrier": carriers, "delay": [i / 2 for i in ids]}, SCHEMA)


class ExportedLake:
    """A table, and its exports by a new exporter or by one that stays; requests are counted."""

    def __init__(self, folder: Path, lake: Lake, **properties: str) -> None:
        self.folder = folder
        self.lake = lake
        self.requests: Counter[Operation] = Counter()
        self.read: list[str] = []
        self.written: list[str] = []
        self.fault: Callable[[Operation, str], Fault | None] = lambda _, __: None
        self.table: TableHandle = lake.create_table(
            TABLE, SCHEMA, partition_by=["carrier", "bucket(4, id)"], properties=properties
        )
        self.exporter = self.fresh()

    @property
    def base_url(self) -> str:
        return f"file://{self.folder}"

    def store(self) -> ObjectStore:
        return FaultyObjectStore(open_store(str(self.folder)), self._noted)

    def fresh(self) -> TableExporter:
        """An exporter that knows nothing."""
        return TableExporter(self.store(), self.base_url)

    def _noted(self, operation: Operation, key: str) -> Fault | None:
        self.requests[operation] += 1
        if operation is Operation.PUT:
            self.written.append(key)
        elif operation is Operation.GET:
            self.read.append(key)
        return self.fault(operation, key)

    def export(
        self, format_version: FormatVersion = V3, version: int | None = None, exporter: TableExporter | None = None
    ) -> ExportedTable:
        """One export; the counters start again from 0."""
        self.requests.clear()
        self.read.clear()
        self.written.clear()
        wanted = None if version is None else Version(version)
        found = asyncio.run((exporter or self.exporter).export(TABLE, format_version, wanted))
        cost = found.cost
        assert (cost.lists, cost.gets, cost.puts) == tuple(
            self.requests[operation] for operation in (Operation.LIST, Operation.GET, Operation.PUT)
        )
        return found

    def opened(self, format_version: FormatVersion = V3, version: int | None = None) -> StaticTable:
        """The export as PyIceberg sees it."""
        return StaticTable.from_metadata(self.export(format_version, version).metadata_location)

    def maintain(self, what: MaintenanceKind) -> None:
        async def work(session: Session) -> None:
            report = await maintain(session.store, session.log, session.environment, TABLE, what, dry_run=False)
            assert report.outcome is JobOutcome.COMMITTED, report

        self.lake.holder.run(work)

    def flush(self) -> None:
        self.maintain(FLUSH)

    def compact(self) -> None:
        self.maintain(COMPACT)

    @property
    def head(self) -> int:
        return self.table.head().version

    def files(self, under: str = "demo/flights/export") -> dict[str, str]:
        """Every object of the exports, with a digest of its bytes."""
        root = self.folder / under
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


def ids_of(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=lambda row: row["id"])


def metadata_of(exported: ExportedTable) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(exported.metadata)
    return found


def long_story(lake: ExportedLake) -> None:
    """Every kind of change; a version for each."""
    table = lake.table
    table.append(rows(*range(20)))
    table.append(rows(*range(20, 30)))
    table.delete_where("id = 3")
    table.overwrite(rows(100, 101), where="id < 3")
    lake.flush()
    table.append(rows(*range(30, 40)))
    table.delete_where("id >= 10 and id < 13")
    table.delete_where("carrier = 'AA' and id < 30")
    lake.flush()
    table.tag("before", version=6)
    table.append(rows(*range(40, 45)))
    lake.flush()
    lake.compact()
    table.restore(version=5)
    table.delete_where("id = 8")
    table.rewrite()
    lake.flush()
    table.append(rows(500))


def delete_by_id(lake: ExportedLake, *ids: int) -> None:
    """Publish an equality delete of the rows with these ids, each in its own partition, as another writer would."""
    definition = lake.table.definition()
    files = []
    for written in write_files(rows(*ids), definition, iter(lambda: uuid.uuid4(), None)):
        fields = written.data_file.model_dump(exclude={"equality_ids"})
        files.append(EqualityDeleteFile(**fields, equality_ids=(1,)))
        place = lake.folder / "demo/flights" / written.data_file.location
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(written.body)
    intent = Intent(
        intent_id=str(uuid.uuid4()),
        table=TABLE,
        table_uuid=definition.table_uuid,
        kind=IntentKind.ROW_DELTA,
        schema_id=definition.current_schema_id,
        add_equality_deletes=tuple(files),
    )
    with lake.lake.producer() as producer:
        verdict = producer.publish(intent).verdict(timeout_s=30)
    assert verdict.kind is VerdictKind.COMMITTED, verdict.message
