"""The content of the stored lakes: tables that use what the format has, and the facts to compare them with.

Owns: the tables, and reading a lake's rows as JSON. Does not own: where a lake is (`make`), unpacking (`stored_lake`).
Invariants: only public names and maintenance by hand, so that the program runs with later versions too; every value
has one form in JSON.
"""

from __future__ import annotations

import datetime
import json
import os
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.client.producer import Receipt
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.hosting.rights import rights_of
from rootline.schemas.client_commits import CLIENT, CLIENT_WRITER_PREFIX, ClientCommit
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, EqualityDeleteFile, Intent, IntentKind, RemovedFile
from rootline.schemas.parts.progress import ClientSnapshot
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.kinds import BY_HAND, maintain

TRIPS: Final = "shop.trips"
"""Partitioned by two specs, its columns changed; leaves, vectors, an equality delete, tags, a restore."""
COMPACTED: Final = "shop.compacted"
"""Its data files, leaves and vectors compacted; old versions expired, an orphan condemned."""
REPLACED: Final = "shop.replaced"
"""Emptied and given other columns in one commit."""
AGAIN: Final = "shop.again"
"""A table of this name was dropped before, and purged."""
DROPPED: Final = "shop.dropped"
BROUGHT_BACK: Final = "shop.brought-back"
"""Dropped, and restored."""
TYPES: Final = "shop.types"
"""A column of each type that has bounds, nested ones, and a partition by each transform."""
FEED: Final = "shop.feed"
"""Intents of many writers, with rejections. Its files do not exist: only the metadata is of interest."""
STUCK: Final = "shop.stuck"
"""On Kafka: its root was damaged for a while, so its newest intents are parked."""
PAUSED: Final = "shop.paused"
"""On Kafka: paused, with an intent that waits."""
VIEW: Final = "shop.by_city"
TABLES: Final = (TRIPS, COMPACTED, REPLACED, AGAIN, BROUGHT_BACK, TYPES)
"""Those with rows."""
WRITERS: Final = 300
"""So many that the ledger does not fit into the header."""
REJECTED: Final = 120
"""So many that the outcomes of one batch do not fit into the header."""
ORPHAN: Final = "shop/compacted/data/6c1f3a52-8f1e-4d0b-9a55-0d6d5f3a7c10.parquet"

PutObject = Callable[[str, bytes], None]
"""Store an object under a key, dated forty days ago."""


@dataclass(frozen=True)
class Told:
    """An intent as it was sent, and its verdict."""

    intent: Intent
    verdict: Verdict


def trips(first: int, count: int = 6) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": [("Oslo", "Rome", "Lima")[number % 3] for number in ids],
            "km": pa.array([None if number % 5 == 4 else number * 1.5 for number in ids], pa.float32()),
            "day": pa.array([datetime.date(2024, 1, 1 + number % 28) for number in ids]),
        }
    )


def typed(first: int, count: int = 4) -> pa.Table:
    ids = range(first, first + count)
    moments = [datetime.datetime(2024, 3, 1 + number % 28, number % 24, 30, 0, 1000, datetime.UTC) for number in ids]
    return pa.table(
        {
            "flag": [number % 2 == 0 for number in ids],
            "i": pa.array(ids, pa.int32()),
            "n": pa.array([2**40 + number for number in ids], pa.int64()),
            "f": pa.array([number / 4 for number in ids], pa.float32()),
            "d": pa.array([-number / 8 for number in ids], pa.float64()),
            "price": pa.array([Decimal(number * 5 - 9).scaleb(-2) for number in ids], pa.decimal128(9, 2)),
            "day": pa.array([moment.date() for moment in moments]),
            "clock": pa.array([moment.time() for moment in moments], pa.time64("us")),
            "local": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
            "moment": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "text": [None if number % 4 == 3 else f"Ä{number}" for number in ids],
            "bytes": pa.array([bytes([number, 255]) for number in ids], pa.binary()),
            "fixed": pa.array([bytes([number]) * 4 for number in ids], pa.binary(4)),
            "place": [{"x": number, "y": None if number % 2 else number / 2} for number in ids],
            "list": [[number, None] if number % 2 else [] for number in ids],
            "map": pa.array([[("k", number)] for number in ids], pa.map_(pa.string(), pa.int64())),
        }
    )


def fill(lake: Lake, warehouse: str, log: str | None, put: PutObject) -> dict[str, Any]:
    """Make all tables. The facts are the verdicts that were told."""

    def maintained(table: str, kind: str) -> None:
        _maintained(lake, warehouse, log, table, kind)

    _make_trips(lake, maintained, put)
    _make_compacted(lake, maintained, put)
    _make_names(lake)
    types = lake.create_table(
        TYPES,
        typed(0).schema,
        partition_by=["bucket(4, n)", "truncate(2, text)", "month(moment)"],
        sort_by=["-i"],
        properties={"rootline.expire": "false"},
    )
    types.append(typed(0))
    types.append(typed(4))
    types.delete_where("i = 2")
    maintained(TYPES, "flush")
    return {"told": [{"intent": stored(told.intent), "verdict": stored(told.verdict)} for told in _feed(lake)]}


def _make_trips(lake: Lake, maintained: Callable[[str, str], None], put: PutObject) -> None:
    table = lake.create_table(
        TRIPS, trips(0).schema, partition_by=["city"], sort_by=["-day", "id"], properties={"rootline.expire": "false"}
    )
    for first in (0, 6, 12):
        table.append(trips(first))
    table.tag("first-three")
    table.delete_where("km is null")
    maintained(TRIPS, "flush")
    table.overwrite(trips(100), where="city = 'Lima'")
    with table.alter() as change:
        change.add_column("note", "string", "a remark", default="none")
        change.rename_column("km", "distance")
        change.update_column("distance", "double")
    with table.alter() as change:
        change.drop_partition_field("city").add_partition_field("bucket(4, id)").add_partition_field("month(day)")
    evolved = trips(200).rename_columns(["id", "city", "distance", "day"]).append_column("note", pa.array(["é"] * 6))
    evolved = evolved.set_column(2, "distance", evolved["distance"].cast(pa.float64()))
    table.append(evolved)
    table.delete_where("id in (1, 201)")
    table.tag("month-end", version=3)
    _delete_equal(table, lake, put, "id = 202")
    maintained(TRIPS, "flush")
    table.restore(tag="first-three")  # its columns are those of that time, too
    table = lake.table(TRIPS)
    table.append(trips(300))
    with table.alter() as change:
        change.drop_column("km")
        change.set_properties({"owner": "tests"})
    table.untag("month-end")
    table.tag("latest")
    table.delete_where("id = 7")


def _delete_equal(table: TableHandle, lake: Lake, put: PutObject, where: str) -> None:
    """Delete the rows that match by an equality delete of their ids, as other Iceberg writers do."""
    files = write_files(table.scan(where=where).to_arrow(), table.definition(), iter(uuid.uuid4, None))
    for written in files:
        put(f"{table.name.replace('.', '/')}/{written.data_file.location}", written.body)
    deletes = tuple(
        EqualityDeleteFile(**written.data_file.model_dump(exclude={"equality_ids", "sort_order_id"}), equality_ids=(1,))
        for written in files
    )
    intent = Intent(
        intent_id=f"delete {where}", table=table.name, kind=IntentKind.ROW_DELTA, add_equality_deletes=deletes
    )
    with lake.producer() as producer:
        verdict = producer.publish(intent).verdict()
    assert verdict.kind is VerdictKind.COMMITTED, verdict


def _make_compacted(lake: Lake, maintained: Callable[[str, str], None], put: PutObject) -> None:
    properties = {"rootline.expire.all-versions": "3", "rootline.expire.all-seconds": "1"}
    properties |= {"rootline.expire.by-minute-seconds": "1", "rootline.expire.by-hour-seconds": "1"}
    table = lake.create_table(COMPACTED, trips(0).schema, properties=properties)
    for first in range(0, 24, 4):
        table.append(trips(first, 4))
    table.tag("kept", version=2)
    maintained(COMPACTED, "flush")
    table.delete_where("id in (3, 11)")
    maintained(COMPACTED, "flush")
    table.append(trips(24, 4))
    maintained(COMPACTED, "flush")
    table.delete_where("id in (5, 25)")
    maintained(COMPACTED, "compact-vectors")
    maintained(COMPACTED, "compact")
    table.rewrite(where="id < 12")
    _delete_equal(table, lake, put, "id = 26")
    maintained(COMPACTED, "convert")
    maintained(COMPACTED, "compact-data")
    put(ORPHAN, parquet(trips(900, 2)))
    maintained(COMPACTED, "expire")
    maintained(COMPACTED, "sweep")  # a first one raises the horizon, which the orphan is older than
    maintained(COMPACTED, "sweep")
    table.append(trips(28, 4))


def _make_names(lake: Lake) -> None:
    replaced = lake.create_table(REPLACED, trips(0).schema, partition_by=["city"])
    replaced.append(trips(0))
    replaced.replace(
        pa.table({"id": pa.array([1, 2], pa.int64()), "other": ["a", None]}),
        schema={"id": "long", "other": "string"},
        partition_by=[],
    )
    for name in (AGAIN, DROPPED, BROUGHT_BACK):
        lake.create_table(name, trips(0).schema).append(trips(0, 3))
    lake.drop_table(AGAIN, purge=True)
    lake.create_table(AGAIN, {"id": "long", "new": "string"}).append(pa.table({"id": [5], "new": ["n"]}))
    lake.drop_table(DROPPED)
    lake.drop_table(BROUGHT_BACK)
    lake.restore_table(BROUGHT_BACK).append(trips(3, 2))
    view = lake.create_view(
        VIEW, "SELECT city, count(*) AS n FROM trips GROUP BY city", schema={"city": "string", "n": "long"}
    )
    view.replace({"spark": "SELECT 2", "trino": "SELECT two"})
    view.set_properties({"comment": "how many"})


def append(name: str, records: int, *, again: str = "", table: str = FEED) -> Intent:
    """Add a file that does not exist."""
    files = [DataFile(location=f"data/{name}.parquet", record_count=records, file_size_in_bytes=100)]
    return Intent(intent_id=f"append-{name}{again}", table=table, kind=IntentKind.APPEND, add_data_files=files)


def remove(name: str) -> Intent:
    removed = RemovedFile(location=f"data/{name}.parquet", content_type=ContentType.DATA)
    return Intent(intent_id=f"remove-{name}", table=FEED, kind=IntentKind.REMOVE, remove_files=[removed])


def of_a_client() -> Intent:
    """An append as the REST catalog publishes it for a streaming job of Spark."""
    words = {"spark.sql.streaming.queryId": "q-1", "spark.sql.streaming.epochId": "7"}
    commit = ClientCommit((ClientSnapshot(7_001, "append"),), "ab" * 32, {"spark q-1": tuple(words)})
    of_spark = {"writer_id": f"{CLIENT_WRITER_PREFIX}7001", "writer_sequence": 0, "read_sequence_number": 1}
    return append("of-spark", 5).model_copy(update={**of_spark, "summary": {**words, CLIENT: commit.to_json()}})


def _feed(lake: Lake) -> list[Told]:
    lake.create_table(FEED, {"id": "long"}, properties={"rootline.expire": "false"})

    def publish(number: int) -> Receipt:
        with lake.producer(f"writer-{number:03}-of-a-name-that-is-not-short") as producer:
            return producer.publish(append(f"w{number:03}", number + 1), writer_sequence=7)

    with ThreadPoolExecutor(16) as pool:
        receipts = list(pool.map(publish, range(WRITERS)))
    with lake.producer() as producer:
        producer.publish(of_a_client()).verdict()
    intents = (append("first", 3), append("second", 4), remove("first"), remove("none"), append("second", 4, again="!"))
    with lake.producer("loader") as producer:
        receipts += [producer.publish(intent, writer_sequence=number) for number, intent in enumerate(intents)]
        told = [Told(receipt.intent, receipt.verdict()) for receipt in receipts]
    return told[-len(intents) - 3 :]


def publish_rejected(lake: Lake) -> None:
    """Publish so many intents to reject that their outcomes, decided in one batch, do not fit into the header."""
    with lake.producer("cleaner") as producer:
        for number in range(REJECTED):
            producer.publish(remove(f"a-file-that-was-never-there-{number:03}"), writer_sequence=number)


def decide_all(lake: Lake, number: int = 0) -> None:
    """Wait until everything that was published before is decided: one more intent is."""
    with lake.producer("last") as producer:
        verdict = producer.publish(append(f"last-{number}", 1), writer_sequence=number).verdict()
    assert verdict.kind is VerdictKind.COMMITTED, verdict


def undecided() -> list[Intent]:
    """What is published when no coordinator runs."""
    return [append("third", 5), append("first", 3, again="?"), append("third", 5, again="?"), remove("second")]


def publish_undecided(lake: Lake) -> list[Any]:
    with lake.producer("loader") as producer:
        published = [producer.publish(intent, writer_sequence=10 + at).intent for at, intent in enumerate(undecided())]
    return [stored(intent) for intent in published]


def facts_of(lake: Lake) -> dict[str, Any]:
    """All rows of all versions that can be read, and the other facts."""
    contents: dict[str, int] = {}
    versions: dict[str, dict[int, int]] = {}
    for table in TABLES:
        handle = lake.table(table)
        found = versions[table] = {}
        for header in handle.history(limit=1_000, everything=True):
            rows = json.dumps(rows_of(handle, header.version))
            found[header.version] = contents.setdefault(rows, len(contents))
    return {
        "contents": [json.loads(rows) for rows in contents],
        "versions": versions,
        "tables": lake.list_tables(),
        "tags": {table: lake.table(table).tags() for table in TABLES},
        "view": lake.view(VIEW).metadata().model_dump(mode="json"),
        "files": files_of(lake.table(FEED)),
    }


def files_of(table: TableHandle) -> list[str]:
    """The locations of the live data files."""
    return sorted(task.location for task in table.scan().plan())


def rows_of(table: TableHandle, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a version as JSON, in one order."""
    rows = [as_json(row) for row in table.scan(version=version).to_arrow().to_pylist()]
    return sorted(rows, key=json.dumps)


def as_json(value: Any) -> Any:
    """A value that JSON has; equal values have equal ones."""
    if isinstance(value, Mapping):
        return {key: as_json(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(held) for held in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal | datetime.date | datetime.time):
        return str(value)
    return value


def stored(held: Intent | Verdict) -> Any:
    """As JSON, in the words of the schema."""
    return json.loads(held.model_dump_json(exclude_defaults=True))


def parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def put_in_folder(folder: Path) -> PutObject:
    """Store objects as files of `folder`."""

    def put(key: str, body: bytes) -> None:
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        date_back(path)

    return put


def date_back(path: Path) -> None:
    """Date a file forty days ago."""
    then_s = path.stat().st_mtime - 40 * 24 * 3600
    os.utime(path, (then_s, then_s))


def _maintained(lake: Lake, warehouse: str, log: str | None, table: str, kind: str) -> None:
    async def operation(session: Session) -> JobOutcome:
        store, environment = session.store, session.environment
        async with rights_of(warehouse, log, store) as rights:
            report = await maintain(
                store, session.log, environment, TableName(table), BY_HAND[kind], dry_run=False, rights=rights
            )
        assert report.outcome is JobOutcome.COMMITTED, (table, kind, report)
        return report.outcome

    lake.holder.run(operation)
