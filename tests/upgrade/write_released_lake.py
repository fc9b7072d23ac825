"""Writes the lakes in tests/golden/released: run it with the sources of the released version cb577a9 in `PYTHONPATH`.

Owns: what those lakes hold, and the facts that are stored beside them: the rows of each version, what was told, what
waits for a verdict. Does not own: unpacking them (`released_lake`).
Invariants: only names that cb577a9 has and that are still there; no test runs this file.

`python -m tests.upgrade.write_released_lake WAREHOUSE FACTS [LOG]`, by a clock that is 300 days behind. It prints
`decided` and waits for a line before it publishes what no coordinator is to decide: with a LOG, coordinators of that
version run until then.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import DataFile, Intent, IntentKind, RemovedFile
from rootline.schemas.verdict import Verdict

if TYPE_CHECKING:  # it has moved since
    from rootline.client.producer import Producer, Receipt

FLIGHTS, PLAIN, FILES = "demo.flights", "demo.plain", "demo.files"


def rows(first: int, count: int = 6) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "carrier": [("UA", "AA", "DL")[number % 3] for number in ids],
            "delay": pa.array([None if number % 5 == 4 else number * 1.5 for number in ids], pa.float64()),
            "day": pa.array([datetime.date(2020, 1, 1 + number % 28) for number in ids]),
        }
    )


def ids(lake: Lake, table: str, version: int | None = None) -> list[int]:
    return sorted(lake.table(table).scan(version=version).to_arrow()["id"].to_pylist())


def append(table: str, name: str, records: int, again: str = "") -> Intent:
    """Files that are not there: nothing looks at them before a reader does."""
    location = f"{table.replace('.', '/')}/data/{name}.parquet"
    files = [DataFile(location=location, record_count=records, file_size_in_bytes=100)]
    return Intent(intent_id=f"append-{name}{again}", table=table, kind=IntentKind.APPEND, add_data_files=files)


def remove(table: str, name: str) -> Intent:
    gone = RemovedFile(location=f"{table.replace('.', '/')}/data/{name}.parquet", content_type=ContentType.DATA)
    return Intent(intent_id=f"remove-{name}", table=table, kind=IntentKind.REMOVE, remove_files=[gone])


def sent(producer: Producer, intent: Intent, sequence: int) -> Receipt:
    """Published as the writer's number `sequence`."""
    return producer.publish(intent, writer_sequence=sequence)


def stored(held: Intent | Verdict) -> Any:
    """As JSON, in the words of the schema."""
    return json.loads(held.model_dump_json(exclude_defaults=True))


def decided(lake: Lake) -> list[dict[str, Any]]:
    """What was told, with the intent as it was sent."""
    told = []
    intents = (append(FILES, "first", 3), append(FILES, "second", 4), remove(FILES, "first"), remove(FILES, "none"))
    with lake.producer("loader") as producer:
        for sequence, intent in [*enumerate(intents), (0, intents[0])]:
            receipt = sent(producer, intent, sequence)
            told.append({"intent": stored(receipt.intent), "verdict": stored(receipt.verdict())})
    return told


def run(warehouse: str, log: str | None, *words: str) -> None:
    """The command line."""
    program = (sys.executable, "-c", "from rootline.cli.app import main; main()")
    where = ("--warehouse", warehouse, *(() if log is None else ("--log", log)))
    done = subprocess.run([*program, *words, *where], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def main(warehouse: str, facts_file: str, log: str | None = None) -> None:
    facts: dict[str, Any] = {}
    with connect(warehouse, log=log) as lake:
        flights = lake.create_table(FLIGHTS, schema=rows(0).schema, partition_by=["carrier"])
        for first in (0, 6, 12):
            flights.append(rows(first))
        flights.delete_where("delay is null")
        flights.overwrite(rows(100), where="carrier = 'DL'")
        plain = lake.create_table(PLAIN, schema=rows(0).schema)
        for first in (0, 6):
            plain.append(rows(first))
        plain.rewrite()
        lake.create_table(FILES, schema=rows(0).schema)
        facts["told"] = decided(lake)
        facts["export"] = flights.export().metadata_location
        facts["rows"] = {
            table: [ids(lake, table, version) for version in range(versions)]
            for table, versions in ((FLIGHTS, 6), (PLAIN, 4))
        }
    for words in (("maintenance", "run", "flush", FLIGHTS), ("tag", FLIGHTS, "kept", "--version", "3")):
        run(warehouse, log, *words)
    print("decided", flush=True)
    sys.stdin.readline()
    pending = [
        (append(FILES, "third", 5), 10),
        (append(FILES, "second", 4, again="1"), 1),
        (append("demo.none", "first", 1, again="1"), 0),
        (append(FILES, "second", 4, again="2"), 11),
        (remove(FILES, "second"), 12),
    ]
    with connect(warehouse, log=log, coordinator="elsewhere") as lake, lake.producer("loader") as producer:
        facts["pending"] = [stored(sent(producer, intent, sequence).intent) for intent, sequence in pending]
    Path(facts_file).write_text(json.dumps(facts, indent=1) + "\n")
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
