"""The pages about Spark, run as they are written in the session of the other tests: the quickstart, the jobs of
docs/spark.md, and the programs of Rootline's columns in docs/from-iceberg-on-spark.md, docs/from-delta.md and
docs/spark-sql.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

import rootline
from tests.catalog.iceberg_tables import FolderCatalog
from tests.documents.blocks import Block, blocks_of
from tests.documents.page_shell import PageShell, page_shell
from tests.documents.task_tables import ARRIVED, ROWS_AFTER, Row, tasks_of

pytestmark = pytest.mark.spark
STREAMED = "carrier string, dep_delay long, month int"
ICEBERG_PAGE, DELTA_PAGE, SQL_PAGE = "docs/from-iceberg-on-spark.md", "docs/from-delta.md", "docs/spark-sql.md"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """As it was, afterwards: pages set a warehouse, and streams go on until they are stopped."""
    yield spark
    for query in spark.streams.active:
        query.stop()
    for setting in ("spark.rootline.warehouse", "spark.sql.parquet.outputTimestampType"):
        spark.conf.unset(setting)


def test_the_quickstart_runs_and_a_stream_that_runs_again_adds_nothing(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, batch, stream, end = blocks_of("docs/quickstarts/spark.md", "python")
    here = {  # the session's Java was started in another folder
        'json("incoming")': f'json("{tmp_path}/incoming")',
        '"checkpoint")': f'"{tmp_path}/checkpoint")',
    }
    with page_shell(tmp_path, monkeypatch, here) as shell:
        shell.run(start)
        assert shell.run(batch).count("Oslo") == 2
        assert [shell.run(stream) for _ in range(2)] == ["3\n", "3\n"]
        shell.run(end)
        del shell.namespace["lake"]


def test_the_jobs_of_the_page_about_spark_run_as_they_are_written(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = ("docs/spark.md", "README.md")
    blocks = {block.text.splitlines()[-1].strip(): block for page in pages for block in blocks_of(page, "python")}
    folder = tmp_path / "lake"
    (tmp_path / "incoming").mkdir()
    here = {
        "ice.demo.planes.": "",
        "/data/": f"{tmp_path}/",
        '"./lake"': f'"{folder}"',
        '"./checkpoint"': f'"{tmp_path}/checkpoint"',
        "port=9464": "port=0",
    }

    def ends_with(words: str) -> Block:
        return next(block for last, block in blocks.items() if words in last)

    def run(words: str, shell: PageShell) -> str:
        said = shell.run(ends_with(words))
        for query in session.streams.active:
            query.processAllAvailable()
            query.stop()
        return said

    with (
        rootline.connect(folder) as lake,
        page_shell(tmp_path, monkeypatch, here) as shell,
    ):
        table = lake.create_table("demo.flights", {"carrier": "string", "dep_delay": "long", "month": "int"})
        batch = session.createDataFrame([("UA", 90, 1), ("AA", 5, 1), ("UA", 70, 2)], STREAMED)
        stream = session.readStream.schema(STREAMED).json(str(tmp_path / "incoming"))
        (tmp_path / "incoming" / "1.json").write_text('{"carrier": "DL", "dep_delay": 61, "month": 1}\n')
        shell.namespace |= {"spark": session, "batch": batch, "stream": stream}
        run("/data/checkpoints/flights", shell)
        assert table.scan().count() == 4
        run('option("where", "dep_delay > 60")', shell)
        assert table.scan().count() == 5, "another checkpoint is another query, which reads its source again"
        shown = run('groupBy("carrier")', shell)
        assert {"UA", "DL"} <= set(shown.replace("|", " ").split())
        assert "AA" not in shown
        run('option("changes", "true")', shell)
        assert shell.namespace["changes"].isStreaming  # type: ignore[attr-defined]
        for _ in range(2):
            run('save("demo.arrivals")', shell)
            assert lake.table("demo.arrivals").scan().count() == 2
        run('mode="copy-on-write")', shell)
        rows = lake.table("demo.arrivals").scan().to_arrow().to_pylist()
        assert {(row["id"], f"{row['day']}", row["carrier"]) for row in rows} == {
            (1, "2013-01-31", "new UA"),
            (3, "2013-02-01", "B6"),
        }
        assert run("print(applied.updated", shell) == "1 1 1\n"
        run("doubles, on=", shell)
        rows = lake.table("demo.arrivals").scan().to_arrow().to_pylist()
        assert {(row["id"], f"{row['day']}", row["carrier"]) for row in rows} == {
            (3, "2013-02-01", "B7"),
            (4, "2013-02-01", "WN"),
        }
        prices = tmp_path / "incoming" / "prices"
        prices.mkdir()
        for number, line in enumerate(('{"id": 1, "price": 2.5}', '{"id": 1, "price": 3.5}\n{"id": 2, "price": 1.0}')):
            (prices / f"{number}.json").write_text(line)
            run('start("demo.prices")', shell)
        rows = lake.table("demo.prices").scan().to_arrow().to_pylist()
        assert {(row["id"], row["price"]) for row in rows} == {(1, 3.5), (2, 1.0)}
        run('save("demo.flights")', shell)
        for _ in range(2):
            shell.namespace["each"](batch, 7)  # type: ignore[operator]
        assert table.scan().count() == 8, "the second time is a duplicate"
        assert run("and then", shell).endswith("files became 1 and then 1\n")
        assert (table.scan().count(), len(table.scan().plan())) == (8, 1)
        for rows_more in (6, 3):
            before = table.scan().count()
            run("writer_sequence=20130131", shell)
            assert table.scan().count() == before + rows_more, "what has a name lands once"
        before = table.scan().count()
        run("/data/checkpoints/appending", shell)
        assert table.scan().count() == before + 1
        run("metrics.stop()", shell)
        assert table.scan().count() == before + 2
        planes = FolderCatalog(tmp_path / "ice").make(
            "planes", Schema(NestedField(1, "id", LongType())), format_version=2
        )
        planes.append(pa.table({"id": [1, 2, 3]}))
        log = [(1, "an older one"), (2, planes.metadata_location.replace("file://", "file:"))]  # as Hadoop writes it
        session.createDataFrame(log, "timestamp long, file string").createOrReplaceTempView("metadata_log_entries")
        assert run("and nothing was copied", shell) == "3 rows, and nothing was copied\n"


def in_orders(shell: PageShell) -> list[Row]:
    """Id, city and price of each row of the table of the pages about other formats."""
    rows = shell.namespace["lake"].table("shop.orders").scan().to_arrow().to_pylist()  # type: ignore[attr-defined]
    return sorted((row["id"], row.get("city", row.get("town")), row["price"]) for row in rows)


def run_tasks(page: str, shell: PageShell, stream: Block | None) -> None:
    """Run our programs of a page in their order, and compare the table's rows after each task that changes them."""
    for task in tasks_of(page, "task", "Rootline"):
        times = 2 if "repeated" in task.name else 1
        for program in times * task.cells[0]:
            shell.python(program)
        if task.name == "create a table from rows" and stream is not None:
            shell.run(stream)
            assert in_orders(shell) == ROWS_AFTER["append a stream"]
        elif task.name in ROWS_AFTER:
            assert in_orders(shell) == ROWS_AFTER[task.name], task.name


@pytest.fixture
def arrived(tmp_path: Path) -> dict[str, str]:
    """The folder of the pages, with a file for their streams."""
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming/1.json").write_text(ARRIVED)
    return {"/data/": f"{tmp_path}/"}


def test_our_column_of_the_page_for_users_of_iceberg_runs_and_one_of_its_tables_is_adopted(
    session: SparkSession, arrived: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, rows, _, stream, adopt = blocks_of(ICEBERG_PAGE, "python")
    with page_shell(tmp_path, monkeypatch, {**arrived, "ice.shop.planes.": ""}) as shell:
        shell.namespace["spark"] = session
        shell.run(start)
        shell.run(rows)
        run_tasks(ICEBERG_PAGE, shell, stream)
        assert in_orders(shell) == ROWS_AFTER["append a stream"], "the tag is of that time"
        planes = FolderCatalog(tmp_path / "ice").make(
            "planes", Schema(NestedField(1, "id", LongType())), format_version=2
        )
        planes.append(pa.table({"id": [1, 2, 3]}))
        log = [(1, planes.metadata_location.replace("file://", "file:"))]
        session.createDataFrame(log, "timestamp long, file string").createOrReplaceTempView("metadata_log_entries")
        assert shell.run(adopt) == "3 rows\n"


def test_our_column_of_the_page_for_users_of_delta_runs_and_rows_are_copied_once(
    session: SparkSession, arrived: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, rows, move = blocks_of(DELTA_PAGE, "python")
    here = {**arrived, 'format("delta").option("versionAsOf", 41)': 'format("parquet")'}
    with page_shell(tmp_path, monkeypatch, here) as shell:
        shell.namespace["spark"] = session
        shell.run(start)
        shell.run(rows)
        run_tasks(DELTA_PAGE, shell, None)
        assert in_orders(shell) == ROWS_AFTER["append a batch"], "version 1 has the first batch"
        shell.python('new.write.parquet("/data/delta/sales")')
        assert [shell.run(move) for _ in range(2)] == ["3 rows\n", "3 rows\n"]


def test_what_the_page_about_sql_names_instead_of_refused_statements_runs(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"id": "long", "town": "string", "price": "decimal(12, 2)", "items": "long", "at": "timestamptz"}
    with page_shell(tmp_path, monkeypatch, {"/data/": f"{tmp_path}/"}) as shell:
        shell.namespace["spark"] = session
        shell.run(blocks_of(SQL_PAGE, "python")[-1])
        shell.namespace["columns"] = columns
        shell.python(
            'orders, old = lake.create_table("shop.orders", columns), lake.create_table("shop.old", {"id": "long"})'
        )
        shell.python('orders.append([{"id": 1, "town": "Oslo", "items": 3}, {"id": 2, "town": "Kyiv", "items": 1}])')
        shell.python('orders.tag("january")')
        shell.namespace["late"] = session.createDataFrame([(2, "Rome"), (9, "Rome")], "id long, town string")
        counts = []
        for task in tasks_of(SQL_PAGE, "statement", "instead"):
            for program in task.cells[0]:
                shell.python(program)
            counts.append(int(shell.python("print(orders.scan().count())")))
    assert counts == [1, 1, 2, 2, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2]
