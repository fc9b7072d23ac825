"""A change of rows has Spark check what it computes again, and leaves the session as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import rootline.spark
from rootline.client.table_handle import TableHandle
from rootline.spark.row_change_job import SETTINGS, checked_shuffles

pytestmark = pytest.mark.spark


def test_a_change_of_rows_has_spark_check_what_it_computes_again_for_as_long_as_it_runs(
    spark: SparkSession, flights: TableHandle, folder: Path
) -> None:
    flights.append([{"id": 1, "carrier": "UA", "delay": 0.0}])
    before = [spark.conf.get(name) for name in SETTINGS]
    spark.conf.set(SETTINGS[1], "false")
    try:
        seen = sql.udf(lambda: TaskContext.get().getLocalProperty(SETTINGS[1]))
        rootline.spark.update_where(spark, "demo.flights", "id = 1", {"carrier": seen()}, warehouse=str(folder))
        assert flights.scan().to_arrow().column("carrier").to_pylist() == ["true"]
        with checked_shuffles(spark):
            with checked_shuffles(spark):
                pass
            assert spark.conf.get(SETTINGS[1]) == "true", "another change still runs"
        assert spark.conf.get(SETTINGS[1]) == "false"
    finally:
        for name, value in zip(SETTINGS, before, strict=True):
            spark.conf.set(name, value)
