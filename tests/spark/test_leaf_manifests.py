"""Java's readers of Parquet find in a leaf manifest what Arrow's finds."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rootline.schemas.bytes.leaf_codec import LeafContent, encode_leaf
from tests.schemas.leaf_examples import LEAF_UUID, data_entry, definition

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("vectorized", ["true", "false"])  # by Spark itself, or by parquet-mr
def test_sparks_reader_finds_each_value_of_a_leaf(spark: SparkSession, tmp_path: Path, vectorized: str) -> None:
    entries = [data_entry(number) for number in range(2_000)]
    leaf = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    path = tmp_path / "leaf.parquet"
    path.write_bytes(leaf.body)
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    found = session.read.parquet(str(path)).toArrow()
    assert found.num_rows == len(entries)
    assert found.equals(pq.read_table(path).cast(found.schema))
