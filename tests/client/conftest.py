"""A table for the client's tests."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])


@pytest.fixture
def flights(lake: Lake) -> TableHandle:
    """An empty table, partitioned by carrier."""
    return lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
