"""Spark 4.1 with Iceberg's runtime inserts and streams through REST, beside native writers and compaction."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from tests.engines.iceberg_spark import IcebergSpark
from tests.rest.writing_catalog import writing_catalog

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

INSERTS = 8
OTHERS = 120
"""More versions than an export lists."""


@dataclass(frozen=True)
class Appended:
    """A lake that Spark inserts into: its catalog is `appended` there, and has the namespace `demo`."""

    lake: Lake
    spark: IcebergSpark


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, iceberg_spark: IcebergSpark) -> Iterator[Appended]:
    with writing_catalog(tmp_path_factory.mktemp("appended") / "lake") as catalog:
        iceberg_spark.rest_catalog("appended", catalog.url, warehouse="own")
        yield Appended(catalog.lake, iceberg_spark)


def rows(table: TableHandle, *columns: str) -> list[tuple[object, ...]]:
    """The rows, sorted by the first column."""
    return sorted(tuple(row.values()) for row in table.scan(columns=columns).to_arrow().to_pylist())


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_table_is_created_from_a_query_as_one_version_and_inserted_into(own: Appended, format_version: int) -> None:
    name = f"demo.filled_{format_version}"
    own.spark.run(
        f"create table appended.{name} using iceberg partitioned by (bucket(4, id)) "
        f"tblproperties ('format-version' = '{format_version}') as select id, concat('n', id) as name from range(10)"
    )
    table = own.lake.table(name)
    assert len(table.history(limit=100, everything=True)) == 1
    own.spark.run(f"insert into appended.{name} values (10, 'n10'), (11, 'n11')")
    table.append({"id": [12], "name": ["n12"]})
    own.spark.run(f"insert into appended.{name} (id) values (13)")
    expected = [*((number, f"n{number}") for number in range(13)), (13, None)]
    assert rows(table, "id", "name") == expected
    theirs = own.spark.rows(f"select id, name from appended.{name} order by id")
    assert [tuple(row.values()) for row in theirs.to_pylist()] == expected
    assert sorted(row_id for _, row_id in rows(table, "id", "_row_id")) == list(range(14))
    operations = own.spark.rows(f"select operation from appended.{name}.snapshots").column("operation")
    assert set(operations.to_pylist()) == {"append"}


def test_partition_values_with_characters_of_a_url_are_read_back(own: Appended) -> None:
    odd = ["x?", "a b", "a/b", "ü", "100%", "http://host/?a=b#c"]
    own.spark.run("create table appended.demo.odd (id bigint, carrier string) using iceberg partitioned by (carrier)")
    values = ", ".join(f"({number}, '{value}')" for number, value in enumerate(odd))
    own.spark.run(f"insert into appended.demo.odd values {values}")
    table, expected = own.lake.table("demo.odd"), list(enumerate(odd))
    assert rows(table, "id", "carrier") == expected
    assert {task.location.split("/")[1] for task in table.scan("carrier = 'x?'").plan()} == {"carrier=x%3F"}
    theirs = own.spark.rows("select id, carrier from appended.demo.odd order by id")
    assert [tuple(row.values()) for row in theirs.to_pylist()] == expected


def test_a_stream_that_starts_again_from_its_checkpoint_doubles_nothing_also_after_many_commits_of_others(
    own: Appended, tmp_path: Path
) -> None:
    own.spark.run("create table appended.demo.streamed (id bigint) using iceberg")
    table = own.lake.table("demo.streamed")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def arrive(number: int) -> None:
        (source / f"{number}.json").write_text(json.dumps({"id": number}))

    def stream() -> None:
        own.spark.stream(source, "id bigint", "appended.demo.streamed", checkpoint)

    arrive(0)
    arrive(1)
    stream()
    assert rows(table, "id") == [(0,), (1,)]
    for others in (0, OTHERS):
        for _ in range(others):
            table.append({"id": [-1]})
        newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()  # as if Spark had been killed between its commit and its note of it
        (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
        stream()
        assert sorted(set(rows(table, "id"))) == sorted({*([(-1,)] if others else []), (0,), (1,)})
        assert len(rows(table, "id")) == 2 + others
    arrive(2)
    stream()
    assert [row for row in rows(table, "id") if row != (-1,)] == [(0,), (1,), (2,)]


def test_inserts_of_one_spark_at_once_need_no_retry(own: Appended) -> None:
    own.spark.run(
        "create table appended.demo.at_once (id bigint) using iceberg tblproperties ('commit.retry.num-retries' = '0')"
    )
    table = own.lake.table("demo.at_once")
    own.spark.run_at_once([f"insert into appended.demo.at_once values ({number})" for number in range(INSERTS)])
    assert rows(table, "id") == [(number,) for number in range(INSERTS)]


def test_inserts_beside_native_writers_and_compaction_lose_and_double_no_row(own: Appended) -> None:
    own.spark.run("create table appended.demo.shared (id bigint, who string) using iceberg")
    table = own.lake.table("demo.shared")
    done, failed = threading.Event(), list[BaseException]()

    def append() -> None:
        for number in range(40):
            table.append({"id": [1_000 + number], "who": ["native"]})

    def compact() -> None:
        while not done.is_set():
            try:
                table.rewrite()
            except Invalid as error:  # a file that it read is gone: the next round reads again
                if error.code != "stale-source":
                    raise

    def carried(work: Callable[[], None]) -> threading.Thread:
        def carry() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=carry)
        thread.start()
        return thread

    writer, compactor = carried(append), carried(compact)
    try:
        for number in range(INSERTS):
            values = f"({2 * number}, 'spark'), ({2 * number + 1}, 'spark')"
            own.spark.run(f"insert into appended.demo.shared values {values}")
    finally:
        writer.join()
        done.set()
        compactor.join()
    assert not failed
    expected = [*((n, "spark") for n in range(2 * INSERTS)), *((1_000 + n, "native") for n in range(40))]
    assert rows(table, "id", "who") == expected
    before = rows(table, "id", "_row_id")
    assert len({row_id for _, row_id in before}) == len(expected)
    table.rewrite()
    assert rows(table, "id", "_row_id") == before
    theirs = own.spark.rows("select id, _row_id from appended.demo.shared order by id")
    assert [tuple(row.values()) for row in theirs.to_pylist()] == before
