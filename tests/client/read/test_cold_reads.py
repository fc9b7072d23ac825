"""What a process imports for its first reads, or its first commit: little, because a short program waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.connect import connect
from rootline.schemas.identifiers import TableName
from rootline.workers.kinds import BY_HAND, maintain

UNNEEDED = (
    "fastavro",
    "pandas",
    "prometheus_client",
    "pyarrow.orc",
    "pydantic_settings",
    "rich",
    "rootline.coordinator",
    "rootline.workers",
    "sqlite3",
    "structlog",
)
PROGRAM = """
import json, sys
import rootline

folder, filters = sys.argv[1], json.loads(sys.argv[2])
with rootline.connect(folder, coordinator="elsewhere") as lake:
    table = lake.table("demo.flights")
    found = [len(table.scan(where).plan()) for where in filters]
    found += [len(table.scan(where).to_arrow()) for where in filters]
    found += [table.scan(where).count() for where in filters]
    found += [len(table.scan(columns=json.loads(sys.argv[3])).to_arrow())]
print(json.dumps([found, sorted(sys.modules)]))
"""
COMMIT = """
import json, sys
import rootline

with rootline.connect(sys.argv[1]) as lake:
    version = lake.create_table("demo.flights", {"id": "long"}).append([{"id": 1}]).version
print(json.dumps([version, sorted(sys.modules)]))
"""
APPEND = """
import json, sys
import rootline

with rootline.connect(sys.argv[1]) as lake:
    version = lake.table("demo.flights").append([{"id": 2}]).version
    print(json.dumps([version, sorted(sys.modules)]))
"""
FILTERS = {
    None: 5,
    "id >= 2 and id < 4": 2,
    "carrier = 'UA'": 4,
    "carrier in ('UA', 'AA') and id in (1, 3)": 2,
    "delay > 0.0": 4,
    "ratio > 0.1": 4,
    "ratio in (0.25, 0.0)": 4,
    "price >= 1.50 and price < 9.00": 3,
    "price in (98.00, 1.50)": 1,
    "day > '2013-01-02'": 3,
    "day in ('2013-01-03', '2013-12-31')": 1,
    "at > '2013-01-02 00:00:00'": 3,
    "id > ratio": 4,
}
"""Filter → the number of rows. It is decided by rows of each file."""

COLUMNS = ["id", "_file", "_pos", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number"]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("delay", pa.float64()),
        ("ratio", pa.float32()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
    ]
)


def _rows(number: int) -> pa.Table:
    columns = {
        "id": [number, number + 10],
        "carrier": ["UA", "DL"],
        "delay": [0.5, -1.0],
        "ratio": [0.25, -2.0],
        "price": [Decimal(number) + Decimal("0.50"), Decimal("99.25")],
        "day": [date(2013, 1, 1 + number), date(2014, 1, 1)],
        "at": [datetime(2013, 1, 1 + number), datetime(2014, 1, 1)],
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def flushed(lake: Lake, folder: Path) -> Path:
    """The folder of a lake whose table has files in a leaf and in the root, and deleted rows in both."""
    table = lake.create_table("demo.flights", SCHEMA)

    async def flush(session: Session) -> None:
        store, log, environment, name = session.store, session.log, session.environment, TableName(table.name)
        await maintain(store, log, environment, name, BY_HAND["flush"], dry_run=False)

    for number in range(4):
        table.append(_rows(number))
        if number == 2:
            table.delete_where("id = 11")
            lake.holder.run(flush)
    table.delete_where("id in (12, 13)")
    lake.close()
    return folder


def test_first_reads_import_no_log_no_coordinator_no_settings_and_no_pandas(flushed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in flushed.rglob("*")}
    found, modules = _run(PROGRAM, str(flushed), json.dumps([*FILTERS]), json.dumps(COLUMNS))
    assert found == [4] * len(FILTERS) + [*FILTERS.values()] * 2 + [8]
    assert [name for name in modules if name.startswith(UNNEEDED)] == []
    assert {path: path.stat().st_mtime_ns for path in flushed.rglob("*")} == before


def test_a_first_commit_imports_no_renderer_of_log_lines(tmp_path: Path) -> None:
    found, modules = _run(COMMIT, str(tmp_path))
    assert found == 1
    assert {"rich", "structlog"}.isdisjoint(modules)


def test_a_first_append_imports_no_coordinator_while_another_process_hosts_the_lake(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        lake.create_table("demo.flights", {"id": "long"}).append([{"id": 1}])
        version, modules = _run(APPEND, str(tmp_path))
    assert version == 2
    hosting = ("prometheus_client", "pydantic_settings", "rootline.coordinator", "rootline.workers")
    assert [name for name in modules if name.startswith((*hosting, "rootline.tree.commit", "pyroaring"))] == []


def _run(program: str, *arguments: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOTLINE_")}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
