"""Embedded lakes for the client's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.connect import connect

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The warehouse."""
    return tmp_path / "lake"


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    """An embedded lake in a folder."""
    with connect(folder) as opened:
        yield opened


@pytest.fixture
def flights(lake: Lake) -> TableHandle:
    """An empty table, partitioned by carrier."""
    return lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
