"""A stream shows each commit once: rows that come, or all changes of rows; without Spark, driven as Spark drives it."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from rootline.spark.data_source import RootlineDataSource
from rootline.workers.app import WorkerService
from rootline.workers.jobs.expiry_job import ExpiryJob
from rootline.workers.jobs.job import JobContext
from rootline.workers.settings import WorkerSettings
from tests.spark.stream_of_changes import Query, Rows, ids, kinds, upsert

THINNED = ("rootline.expire.by-minute-seconds", "rootline.expire.by-hour-seconds")
COLUMNS = {"id": "long not null", "name": "string"}


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    """Rows 0 to 2 in version 1, 3 to 5 in version 2."""
    made = lake.create_table("demo.rows", COLUMNS)
    with made.alter() as change:
        change.set_identifier_fields("id")
    put(made, 0, 1, 2)
    put(made, 3, 4, 5)
    return made


def put(table: TableHandle, *ids_: int, name: str = "a") -> int:
    return table.append(rows_of(*ids_, name=name)).version


def rows_of(*ids_: int, name: str = "a") -> pa.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    return pa.table({"id": ids_, "name": [name] * len(ids_)}, schema)


def test_a_stream_begins_with_all_rows_and_goes_on_with_each_commit(table: TableHandle, folder: Path) -> None:
    query = Query(folder)
    assert [ids(rows) for rows in query.batches()] == [[0, 1, 2, 3, 4, 5]]
    assert query.batch() is None
    put(table, 6)
    put(table, 7)
    assert ids(query.batch() or []) == [6, 7]
    query.begun()
    assert query.batch() is None, "a restart begins where the checkpoint ends"
    put(table, 8)
    assert ids(query.batch() or []) == [8]
    assert ids(query.rows(-2, -1)) == [8], "a replayed batch has the same rows"
    query.begun()
    assert ids(query.rows(-3, -1)) == [6, 7, 8]


def test_maintenance_shows_as_nothing(lake: Lake, table: TableHandle, folder: Path) -> None:
    query = Query(folder, {"changes": "true"})
    query.batches()
    assert table.rewrite() != ()
    table.tag("here")

    async def flush(session: Session) -> None:
        worker = WorkerService(store=session.store, log=session.log)
        await worker.look_once()
        await worker.carry_out_one()

    lake.holder.run(flush)
    assert [rows for batch in query.batches() for rows in batch] == []
    put(table, 6)
    assert ids(query.batch() or []) == [6]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"maxFilesPerTrigger": "1"}, [[0, 1, 2], [3, 4, 5], [6], [7, 8, 9], [10]]),
        ({"maxFilesPerTrigger": "2"}, [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9], [10]]),
        ({"maxRowsPerTrigger": "4"}, [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9], [10]]),
        ({"maxBytesPerTrigger": "1"}, [[0, 1, 2], [3, 4, 5], [6], [7, 8, 9], [10]]),
        ({}, [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]),
    ],
)
def test_a_trigger_takes_no_more_than_it_may_and_one_commit_at_least(
    table: TableHandle, folder: Path, limit: dict[str, str], expected: list[list[int]]
) -> None:
    query = Query(folder, limit)
    query.offsets.append(json.dumps(query.reader.initialOffset()))
    put(table, 6)
    put(table, 7, 8, 9)
    put(table, 10)
    found = [rows for rows in map(ids, query.batches()) if rows]
    assert sorted(found[:2]) + found[2:] == expected or found == expected
    start = query.reader.initialOffset()
    assert query.reader.latestOffset(start, ReadAllAvailable())["files"] == -1, "no limit where Spark says so"


def test_a_query_that_takes_what_is_there_now_ends_with_it(table: TableHandle, folder: Path) -> None:
    query = Query(folder, {"maxFilesPerTrigger": "1", "startingVersion": "0"})
    query.reader.prepareForTriggerAvailableNow()
    put(table, 6)
    assert [rows for batch in query.batches() if (rows := ids(batch))] == [[0, 1, 2], [3, 4, 5]]
    query.begun()
    assert [ids(batch) for batch in query.batches()] == [[6]]


def test_a_stream_starts_where_it_is_told_to(table: TableHandle, folder: Path) -> None:
    first = table.head().version
    at_ms = table.head().snapshot.timestamp_ms
    put(table, 6)

    def found(**options: Any) -> list[int]:
        return ids([row for batch in Query(folder, options).batches() for row in batch])

    assert found(startingVersion="0") == [0, 1, 2, 3, 4, 5, 6]
    assert found(startingVersion=str(first)) == [3, 4, 5, 6]
    assert found(startingVersion=str(first + 1)) == [6]
    assert found(startingVersion="latest") == []
    assert found(startingTimestamp=str(at_ms)) == [3, 4, 5, 6]
    assert found(startingTimestamp=str(at_ms + 1)) == [6]
    assert found(startingTimestamp="2001-01-01T00:00:00Z") == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(Invalid, match="version 99 does not exist"):
        found(startingVersion="99")


def test_changes_tell_inserts_deletes_and_both_images_of_updates(lake: Lake, table: TableHandle, folder: Path) -> None:
    query = Query(folder, {"changes": "true"})
    assert kinds(query.batch() or []) == [("insert", number) for number in range(6)]
    table.delete_where("id = 1")
    assert kinds(query.batch() or []) == [("delete", 1)]
    table.overwrite(rows_of(3, 6, name="b"), where="id in (3, 4)")
    changed = query.batch() or []
    assert kinds(changed) == [("delete", 4), ("insert", 6), ("update_postimage", 3), ("update_preimage", 3)]
    assert {row["_change_type"]: row["name"] for row in changed if row["id"] == 3} == {
        "update_preimage": "a",
        "update_postimage": "b",
    }
    upsert(lake, folder, table, rows_of(0, 3, 9, name="c"))
    changed = query.batch() or []
    assert kinds(changed) == [
        ("insert", 9),
        ("update_postimage", 0),
        ("update_postimage", 3),
        ("update_preimage", 0),
        ("update_preimage", 3),
    ]
    assert {row["_commit_version"] for row in changed} == {table.head().version}
    assert {round(row["_commit_timestamp"].timestamp() * 1000) for row in changed} == {
        table.head().snapshot.timestamp_ms
    }
    table.restore(2)
    assert kinds(query.batch() or [])[0][0] in ("delete", "insert")


def test_updates_are_told_though_their_identifier_is_not_among_the_columns(table: TableHandle, folder: Path) -> None:
    query = Query(folder, {"changes": "true", "columns": "name", "startingVersion": "latest"})
    query.batches()
    table.overwrite(rows_of(3, name="b"), where="id = 3")
    changed = query.batch() or []
    assert sorted((row["_change_type"], row["name"]) for row in changed) == [
        ("update_postimage", "b"),
        ("update_preimage", "a"),
    ]
    assert set(changed[0]) == {"name", "_change_type", "_commit_version", "_commit_timestamp"}


def test_a_stream_of_appended_rows_fails_where_rows_were_deleted_unless_they_are_left_out(
    table: TableHandle, folder: Path
) -> None:
    strict, lax = Query(folder), Query(folder, {"onDeletedRows": "skip"})
    for query in (strict, lax):
        query.batches()
    table.overwrite(rows_of(3, name="b"), where="id in (3, 4)")
    with pytest.raises(Invalid, match="stream-rows-deleted") as raised:
        strict.batch()
    assert raised.value.code == "stream-rows-deleted"
    found = lax.batch() or []
    assert [(row["id"], row["name"]) for row in found] == [(3, "b")]


def test_a_version_that_expired_unread_is_an_error_and_never_the_nearest_one(
    lake: Lake, table: TableHandle, folder: Path
) -> None:
    late, done, early = (Query(folder, options) for options in ({"startingVersion": "0"}, {}, {}))
    done.batches()
    early.offsets.append(json.dumps(early.reader.initialOffset()))
    with table.alter() as change:
        change.set_properties({"rootline.expire": "true", "rootline.expire.all-versions": "2"})
        change.set_properties(dict.fromkeys(("rootline.expire.all-seconds", *THINNED), "1"))
    late.offsets.append(json.dumps(late.reader.initialOffset()))
    for number in range(6, 12):
        put(table, number)

    async def expire(session: Session) -> None:
        settings = WorkerSettings()
        context = JobContext.of(session.store, session.log, session.environment, settings, now=True)
        await ExpiryJob(context).run(table.name)

    lake.holder.run(expire)
    oldest = table.head().versions.oldest
    assert oldest > 4
    for query in (late, done, early):
        with pytest.raises(Invalid, match="start a new query") as raised:
            query.batch()
        assert raised.value.code == "stream-version-expired"
    with pytest.raises(Invalid, match="stream-version-expired"):
        Query(folder, {"startingVersion": str(oldest - 1)}).batch()
    assert ids([row for batch in Query(folder).batches() for row in batch]) == list(range(12))
    kept = Query(folder, {"startingVersion": str(oldest)})
    assert set(ids([row for batch in kept.batches() for row in batch])) <= {10, 11}, "what is left can be read"


def test_a_table_that_was_made_again_under_its_name_is_another_table(
    lake: Lake, table: TableHandle, folder: Path
) -> None:
    query = Query(folder)
    query.batches()
    lake.drop_table("demo.rows")
    put(lake.create_table("demo.rows", COLUMNS), 1)
    with pytest.raises(Invalid, match="table-uuid-mismatch"):
        query.batch()


def test_columns_are_those_of_the_start_by_id_whatever_they_are_called_now(table: TableHandle, folder: Path) -> None:
    query = Query(folder)
    query.batches()
    with table.alter() as change:
        change.rename_column("name", "called").add_column("more", "long")
    table.append({"id": [6], "called": ["x"], "more": [1]})
    assert query.batch() == [{"id": 6, "name": "x"}]
    query.begun()
    table.append({"id": [7], "called": ["y"], "more": [2]})
    assert query.batch() == [{"id": 7, "called": "y", "more": 2}]


def test_rows_that_were_copied_after_their_column_was_dropped_did_not_change(table: TableHandle, folder: Path) -> None:
    query = Query(folder, {"changes": "true"})
    query.batches()
    with table.alter() as change:
        change.drop_column("name").add_column("name", "long")
    table.overwrite({"id": [3], "name": [1]}, where="id in (3, 4)")
    assert kinds(query.batch() or []) == [("delete", 4)], "of row 3 only what the stream has no name for is new"


def test_a_query_goes_on_after_a_restart_where_a_column_was_widened(lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.rows", {"id": "long", "seats": "int"})
    query = Query(folder)
    assert query.batches() == [[]]
    with table.alter() as change:
        change.update_column("seats", "long")
    table.append({"id": [1], "seats": [1 << 40]})
    with pytest.raises(Invalid, match="start the query again, with the same checkpoint"):
        query.batch()
    del query.offsets[-1]
    query.begun()
    assert query.batch() == [{"id": 1, "seats": 1 << 40}]


def test_a_replaced_table_loses_its_rows_whatever_its_new_columns_require(
    lake: Lake, table: TableHandle, folder: Path
) -> None:
    first = table.head().version + 1
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("more", pa.string(), nullable=False)])
    lake.replace_table("demo.rows", data=pa.table({"id": [0], "more": ["a"]}, schema))
    query = Query(folder, {"changes": "true", "startingVersion": str(first), "columns": "id"})
    gone = [("delete", number) for number in range(6)]
    assert kinds(query.batch() or []) == [*gone, ("insert", 0)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"versionAsOf": "1"}, "'versionAsOf' has no meaning for a streaming read"),
        ({"where": "id = 1"}, "'where' has no meaning"),
        ({"startingVersion": "1", "startingTimestamp": "1"}, "exclude each other"),
        ({"maxFilesPerTrigger": "1", "maxBytesPerTrigger": "1"}, "exclude each other"),
        ({"maxFilesPerTrigger": "0"}, "at least 1"),
        ({"startingVersion": "first"}, "whole number"),
        ({"changes": "true", "columns": "plane"}, "no column plane"),
        ({"checkpointLocation": "/x"}, "no meaning"),
    ],
)
@pytest.mark.usefixtures("table")
def test_options_that_a_stream_cannot_follow_are_refused(folder: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        Query(folder, options)


@pytest.mark.usefixtures("table")
def test_a_batch_read_refuses_the_options_of_a_stream(folder: Path) -> None:
    source = RootlineDataSource({"path": "demo.rows", "warehouse": str(folder), "startingVersion": "1"})
    with pytest.raises(Invalid, match="'startingVersion' has no meaning for a read"):
        source.reader(cast("StructType", source.schema()))


@pytest.mark.parametrize("seed", range(3))
def test_changes_in_their_order_come_to_the_tables_rows(
    lake: Lake, table: TableHandle, folder: Path, seed: int
) -> None:
    """Whatever happens: each version's changes, applied to the rows of the version before, give the rows of it."""
    draw, query = random.Random(seed), Query(folder, {"changes": "true", "startingVersion": "0"})
    sizes = dict.fromkeys(("maxFilesPerTrigger",), str(draw.choice((1, 3, 100))))
    query.options |= sizes
    query.begun()
    fresh = 100
    for _ in range(14):
        some = sorted({draw.randrange(3, 12) for _ in range(3)})
        match draw.randrange(6):
            case 0 | 1:
                put(table, *range(fresh, fresh + 3))
                fresh += 3
            case 2:
                table.delete_where(f"id in ({', '.join(map(str, [*some, fresh - 1]))})")
            case 3:
                table.overwrite(rows_of(*some, name=str(fresh)), where=f"id < {some[0] + 3}")
            case 4:
                upsert(lake, folder, table, rows_of(*some, fresh - 2, name=f"u{fresh}"))
            case 5:
                table.rewrite()
    rows: Counter[tuple[int, str | None]] = Counter()
    for batch in query.batches():
        for row in sorted(batch, key=lambda row: row["_commit_version"]):
            is_gone = row["_change_type"] in ("delete", "update_preimage")
            rows[row["id"], row["name"]] += -1 if is_gone else 1
    assert all(count >= 0 for count in rows.values())
    live: Rows = table.scan().to_arrow().to_pylist()
    assert +rows == Counter((row["id"], row["name"]) for row in live)
