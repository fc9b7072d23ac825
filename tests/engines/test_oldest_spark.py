"""The data source under the oldest PySpark that it may have, in a process of its own and without Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.iceberg_software import SPARK, iceberg_software

pytestmark = [pytest.mark.services, pytest.mark.spark]
SOURCES = Path(__file__).parents[2] / "src"
WRITTEN_AND_READ = """
import sys
import pyarrow as pa
import pyspark
import rootline
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from rootline.spark.data_source import RootlineDataSource

assert pyspark.__version__ == sys.argv[2], pyspark.__file__
rows = pa.record_batch({"id": [1, 2], "at": pa.array([3, 4], pa.timestamp("us", "UTC")), "carrier": ["UA", None]})
options = {"path": "demo.flights", "warehouse": sys.argv[1], "createTable": "true"}
writer = RootlineDataSource(options).writer(from_arrow_schema(rows.schema), False)
writer.commit([writer.write(iter([rows]))])
source = RootlineDataSource({"path": "demo.flights", "warehouse": sys.argv[1]})
reader = source.reader(source.schema())
found = pa.Table.from_batches(batch for partition in reader.partitions() for batch in reader.read(partition))
assert found.schema == to_arrow_schema(source.schema()), found.schema
assert found.to_pylist() == rows.to_pylist(), found
"""


def test_the_oldest_spark_that_is_allowed_writes_and_reads(tmp_path: Path) -> None:
    (packages,) = iceberg_software().python.parents[1].glob("lib/python3*/site-packages")
    done = subprocess.run(
        [sys.executable, "-c", WRITTEN_AND_READ, str(tmp_path / "lake"), SPARK],
        env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{SOURCES}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
