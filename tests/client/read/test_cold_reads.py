"""What a process imports for its first reads: little, because a short program waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.schemas.identifiers import TableName
from rootline.workers.kinds import BY_HAND, maintain
from tests.client.conftest import SCHEMA

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
print(json.dumps([found, sorted(sys.modules)]))
"""
FILTERS = [None, "id >= 2 and id < 4", "carrier = 'UA'", "carrier in ('UA', 'AA') and id in (1, 3)", "delay > 0.0"]


@pytest.fixture
def flushed(lake: Lake, folder: Path) -> Path:
    """The folder of a lake whose table has files in a leaf and in the root, and deleted rows in both."""
    table = lake.create_table("demo.flights", SCHEMA)

    async def flush(session: Session) -> None:
        store, log, environment, name = session.store, session.log, session.environment, TableName(table.name)
        await maintain(store, log, environment, name, BY_HAND["flush"], dry_run=False)

    for number in range(4):
        rows = {"id": [number, number + 10], "carrier": ["UA", "DL"], "delay": [0.5, -1.0]}
        table.append(pa.table(rows, schema=SCHEMA))
        if number == 2:
            table.delete_where("id = 11")
            lake.holder.run(flush)
    table.delete_where("id in (12, 13)")
    lake.close()
    return folder


def test_first_reads_import_no_log_no_coordinator_no_settings_and_no_pandas(flushed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in flushed.rglob("*")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOTLINE_")}
    command = [sys.executable, "-c", PROGRAM, str(flushed), json.dumps(FILTERS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found, modules = json.loads(done.stdout)
    assert found == [4] * 5 + [5, 2, 4, 2, 4] * 2
    assert [name for name in modules if name.startswith(UNNEEDED)] == []
    assert {path: path.stat().st_mtime_ns for path in flushed.rglob("*")} == before
