"""The quickstart for Spark and the jobs of docs/spark.md, run as they are written in the session of the other tests."""

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

pytestmark = pytest.mark.spark
STREAMED = "carrier string, dep_delay long, month int"


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
        planes = FolderCatalog(tmp_path / "ice").make(
            "planes", Schema(NestedField(1, "id", LongType())), format_version=2
        )
        planes.append(pa.table({"id": [1, 2, 3]}))
        log = [(1, "an older one"), (2, planes.metadata_location.replace("file://", "file:"))]  # as Hadoop writes it
        session.createDataFrame(log, "timestamp long, file string").createOrReplaceTempView("metadata_log_entries")
        assert run("and nothing was copied", shell) == "3 rows, and nothing was copied\n"
