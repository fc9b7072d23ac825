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


def test_a_program_that_creates_its_table_runs_again_after_the_table_has_evolved(folder: Path) -> None:
    with connect(folder) as lake:
        table = lake.create_table("demo.t", SCHEMA, partition_by=["carrier"], if_not_exists=True)
        with table.alter() as change:
            change.add_column("more", "int").drop_partition_field("carrier").set_properties({"owner": "me"})
        before = table.definition()
        again = lake.create_table("demo.t", SCHEMA, partition_by=["carrier"], if_not_exists=True)
        assert again.definition() == before


def test_a_table_that_lacks_a_column_is_refused_with_its_name(folder: Path) -> None:
    with connect(folder) as lake:
        lake.create_table("demo.t", SCHEMA)
        wanted = SCHEMA.append(pa.field("gate", pa.string()))
        with pytest.raises(Invalid, match=r"lacks the columns 'gate'.*union_by_name") as caught:
            lake.create_table("demo.t", wanted, if_not_exists=True)
        assert caught.value.code == "table-exists"
        with pytest.raises(Invalid, match="table-exists"):
            lake.create_table("demo.t", SCHEMA)
