"""Changes of more files than one intent can describe: their vectors are in leaves, and rewrites are refused early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import rootline.spark
from rootline import Invalid
from rootline.client import marked_files
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.spark import row_change_job as change_job
from tests.client.change.test_vectors_in_leaves import leaves_of_vectors
from tests.spark.conftest import FLIGHTS

pytestmark = pytest.mark.spark


@pytest.fixture
def there(flights: TableHandle, monkeypatch: pytest.MonkeyPatch) -> TableHandle:
    """Two flights in each of four files. An intent has room for one vector."""
    monkeypatch.setattr(marked_files, "NAMES_BYTES_MAX", 250)
    rows = [{"id": at, "carrier": "ABCD"[at // 2], "delay": float(at)} for at in range(8)]
    flights.append(pa.Table.from_pylist(rows, schema=FLIGHTS))
    return flights


def delays(table: TableHandle) -> dict[int, float]:
    return {row["id"]: row["delay"] for row in table.scan(columns=["id", "delay"]).to_arrow().to_pylist()}


def test_a_merge_of_many_files_lists_vectors_in_leaves_and_is_planned_again_after_another_delete(
    spark: SparkSession, lake: Lake, folder: Path, there: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, codes = change_job.decided, list[str | None]()

    def late(*given: Any) -> Any:
        if not codes:
            there.delete_where("id = 1")
        verdict = decide(*given)
        codes.append(verdict.code)
        return verdict

    monkeypatch.setattr(change_job, "decided", late)
    source = spark.createDataFrame([(at, 100.0) for at in (0, 2, 4, 9)], "id long, delay double")
    options: dict[str, Any] = {"on": ["id"], "warehouse": str(folder), "isolationLevel": "snapshot"}
    changed = rootline.spark.merge_into(spark, "demo.flights", source, **options)
    assert (changed.updated, changed.inserted, codes) == (3, 1, ["row-conflict", None])
    assert delays(there) == {0: 100.0, 2: 100.0, 3: 3.0, 4: 100.0, 5: 5.0, 6: 6.0, 7: 7.0, 9: 100.0}
    assert leaves_of_vectors(lake, there) == [3]
    assert rootline.spark.delete_where(spark, "demo.flights", "id < 8", warehouse=str(folder)).deleted == 7
    assert delays(there) == {9: 100.0}
    assert list(there.check()) == []


def test_a_rewrite_of_more_files_than_one_commit_can_remove_is_refused_before_it_begins(
    spark: SparkSession, folder: Path, there: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = there.head().version, sorted(folder.rglob("*.parquet"))
    monkeypatch.setattr(change_job, "REMOVED_BYTES_MAX", 250)
    with pytest.raises(Invalid, match=r"4 files lose rows, .* use the mode merge-on-read") as refused:
        rootline.spark.delete_where(spark, "demo.flights", "id % 2 = 0", mode="copy-on-write", warehouse=str(folder))
    assert (refused.value.code, there.head().version) == ("intent-too-large", version)
    assert sorted(folder.rglob("*.parquet")) == before
