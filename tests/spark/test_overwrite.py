"""What an overwrite of Spark's replaces: rows of a filter, the partitions that it brings, and nothing else."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rootline import Invalid
from rootline.client.lake import Lake
from rootline.client.merged_rows import MergePlan
from rootline.client.table_handle import TableHandle
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import MergedWrite
from rootline.spark.data_source import RootlineDataSource
from rootline.spark.replaced_rows import filter_of_partitions
from rootline.spark.source_writers import BatchWriter
from tests.spark.conftest import FLIGHTS


class Sparks:
    """Writes as Spark's workers do, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def writer(self, overwrite: bool = True, table: str = "demo.flights", **options: str) -> BatchWriter:
        source = RootlineDataSource({"path": table, "warehouse": str(self.folder), **options})
        writer = source.writer(from_arrow_schema(FLIGHTS), overwrite)
        assert isinstance(writer, BatchWriter)
        return writer

    def overwrite(self, *rows: tuple[int, str | None], **options: str) -> None:
        writer = self.writer(**options)
        writer.commit([writer.write(iter([batch(*rows)] if rows else []))])


def batch(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    made = [{"id": number, "carrier": carrier, "delay": None} for number, carrier in rows]
    return pa.RecordBatch.from_pylist(made, schema=FLIGHTS)


@pytest.fixture
def sparks(folder: Path) -> Sparks:
    return Sparks(folder)


def found(table: TableHandle) -> list[tuple[int, str | None]]:
    rows: list[dict[str, Any]] = table.scan(columns=["id", "carrier"]).to_arrow().to_pylist()
    return sorted((row["id"], row["carrier"]) for row in rows)


def test_a_dynamic_overwrite_replaces_the_partitions_that_it_brings(flights: TableHandle, sparks: Sparks) -> None:
    flights.append(pa.Table.from_batches([batch((1, "UA"), (2, "AA"), (3, None), (4, "O'Hare"))]))
    flights.append(pa.Table.from_batches([batch((5, "UA"))]))
    sparks.overwrite((10, "UA"), (11, None), (12, "DL"), partitionOverwriteMode="dynamic")
    assert found(flights) == [(2, "AA"), (4, "O'Hare"), (10, "UA"), (11, None), (12, "DL")]
    version = flights.head().version
    sparks.overwrite(partitionOverwriteMode="dynamic")
    assert flights.head().version == version, "nothing was brought, so nothing was replaced"
    sparks.overwrite((20, "O'Hare"), partitionOverwriteMode="DYNAMIC", isolationLevel="snapshot")
    assert found(flights) == [(2, "AA"), (10, "UA"), (11, None), (12, "DL"), (20, "O'Hare")]
    sparks.overwrite((30, "UA"), partitionOverwriteMode="static")
    assert found(flights) == [(30, "UA")]
    assert list(flights.check()) == []


def test_rows_of_files_of_another_spec_are_told_apart_one_by_one(lake: Lake, sparks: Sparks) -> None:
    table = lake.create_table("demo.flights", FLIGHTS)
    table.append(pa.Table.from_batches([batch((1, "UA"), (2, "AA"), (3, "UA"), (5, "AA"))]))
    table.append(pa.Table.from_batches([batch((4, "DL"))]))
    table.delete_where("id in (3, 5)")
    with table.alter() as change:
        change.add_partition_field("carrier")
    lineage = ["id", "_row_id", "_last_updated_sequence_number"]
    before = table.scan("id = 2", lineage).to_arrow()
    sparks.overwrite((10, "UA"), partitionOverwriteMode="dynamic")
    assert found(table) == [(2, "AA"), (4, "DL"), (10, "UA")]
    assert table.scan("id = 2", lineage).to_arrow() == before
    assert list(table.check()) == []


def test_without_partitions_a_dynamic_overwrite_replaces_everything(lake: Lake, sparks: Sparks) -> None:
    table = lake.create_table("demo.flights", FLIGHTS)
    table.append(pa.Table.from_batches([batch((1, "UA"))]))
    sparks.overwrite((2, "AA"), partitionOverwriteMode="dynamic")
    assert found(table) == [(2, "AA")]


def test_replace_where_replaces_the_rows_that_match_and_brings_no_others(flights: TableHandle, sparks: Sparks) -> None:
    flights.append(pa.Table.from_batches([batch(*((number, "UA") for number in range(6)), (6, "AA"))]))
    flights.delete_where("id = 5")
    sparks.overwrite((1, "AA"), (2, "UA"), replaceWhere="id < 4 and id >= 1")
    assert found(flights) == [(0, "UA"), (1, "AA"), (2, "UA"), (4, "UA"), (6, "AA")]
    with pytest.raises(Invalid, match="1 of 2 rows do not match replaceWhere") as refused:
        sparks.overwrite((1, "AA"), (4, "UA"), replaceWhere="id < 4")
    assert refused.value.code == "rows-invalid"
    with pytest.raises(Invalid, match="there is no column 'gate'"):
        sparks.overwrite((1, "AA"), replaceWhere="gate = 4")
    sparks.overwrite(replaceWhere="id < 4")
    assert found(flights) == [(4, "UA"), (6, "AA")]
    assert list(flights.check()) == []


@pytest.mark.parametrize(
    ("options", "conflicting", "left"),
    [
        ({"partitionOverwriteMode": "dynamic"}, (7, "UA"), [(2, "AA"), (10, "UA")]),
        ({"partitionOverwriteMode": "dynamic"}, (7, "AA"), [(2, "AA"), (7, "AA"), (10, "UA")]),
        ({"replaceWhere": "carrier = 'UA'"}, (7, "UA"), [(2, "AA"), (10, "UA")]),
        ({"partitionOverwriteMode": "dynamic", "isolationLevel": "snapshot"}, (7, "UA"), None),
    ],
)
def test_rows_that_slip_in_are_replaced_too_unless_the_isolation_says_otherwise(
    flights: TableHandle,
    sparks: Sparks,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    conflicting: tuple[int, str],
    left: list[tuple[int, str]] | None,
) -> None:
    from rootline.spark import batch_commit

    flights.append(pa.Table.from_batches([batch((1, "UA"), (2, "AA"))]))
    decide = batch_commit.decided
    seen: list[Any] = []

    def late(*given: Any) -> Any:
        if not seen:
            flights.append(pa.Table.from_batches([batch(conflicting)]))
        seen.append(decide(*given))
        return seen[-1]

    monkeypatch.setattr(batch_commit, "decided", late)
    sparks.overwrite((10, "UA"), **options)
    assert found(flights) == ([(2, "AA"), (7, "UA"), (10, "UA")] if left is None else left)
    codes = [verdict.code for verdict in seen]
    assert codes == ([None] if left is None or conflicting[1] == "AA" else ["isolation-conflict", None])


def test_rows_that_stay_keep_a_column_that_was_added_while_the_batch_was_written(
    flights: TableHandle, sparks: Sparks
) -> None:
    writer = sparks.writer(replaceWhere="id < 5")
    written = writer.write(iter([batch((1, "UA"))]))
    with flights.alter() as change:
        change.add_column("seat", "string").rename_column("delay", "late")
    flights.append([{"id": number, "carrier": "AA", "seat": f"{number}A", "late": 1.5} for number in (2, 8)])
    writer.commit([written])
    rows = flights.scan(columns=["id", "seat", "late"]).to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "seat": None, "late": None},
        {"id": 8, "seat": "8A", "late": 1.5},
    ]
    assert list(flights.check(data_files="all")) == []


def test_rows_that_stay_keep_a_column_that_was_added_while_the_overwrite_was_planned(
    flights: TableHandle, sparks: Sparks, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = pa.field("gate", pa.string())
    source = RootlineDataSource(
        {"path": "demo.flights", "warehouse": str(sparks.folder), "replaceWhere": "id < 5", "mergeSchema": "true"}
    )
    writer = source.writer(from_arrow_schema(FLIGHTS.append(gate)), True)
    assert isinstance(writer, BatchWriter)
    rows = batch((1, "UA")).append_column(gate, pa.array(["B7"]))
    written = writer.write(iter([rows]))
    with flights.alter() as change:
        change.add_column("gate", "string")
    on_head = MergedWrite.on_head

    def slowly(self: MergedWrite, *given: Any) -> MergePlan:
        plan = on_head(self, *given)
        with flights.alter() as change:
            change.add_column("seat", "string")
        flights.append([{"id": number, "carrier": "AA", "seat": f"{number}A"} for number in (2, 8)])
        return plan

    monkeypatch.setattr(MergedWrite, "on_head", slowly)
    writer.commit([written])
    found = flights.scan(columns=["id", "gate", "seat"]).to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "gate": "B7", "seat": None},
        {"id": 8, "gate": None, "seat": "8A"},
    ]


@pytest.mark.parametrize("overwrite", [True, False])
def test_files_for_columns_that_exchanged_their_names_are_refused_at_once(
    flights: TableHandle, sparks: Sparks, overwrite: bool
) -> None:
    """Each plan would have the same files, so a second one is refused too, until the time is up."""
    options = {"verdictTimeoutMs": "20000", **({"replaceWhere": "id < 5"} if overwrite else {})}
    writer = sparks.writer(overwrite, **options)
    written = writer.write(iter([batch((1, "UA"))]))
    with flights.alter() as change:
        change.rename_column("id", "other").rename_column("delay", "id").rename_column("other", "delay")
    version = flights.head().version
    with pytest.raises(Invalid, match="in which 'id' is another column than now") as refused:
        writer.commit([written])
    assert refused.value.code == "definition-changed"
    assert flights.head().version == version + 1, "one intent was published, and its rejection is a version"


def test_a_write_makes_the_table_and_the_warehouse_that_are_not_there(lake: Lake, sparks: Sparks) -> None:
    create = {"createTable": "true", "partitionedBy": "carrier, bucket(4, id)", "sortedBy": "-id"}
    for number in (1, 2):
        writer = sparks.writer(overwrite=False, table="demo.made", **create)
        writer.commit([writer.write(iter([batch((number, "UA"), (number + 10, "UA"))]))])
    table = lake.table("demo.made")
    definition = table.definition()
    assert len(definition.spec_by_id(definition.default_spec_id).expr_ids) == 2
    assert found(table) == [(1, "UA"), (2, "UA"), (11, "UA"), (12, "UA")]
    assert definition.default_sort_order_id == 1
    with pytest.raises(Invalid, match="table-unknown"):
        sparks.writer(table="demo.other")


def test_options_that_say_two_things_or_nothing_are_refused(flights: TableHandle, sparks: Sparks) -> None:
    assert found(flights) == []
    with pytest.raises(Invalid, match="select the replaced rows: set one"):
        sparks.writer(replaceWhere="id = 1", partitionOverwriteMode="dynamic")
    with pytest.raises(Invalid, match=r"mode\('overwrite'\)"):
        sparks.writer(overwrite=False, replaceWhere="id = 1")
    with pytest.raises(Invalid, match="set 'createTable' to 'true' too"):
        sparks.writer(partitionedBy="carrier")
    source = RootlineDataSource({"path": "demo.flights", "warehouse": str(sparks.folder), "replaceWhere": "id = 1"})
    with pytest.raises(Invalid, match="no meaning for a streaming write"):
        source.streamWriter(from_arrow_schema(FLIGHTS), False)


COLUMNS = pa.schema(
    [
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("ok", pa.bool_()),
        ("x", pa.float64()),
    ]
)


@pytest.mark.parametrize(
    ("partition_by", "values", "said"),
    [
        (["day"], (dt.date(2013, 1, 31).toordinal() - 719163,), "(\"day\" = '2013-01-31')"),
        (["month(day)"], (516,), "(\"day\" >= '2013-01-01' and \"day\" < '2013-02-01')"),
        (["hour(at)"], (0,), "(\"at\" >= '1970-01-01T00:00:00' and \"at\" < '1970-01-01T01:00:00')"),
        (["year(at)"], (-1,), "(\"at\" >= '1969-01-01T00:00:00' and \"at\" < '1970-01-01T00:00:00')"),
        (["ok", "bucket(4, n)"], (True, 3), '("ok" = true)'),
        (["n"], (None,), '("n" is null)'),
        (["bucket(4, n)"], (3,), None),
        (["x"], (1.5,), None),
        (["year(at)"], (9_000,), None),
        (["day(at)"], (None,), None),
    ],
)
def test_partitions_become_a_filter_as_far_as_it_can_say_them(
    lake: Lake, partition_by: list[str], values: tuple[Any, ...], said: str | None
) -> None:
    definition: TableDefinition = lake.create_table("demo.t", COLUMNS, partition_by=partition_by).definition()
    text = filter_of_partitions(definition, definition.spec_by_id(0), [values])
    assert text == said
    if text is not None:
        lake.table("demo.t").scan(where=text).count()
    assert filter_of_partitions(definition, definition.spec_by_id(0), [values] * 2 + [(None,) * len(values)] * 900) in (
        None,
        filter_of_partitions(definition, definition.spec_by_id(0), [values, (None,) * len(values)]),
    )
