"""The complete jobs in docs/spark.md run as they are written, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rootline.client.lake import Lake
from rootline.spark import register

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def jobs() -> list[str]:
    """The blocks that a line which begins with "A job that" introduces."""
    return re.findall(r"^A job that[^\n]*\n\n```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_jobs_of_the_page_make_a_table_replace_a_day_and_correct_rows(
    spark: SparkSession, lake: Lake, folder: Path
) -> None:
    making, correcting = jobs()
    try:
        for job in (making, making, correcting):
            exec(compile(job.replace("/data/lake", str(folder)), str(PAGE), "exec"), {"spark": spark})
    finally:
        spark.conf.unset("spark.rootline.warehouse")
        register(spark)
    rows = lake.table("demo.arrivals").scan().to_arrow().to_pylist()
    assert sorted((row["id"], str(row["day"]), row["carrier"]) for row in rows) == [
        (1, "2013-01-31", "new UA"),
        (3, "2013-02-01", "B6"),
    ]
