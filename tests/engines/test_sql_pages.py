"""docs/spark-sql.md, and Iceberg's column of docs/from-iceberg-on-spark.md, as they are written, in Spark 4.1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rootline
from rootline.client.lake import Lake
from tests.documents.blocks import Block, blocks_of
from tests.documents.page_shell import free_port, page_shell
from tests.documents.task_tables import ARRIVED, ROWS_AFTER, tasks_of
from tests.engines.iceberg_spark import IcebergSpark, SparkRefused

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

SQL_PAGE = "docs/spark-sql.md"
ICEBERG_PAGE = "docs/from-iceberg-on-spark.md"
QUERY = re.compile(r"(?:SELECT|CALL)\b")
SQL = re.compile(r"[A-Z]{4,}\b")


class Reader:
    """Runs the programs of a page in Spark; `instead`: words of the page, and what they are here."""

    def __init__(self, spark: IcebergSpark, instead: dict[str, str]) -> None:
        self.spark = spark
        self.instead = instead

    def run(self, text: str) -> None:
        """Run SQL, statement by statement, or Python."""
        for there, here in self.instead.items():
            text = text.replace(there, here)
        if not SQL.match(text):
            self.spark.program(text)
            return
        for statement in (part.strip() for part in text.split(";")):
            if QUERY.match(statement):
                self.spark.rows(statement)
            elif statement:
                self.spark.run(statement)


@contextmanager
def served_lake(up: Block, folder: Path, monkeypatch: pytest.MonkeyPatch, instead: dict[str, str]) -> Iterator[Lake]:
    """The lake that the command in the block serves."""
    with page_shell(folder, monkeypatch, instead) as shell:
        shell.run(up)
        with rootline.connect(folder / "lake", coordinator="elsewhere") as lake:
            yield lake


def test_the_jobs_of_the_page_about_sql_run_and_what_it_calls_refused_is_refused(
    iceberg_spark: IcebergSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up, start, create, rebuild, change, read, stream, _ = blocks_of(SQL_PAGE, "console", "python", "sql")
    here = {"8080": free_port(), "/data/": f"{tmp_path}/"}
    reader = Reader(iceberg_spark, here)
    with served_lake(up, tmp_path, monkeypatch, here) as lake:
        reader.run(start.text)
        reader.run(create.text)
        orders = lake.table("shop.orders")
        assert orders.scan().count() == 4
        reader.run(rebuild.text)
        cities = iceberg_spark.rows("select * from lake.shop.cities order by city").to_pylist()
        assert [(row["city"], row["orders"]) for row in cities] == [("Kyiv", 1), ("Oslo", 3)]
        reader.run(change.text)
        assert orders.schema().names == ["id", "town", "price", "items", "at"]
        orders.tag("january")
        reader.run(read.text)
        (tmp_path / "incoming").mkdir()
        (tmp_path / "incoming/1.json").write_text('{"id": 9, "town": "Rome", "at": "2024-03-01T12:00:00Z"}')
        for _ in range(2):
            reader.run(stream.text)
            assert orders.scan().count() == 5

        iceberg_spark.run("create table lake.shop.old using iceberg as select 1L as id")
        iceberg_spark.run("create or replace temporary view late as select * from lake.shop.orders where id = 9")
        before = orders.head().totals
        for task in tasks_of(SQL_PAGE, "statement", "Spark's error contains"):
            [statement], [[words]] = re.findall("`(.*)`", task.name), task.cells
            with pytest.raises(SparkRefused, match=re.escape(words)):
                reader.run(statement)
        assert orders.head().totals == before
        assert lake.table("shop.old").scan().count() == 1


def test_icebergs_column_of_the_page_for_its_users_ends_with_the_rows_of_ours(
    iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    iceberg_spark.hadoop_catalog("ice", tmp_path / "ice")
    _, rows, stream, *_ = (block.text for block in blocks_of(ICEBERG_PAGE, "python"))
    reader = Reader(iceberg_spark, {"/data/": f"{tmp_path}/"})
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming/1.json").write_text(ARRIVED)
    reader.run(rows)
    for task in tasks_of(ICEBERG_PAGE, "task", "Iceberg on Spark"):
        for program in task.cells[0]:
            reader.run(program)
        if task.name == "create a table from rows":
            reader.run(stream)
            assert found(iceberg_spark) == ROWS_AFTER["append a stream"]
        elif task.name in ROWS_AFTER:
            assert found(iceberg_spark) == ROWS_AFTER[task.name], task.name
    assert found(iceberg_spark) == ROWS_AFTER["append a stream"], "the tag is of that time"


def found(spark: IcebergSpark) -> list[tuple[object, ...]]:
    """Id, city and price of each row."""
    rows = spark.rows("select * from ice.shop.orders order by id")
    return [tuple(row.values())[:3] for row in rows.to_pylist()]
