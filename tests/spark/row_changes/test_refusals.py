"""What is refused before a job runs, and which conditions Rootline reads itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType
from pyspark.sql import functions as sql

import rootline.spark
from rootline import Invalid
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.spark.options import parse_options
from rootline.spark.row_change_job import begun, own_part, read_condition
from tests.catalog.iceberg_tables import FolderCatalog


def test_a_condition_is_read_by_rootline_only_where_spark_means_the_same(flights: TableHandle) -> None:
    schema = flights.definition().schema
    for same in ("id = 5", "carrier = 'UA' and not id in (1, 2)", "carrier is null", "carrier like 'U_'"):
        assert read_condition(same, schema) is not None
    for other in (
        "delay > 5",
        'carrier = "id"',
        "carrier = 'a\\'b'",
        "carrier = 'a''b'",
        "id > '1.5'",
        "id >= 1e18",
        "ID = 5",
        "length(carrier) = 2",
        sql,
        "id = id2",
        f"id in ({', '.join(map(str, range(20_000)))})",
    ):
        assert read_condition(other, schema) is None


def test_the_part_of_a_condition_for_one_side_is_true_wherever_the_condition_is() -> None:
    for condition, part in (
        ("target.id = source.id and target.id > 5 and TARGET.carrier = 'and'", "(id > 5) and (carrier = 'and')"),
        ("target.id > 5 and (source.id = target.id or target.id = 7)", "(id > 5)"),
        ("target.id > 5 or source.id = target.id", None),
        ("target.null = 5 and target.id = source.id", None),
        ("case when source.op and target.id = 5 and source.op then true end", None),
        ("target.id between source.id and target.id", None),
    ):
        assert own_part(condition, "target") == part


def test_a_table_whose_own_columns_hide_where_rows_are_is_refused(lake: Lake, folder: Any, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "_file", StringType(), required=False))  # a name that only an adopted table may have
    elsewhere = FolderCatalog(tmp_path / "elsewhere").make("t", schema, format_version=2)
    lake.adopt(elsewhere.metadata_location, "demo.t")
    options = parse_options({"path": "demo.t", "warehouse": str(folder)})
    with pytest.raises(Invalid, match="'_file' of its own, which hides the metadata column: rename it"):
        begun(options, None)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"on": ["id"], "condition": "true"}, "either `on` or `condition`"),
        ({"on": []}, "names no column"),
        ({"on": ["id"], "when_matched": None, "when_not_matched": None}, "does nothing"),
        ({"on": ["id"], "when_matched": "upsert"}, "write update or delete"),
        ({"on": ["id"], "mode": "fast"}, "merge-on-read or copy-on-write"),
        ({"on": ["id"], "createTable": True}, "'createTable' has no meaning for a change of rows"),
        ({"on": ["id"], "where": "id = 1"}, "'where' has no meaning for a change of rows"),
        ({"on": ["id"], "writerId": "w"}, "need each other"),
    ],
)
def test_calls_that_say_too_much_or_too_little_are_refused(call: dict[str, Any], said: str) -> None:
    class Settings:
        class conf:  # noqa: N801 -- as Spark's
            @staticmethod
            def get(name: str, default: Any) -> Any:
                return default

    class Source:
        columns = ("id",)

    given = {"warehouse": "/nowhere", **call}
    with pytest.raises(Invalid, match=said):
        rootline.spark.merge_into(Settings, "demo.flights", Source, **given)  # type: ignore[arg-type]
