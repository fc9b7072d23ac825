"""Deletes, updates and merges on the cluster are one commit each, of vectors or of files that are written again."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import rootline.spark
from rootline import Invalid
from rootline.client.table_handle import TableHandle
from rootline.spark import RowsChanged
from rootline.spark.row_changes import change_job
from rootline.spark.row_changes.condition_reading import read_condition
from rootline.spark.row_changes.statements import ModeName
from tests.spark.conftest import FLIGHTS

MODES: list[ModeName] = ["merge-on-read", "copy-on-write"]


@pytest.fixture
def there(flights: TableHandle) -> TableHandle:
    """Ten flights of two carriers in four files; the delay of 8 is NaN, that of 9 is null."""
    rows = [{"id": at, "carrier": ("UA", "AA")[at % 2], "delay": float(at)} for at in range(8)]
    flights.append(pa.Table.from_pylist(rows, schema=FLIGHTS))
    odd = [{"id": 8, "carrier": "UA", "delay": math.nan}, {"id": 9, "carrier": "AA", "delay": None}]
    flights.append(pa.Table.from_pylist(odd, schema=FLIGHTS))
    return flights


def found(table: TableHandle) -> dict[int, tuple[Any, ...]]:
    rows = table.scan(columns=["id", "carrier", "delay", "_row_id"]).to_arrow().to_pylist()
    assert len({row["_row_id"] for row in rows}) == len(rows)
    return {row["id"]: (row["carrier"], row["delay"]) for row in rows}


def row_ids(table: TableHandle) -> dict[int, int]:
    return {row["id"]: row["_row_id"] for row in table.scan(columns=["id", "_row_id"]).to_arrow().to_pylist()}


@pytest.fixture
def options(folder: Any) -> dict[str, Any]:
    return {"warehouse": str(folder)}


@pytest.mark.spark
@pytest.mark.parametrize("mode", MODES)
def test_rows_are_deleted_and_updated_as_spark_understands_the_condition(
    spark: SparkSession, there: TableHandle, options: dict[str, Any], mode: ModeName
) -> None:
    ids, version = row_ids(there), there.head().version
    gone = rootline.spark.delete_where(spark, "demo.flights", "id in (2, 3)", mode=mode, **options)
    assert gone == RowsChanged(version + 1, deleted=2)
    assert rootline.spark.delete_where(spark, "demo.flights", "id = 2", mode=mode, **options) == RowsChanged(None)
    gone = rootline.spark.delete_where(spark, "demo.flights", sql.col("delay") > 6, mode=mode, **options)
    assert gone.deleted == 2, "NaN is greater than every number in Spark"
    assert set(found(there)) == {0, 1, 4, 5, 6, 9}
    values = {"delay": "1.5", "carrier": sql.lit("DL"), "id": "id + 100"}
    changed = rootline.spark.update_where(
        spark, "demo.flights", "length(carrier) = 2 and id < 5", values, mode=mode, **options
    )
    assert (changed.updated, changed.deleted, changed.inserted) == (3, 0, 0)
    assert {key: value for key, value in found(there).items() if key >= 100} == dict.fromkeys(
        (100, 101, 104), ("DL", 1.5)
    )
    assert row_ids(there) == {key + 100 * (key < 5): ids[key] for key in (0, 1, 4, 5, 6, 9)}
    assert bool([task for task in there.scan().plan() if task.vectors]) == (mode == "merge-on-read")
    with pytest.raises(Exception, match="column id is a long, not"):
        rootline.spark.update_where(spark, "demo.flights", "id = 5", {"id": "delay / 2"}, mode=mode, **options)
    assert list(there.check()) == []


@pytest.mark.spark
def test_a_merge_updates_inserts_and_deletes_in_one_commit(
    spark: SparkSession, there: TableHandle, options: dict[str, Any]
) -> None:
    ids, version = row_ids(there), there.head().version
    source = spark.createDataFrame([(1, 10.5), (4, None), (70, 7.0)], "id long, delay double")
    merged = rootline.spark.merge_into(spark, "demo.flights", source, on=["id"], **options)
    assert merged == RowsChanged(version + 1, updated=2, inserted=1)
    assert {key: found(there)[key] for key in (1, 4, 70)} == {1: ("AA", 10.5), 4: ("UA", None), 70: (None, 7.0)}
    assert {key: value for key, value in row_ids(there).items() if key != 70} == ids
    merged = rootline.spark.merge_into(
        spark,
        "demo.flights",
        source,
        condition="target.id = source.id and target.delay > 5",
        when_matched={"delay": "target.delay + source.delay"},
        when_not_matched={"id": "source.id + 1000", "carrier": "'new'"},
        mode="copy-on-write",
        **options,
    )
    assert (merged.updated, merged.inserted) == (2, 1)
    changed = found(there)
    assert (changed[1], changed[70], changed[1004]) == (("AA", 21.0), (None, 14.0), ("new", None))
    merged = rootline.spark.merge_into(
        spark, "demo.flights", source, on=["id"], when_matched="delete", when_not_matched=None, **options
    )
    assert merged == RowsChanged(version + 3, deleted=3)
    again = source.union(source)
    merged = rootline.spark.merge_into(
        spark, "demo.flights", again.where("id = 1"), on=["id"], when_matched=None, **options
    )
    assert merged.inserted == 2, "nothing matches, so nothing is ambiguous"
    left = found(there)
    with pytest.raises(Invalid, match="matches a row of the table") as refused:
        rootline.spark.merge_into(spark, "demo.flights", again.withColumn("id", sql.lit(5)), on=["id"], **options)
    assert refused.value.code == "merge-ambiguous"
    assert found(there) == left
    assert list(there.check()) == []


@pytest.mark.spark
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
    assert list(there.check()) == []


def test_a_condition_is_read_by_rootline_only_where_spark_means_the_same(flights: TableHandle) -> None:
    schema = flights.definition().schema
    for same in ("id = 5", "carrier = 'UA' and not id in (1, 2)", "carrier is null"):
        assert read_condition(same, schema) is not None
    for other in ("delay > 5", 'carrier = "id"', "carrier = 'a\\'b'", "ID = 5", "length(carrier) = 2", sql, "id = id2"):
        assert read_condition(other, schema) is None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"on": ["id"], "condition": "true"}, "either `on` or `condition`"),
        ({"on": ["id"], "when_matched": None, "when_not_matched": None}, "does nothing"),
        ({"on": ["id"], "when_matched": "upsert"}, "write update or delete"),
        ({"on": ["id"], "mode": "fast"}, "merge-on-read or copy-on-write"),
        ({"on": ["id"], "createTable": True}, "'createTable' has no meaning for a change of rows"),
        ({"on": ["id"], "writerId": "w"}, "come together"),
    ],
)
def test_calls_that_say_too_much_or_too_little_are_refused(
    options: dict[str, Any], call: dict[str, Any], said: str
) -> None:
    class Settings:
        class conf:  # noqa: N801 -- as Spark's
            @staticmethod
            def get(name: str, default: Any) -> Any:
                return default

    class Source:
        columns = ("id",)

    with pytest.raises(Invalid, match=said):
        rootline.spark.merge_into(Settings, "demo.flights", Source, **call, **options)  # type: ignore[arg-type]
