"""`upsert`: rows replace those with the same identifier fields, and a worker turns their deletes into vectors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rootline import Invalid
from rootline.cli.app import main
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.spark.data_source import RootlineDataSource
from tests.spark.file_stream import Stream

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "city", StringType(), required=True),
    NestedField(3, "value", StringType()),
    identifier_field_ids=[1, 2],
)
FLIGHTS_BY_ID = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "carrier", StringType()),
    NestedField(3, "delay", DoubleType()),
    identifier_field_ids=[1],
)
ROWS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("value", pa.string())])
Key = tuple[int, str]


def upsert(folder: Path, batch_id: int, *tasks: dict[Key, str], **options: str) -> None:
    """One micro-batch of so many tasks."""
    given = {"path": "demo.t", "warehouse": str(folder), "upsert": "true", "writerId": "w", **options}
    writer: Any = RootlineDataSource(given).streamWriter(from_arrow_schema(ROWS), False)
    batches = [
        pa.RecordBatch.from_pylist([{"id": n, "city": c, "value": v} for (n, c), v in task.items()], schema=ROWS)
        for task in tasks
    ]
    writer.commit([writer.write(iter([batch])) for batch in batches], batch_id)


def found(table: TableHandle) -> dict[Key, str]:
    rows = table.scan().to_arrow().to_pylist()
    assert len({(row["id"], row["city"]) for row in rows}) == len(rows)
    return {(row["id"], row["city"]): row["value"] for row in rows}


@pytest.mark.parametrize("partition_by", [[], ["city"], ["bucket(2, id)"]])
def test_each_batch_replaces_what_has_its_keys_and_a_replay_changes_nothing(
    lake: Lake, folder: Path, partition_by: list[str]
) -> None:
    table = lake.create_table(
        "demo.t", COLUMNS, partition_by=partition_by, sort_by=["value"], expressions=["lower(value)"]
    )
    batches: list[list[dict[Key, str]]] = [
        [{(1, "a"): "one", (1, "b"): "other"}, {(2, "a"): "two"}],
        [{(1, "a"): "new"}, {(3, "a"): "three"}],
    ]
    for batch_id, tasks in enumerate(batches):
        upsert(folder, batch_id, *tasks)
    expected = {(1, "a"): "new", (1, "b"): "other", (2, "a"): "two", (3, "a"): "three"}
    for batch_id, tasks in enumerate(batches):  # as a restarted driver sends them
        upsert(folder, batch_id, *tasks)
    assert found(table) == expected
    assert any(task.deletes.equality for task in table.scan().plan())
    assert list(table.check()) == []
    with pytest.raises(Invalid, match="1 rows of the batch have the same identifier fields as another row"):
        upsert(folder, 2, {(1, "a"): "x"}, {(1, "a"): "y"})
    assert found(table) == expected


@pytest.mark.spark
def test_a_stream_of_upserts_that_starts_again_replaces_once_and_its_deletes_become_vectors(
    lake: Lake, folder: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("demo.flights", FLIGHTS_BY_ID, properties={"rootline.convert.deletes": "1"})
    stream = Stream(spark, str(folder), tmp_path / "stream")
    stream.drop(1, 2, delay=0.0)
    stream.drop(2, 3, delay=1.0)
    stream.run(upsert=True)
    stream.forget_last_commit()  # Spark crashed before it noted that the second batch was done
    by_hand = spark.createDataFrame([(2, "AA", 9.0)], "id long, carrier string, delay double")
    by_hand.write.format("rootline").options(warehouse=folder, upsert=True).mode("append").save("demo.flights")
    stream.drop(3, 4, delay=2.0)
    stream.run(upsert=True)
    expected = {1: 0.0, 2: 9.0, 3: 2.0, 4: 2.0}

    def delays() -> dict[int, float]:
        rows = table.scan(columns=["id", "delay"]).to_arrow().to_pylist()
        assert len(rows) == len({row["id"] for row in rows})
        return {row["id"]: row["delay"] for row in rows}

    assert (delays(), table.head().totals.data_files) == (expected, 4), "the batch that was sent again is a duplicate"
    assert any(task.deletes.equality for task in table.scan().plan())
    monkeypatch.setattr(
        sys, "argv", ["rootline", "maintenance", "run", "convert", "demo.flights", "--warehouse", str(folder)]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    plan = list(table.scan().plan())
    assert [task for task in plan if task.deletes.equality] == []
    assert any(task.vectors for task in plan)
    assert delays() == expected
    assert list(table.check()) == []


def test_a_table_whose_rows_an_equality_delete_may_not_reach_is_refused(lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.t", COLUMNS, partition_by=["value"])
    with pytest.raises(Invalid, match="no identifier field, so a row may move"):
        upsert(folder, 0, {(1, "a"): "one"})
    lake.drop_table("demo.t")
    table = lake.create_table("demo.t", COLUMNS)
    with table.alter() as change:
        change.add_partition_field("city")
    with pytest.raises(Invalid, match="its partitioning has changed"):
        upsert(folder, 0, {(1, "a"): "one"})
    lake.drop_table("demo.t")
    lake.create_table("demo.t", ROWS)
    with pytest.raises(Invalid, match="needs identifier fields"):
        upsert(folder, 0, {(1, "a"): "one"})
