"""Deletes, updates and merges on the cluster are one commit each, of vectors or of files that are written again."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import rootline.spark
from rootline import Invalid
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.spark import RowsChanged
from rootline.spark import row_change_job as change_job
from rootline.spark.statements import ModeName
from tests.spark.conftest import FLIGHTS

pytestmark = pytest.mark.spark
MODES: list[ModeName] = ["merge-on-read", "copy-on-write"]
KEYED = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "n.o", LongType()), identifier_field_ids=[1]
)


@pytest.fixture
def there(flights: TableHandle) -> TableHandle:
    """Ten flights of two carriers in four files; the delay of 8 is NaN, that of 9 is null."""
    rows = [{"id": at, "carrier": ("UA", "AA")[at % 2], "delay": float(at)} for at in range(8)]
    flights.append(pa.Table.from_pylist(rows, schema=FLIGHTS))
    odd = [{"id": 8, "carrier": "UA", "delay": math.nan}, {"id": 9, "carrier": "AA", "delay": None}]
    flights.append(pa.Table.from_pylist(odd, schema=FLIGHTS))
    return flights


def found(table: TableHandle) -> dict[int, tuple[Any, ...]]:
    rows = table.scan(columns=["id", "carrier", "delay"]).to_arrow().to_pylist()
    return {row["id"]: (row["carrier"], "NaN" if row["delay"] != row["delay"] else row["delay"]) for row in rows}


def lineage(table: TableHandle) -> dict[int, tuple[int, int]]:
    """Of each id: `_row_id` and the number of its last update."""
    columns = ["id", "_row_id", "_last_updated_sequence_number"]
    rows = table.scan(columns=columns).to_arrow().to_pylist()
    assert len({row["_row_id"] for row in rows}) == len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in rows}


@pytest.fixture
def options(folder: Path) -> dict[str, Any]:
    return {"warehouse": str(folder)}


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_deleted_and_updated_as_spark_understands_the_condition_and_keep_their_lineage(
    spark: SparkSession, there: TableHandle, options: dict[str, Any], mode: ModeName
) -> None:
    version = there.head().version
    gone = rootline.spark.delete_where(spark, "demo.flights", sql.col("delay") > 6, mode=mode, **options)
    assert gone == RowsChanged(version + 1, deleted=2), "NaN is greater than every number in Spark"
    assert rootline.spark.delete_where(spark, "demo.flights", "id = 7", mode=mode, **options) == RowsChanged(None)
    assert (set(found(there)), there.head().version) == ({0, 1, 2, 3, 4, 5, 6, 9}, version + 1)
    before = lineage(there)
    values = {"delay": "1.5", "carrier": sql.lit("DL"), "id": "id + 100"}
    changed = rootline.spark.update_where(
        spark, "demo.flights", "length(carrier) = 2 and id < 3", values, mode=mode, **options
    )
    assert changed == RowsChanged(version + 2, updated=3)
    assert {key: value for key, value in found(there).items() if key >= 100} == dict.fromkeys(
        (100, 101, 102), ("DL", 1.5)
    )
    after = lineage(there)
    number = there.head().snapshot.sequence_number
    assert {key: after[key] for key in (3, 4, 5, 6, 9)} == {key: before[key] for key in (3, 4, 5, 6, 9)}
    assert {key: after[key + 100] for key in range(3)} == {key: (before[key][0], number) for key in range(3)}
    assert any(task.vectors for task in there.scan().plan()) == (mode == "merge-on-read")
    with pytest.raises(Exception, match="column id is a long, and row"):
        rootline.spark.update_where(spark, "demo.flights", "id = 5", {"id": "delay / 2"}, mode=mode, **options)
    assert list(there.check()) == []


def test_a_merge_updates_inserts_and_deletes_in_one_commit(
    spark: SparkSession, there: TableHandle, options: dict[str, Any]
) -> None:
    before, version = lineage(there), there.head().version
    source = spark.createDataFrame([(1, 10.5), (4, None), (70, 7.0), (None, 8.0)], "ID long, Delay double")
    merged = rootline.spark.merge_into(spark, "demo.flights", source, on=["Id"], **options)
    assert merged == RowsChanged(version + 1, updated=2, inserted=2), "null matches nothing"
    changed = {key: found(there)[key] for key in (1, 4, 70, None)}
    assert changed == {1: ("AA", 10.5), 4: ("UA", None), 70: (None, 7.0), None: (None, 8.0)}
    assert {key: row_id for key, (row_id, _) in lineage(there).items() if key in before} == {
        key: row_id for key, (row_id, _) in before.items()
    }
    merged = rootline.spark.merge_into(
        spark,
        "demo.flights",
        source.where("id is not null"),
        condition="target.id = source.id and target.delay > 5",
        when_matched={"DELAY": "target.delay + source.delay"},
        when_not_matched={"id": "source.id + 1000", "carrier": "'new'"},
        mode="copy-on-write",
        **options,
    )
    assert (merged.updated, merged.inserted) == (2, 1)
    assert {key: found(there)[key] for key in (1, 70, 1004)} == {1: ("AA", 21.0), 70: (None, 14.0), 1004: ("new", None)}
    merged = rootline.spark.merge_into(
        spark, "demo.flights", source, on=["id"], when_matched="delete", when_not_matched=None, **options
    )
    assert merged == RowsChanged(version + 3, deleted=3)
    twice = source.union(source).where("id = 1")
    merged = rootline.spark.merge_into(spark, "demo.flights", twice, on=["id"], when_matched=None, **options)
    assert merged.inserted == 2, "nothing matches, so nothing is ambiguous"
    left = found(there)
    with pytest.raises(Invalid, match="matches a row of the table") as refused:
        rootline.spark.merge_into(spark, "demo.flights", twice.withColumn("id", sql.lit(5)), on=["id"], **options)
    assert refused.value.code == "merge-ambiguous"
    with pytest.raises(Invalid, match="column carrier is of type VARIANT, which no table stores"):
        rootline.spark.update_where(spark, "demo.flights", "id = 5", {"carrier": "parse_json('{}')"}, **options)
    assert found(there) == left
    assert list(there.check()) == []


def test_a_merge_compares_keys_as_the_table_stores_them_so_that_it_inserts_them_once(
    spark: SparkSession, lake: Lake, options: dict[str, Any]
) -> None:
    schema = pa.schema([("plane", pa.uuid()), ("share", pa.float32()), ("n", pa.int64())])
    table = lake.create_table("demo.keys", schema)
    plane = "0123ABCD-0123-4567-89AB-0123456789AB"
    source = spark.createDataFrame([(plane, Decimal("0.1"), 1)], "plane string, share decimal(2, 1), n long")
    for key, first in (("plane", (0, 1)), ("share", (1, 0))):
        merged = [rootline.spark.merge_into(spark, "demo.keys", source, on=[key], **options) for _ in range(2)]
        assert [(each.updated, each.inserted) for each in merged] == [first, (1, 0)]
    assert table.scan(columns=["n"]).to_arrow().to_pylist() == [{"n": 1}]


def test_rows_change_in_a_table_whose_columns_are_called_as_a_change_calls_its_own(
    spark: SparkSession, lake: Lake, options: dict[str, Any]
) -> None:
    names = ["id", "__rootline_action", "__rootline_file", "__rootline_pos"]
    table = lake.create_table("demo.alike", pa.schema([(name, pa.int64()) for name in names]))
    table.append([dict.fromkeys(names, 1), dict.fromkeys(names, 2)])
    source = spark.createDataFrame([(2, 20), (3, 30)], "id long, __rootline_action long")
    merged = rootline.spark.merge_into(spark, "demo.alike", source, on=["id"], **options)
    assert (merged.updated, merged.inserted) == (1, 1)
    assert sorted(tuple(row.values()) for row in table.scan(columns=names[:3]).to_arrow().to_pylist()) == [
        (1, 1, 1),
        (2, 20, 2),
        (3, 30, None),
    ]


def test_a_change_that_would_round_the_values_of_a_column_is_refused_or_exact(
    spark: SparkSession, lake: Lake, options: dict[str, Any]
) -> None:
    columns = [("id", pa.int64()), ("paid", pa.decimal128(38, 18)), ("at", pa.timestamp("us", "UTC"))]
    schema = pa.schema([*columns, ("small", pa.int32()), ("ratio", pa.float32())])
    table = lake.create_table("demo.paid", schema)
    row = {"id": 2**53 + 1, "paid": Decimal("1.234567890123456789"), "at": None, "small": 7, "ratio": 1.0}
    table.append(pa.Table.from_pylist([row], schema=schema))
    new = "select 9007199254740993L id, 2L small, {} union all select 5L, 3L, {}"
    given: Any = {"on": ["id"], "when_matched": {"small": "source.small"}, **options}
    for value in ("cast(5.25 as decimal(38, 2)) paid", "1.5D paid", "'2021-01-01 00:00:00' at", "date'2021-01-01' at"):
        source = spark.sql(new.format(value, value))
        with pytest.raises(Invalid, match="which may change them: cast the value") as refused:
            rootline.spark.merge_into(spark, "demo.paid", source, **given)
        assert refused.value.code == "rows-invalid"
    rootline.spark.merge_into(spark, "demo.paid", spark.sql(new.format("5.25BD paid", "5.25BD")), **given)
    with pytest.raises(Exception, match="column ratio is a float, and row"):
        rootline.spark.update_where(spark, "demo.paid", "true", {"ratio": "16777217"}, **options)
    inserted = {"id": 5, "paid": Decimal("5.25"), "at": None, "small": 3, "ratio": None}
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [inserted, {**row, "small": 2}]


def test_a_change_that_lost_a_race_is_planned_again_and_one_that_is_sent_twice_lands_once(
    spark: SparkSession, there: TableHandle, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = change_job.decided
    codes: list[str | None] = []

    def late(*given: Any) -> Any:
        if not codes:
            there.append([{"id": 11, "carrier": "UA", "delay": 1.0}])
        verdict = decide(*given)
        codes.append(verdict.code)
        return verdict

    monkeypatch.setattr(change_job, "decided", late)
    named = {**options, "writerId": "nightly", "writerSequence": 4}
    for _ in range(2):
        changed = rootline.spark.update_where(
            spark, "demo.flights", "carrier = 'UA' and id > 6", {"delay": "coalesce(nanvl(delay, 0), 0) + 1"}, **named
        )
        assert changed.updated == 2
    assert codes == ["isolation-conflict", None, None]
    assert {key: found(there)[key][1] for key in (8, 11)} == {8: 1.0, 11: 2.0}
    codes.clear()
    source = spark.createDataFrame([(11, 5.0)], "id long, delay double")
    there.delete_where("id = 11")
    merged = rootline.spark.merge_into(spark, "demo.flights", source, on=["id"], **options)
    assert (codes, merged.updated, merged.inserted) == (["isolation-conflict", None], 1, 0), "a key that came meanwhile"
    assert found(there)[11] == ("UA", 5.0)
    assert list(there.check()) == []


@pytest.mark.parametrize(("mode", "code"), [("merge-on-read", "row-conflict"), ("copy-on-write", "stale-source")])
def test_an_update_of_rows_that_were_upserted_meanwhile_does_not_double_them(
    spark: SparkSession, lake: Lake, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, mode: ModeName, code: str
) -> None:
    table = lake.create_table("demo.keyed", KEYED)
    table.append([{"id": at, "n.o": 0} for at in range(4)])
    decide = change_job.decided
    codes: list[str | None] = []

    def late(*given: Any) -> Any:
        if not codes:
            new = spark.createDataFrame([(1, 10)], "id long, `n.o` long").write.format("rootline").mode("append")
            new.options(upsert=True, **options).save("demo.keyed")
        verdict = decide(*given)
        codes.append(verdict.code)
        return verdict

    monkeypatch.setattr(change_job, "decided", late)
    rootline.spark.update_where(
        spark, "demo.keyed", "id < 3", {"n.o": "`n.o` + 1"}, mode=mode, isolationLevel="snapshot", **options
    )
    assert codes == [code, None]
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["n.o"]) for row in rows) == [(0, 1), (1, 11), (2, 1), (3, 0)]
    assert list(table.check()) == []
