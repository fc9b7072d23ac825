"""Creating a table that may be there already."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rootline.connect import connect
from rootline.schemas.errors import Invalid
from tests.client.conftest import SCHEMA

pytestmark = pytest.mark.slow


def test_a_table_that_is_there_with_the_same_definition_is_what_was_wanted(folder: Path) -> None:
    with connect(folder) as lake:
        for number in range(2):
            table = lake.create_table("demo.t", SCHEMA, partition_by=["carrier"], if_not_exists=True)
            table.append({"id": [number], "carrier": ["UA"], "delay": [0.0]})
        assert table.scan().count() == 2


def test_a_table_that_is_there_with_another_definition_is_refused_with_what_differs(folder: Path) -> None:
    with connect(folder) as lake:
        lake.create_table("demo.t", SCHEMA, partition_by=["carrier"])
        with pytest.raises(Invalid, match=r"partition_by: .*there, .*given") as caught:
            lake.create_table("demo.t", SCHEMA, partition_by=["id"], if_not_exists=True)
        assert caught.value.code == "table-exists"
        with pytest.raises(Invalid, match=r"the schema: .*delay"):
            lake.create_table("demo.t", pa.schema([("id", pa.int64())]), if_not_exists=True)
        with pytest.raises(Invalid, match="table-exists"):
            lake.create_table("demo.t", SCHEMA, partition_by=["carrier"])
