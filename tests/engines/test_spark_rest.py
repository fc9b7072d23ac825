"""Spark 4.1 with Iceberg's runtime reads a lake through REST: rows, history, and the tables about the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from tests.catalog.exported_lake import ExportedLake, long_story
from tests.catalog.served_catalog import served
from tests.engines.iceberg_spark import IcebergSpark, SparkRefused
from tests.engines.same_rows import plain

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

COLUMNS = ["id", "carrier", "delay"]


@dataclass(frozen=True)
class Served:
    """A table with a history behind it, and its name in Spark."""

    table: TableHandle
    name: str
    spark: IcebergSpark
    format_version: int

    def rows(self, more: str = "", columns: str = "id, carrier, delay") -> pa.Table:
        return self.spark.rows(f"select {columns} from {self.name} {more}")

    def about(self, what: str, columns: str = "*") -> list[dict[str, object]]:
        found: list[dict[str, object]] = self.spark.rows(f"select {columns} from {self.name}.{what}").to_pylist()
        return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TableHandle, str]]:
    folder = tmp_path_factory.mktemp("served")
    with connect(folder) as opened:
        exported = ExportedLake(folder, opened)
        long_story(exported)
        exported.table.tag("kept", version=4)
        exported.table.delete_where("id = 7 or id = 500")
        with served(folder) as address:
            yield exported.table, address


@pytest.fixture(scope="module", params=[2, 3])
def seen(lake: tuple[TableHandle, str], iceberg_spark: IcebergSpark, request: pytest.FixtureRequest) -> Served:
    table, address = lake
    catalog = f"rest_v{request.param}"
    iceberg_spark.rest_catalog(catalog, address, warehouse=f"v{request.param}")
    return Served(table, f"{catalog}.demo.flights", iceberg_spark, request.param)


def test_rows_and_filters(seen: Served) -> None:
    assert plain(seen.rows()) == plain(seen.table.scan(columns=COLUMNS).to_arrow())
    for where in ("carrier = 'UA' and id > 30", "carrier is null", "id in (35, 41)", "delay > 15"):
        assert plain(seen.rows(f"where {where}")) == plain(seen.table.scan(where, COLUMNS).to_arrow()), where


def test_rows_of_earlier_versions_by_snapshot_and_by_tag(seen: Served) -> None:
    head = seen.table.head().version
    for version in (head - 2, head - 5):  # the version between has a tag and no snapshot
        [header] = [header for header in seen.table.history(limit=100) if header.version == version]
        theirs = seen.rows(f"version as of {header.snapshot.snapshot_id}")
        assert plain(theirs) == plain(seen.table.scan(columns=COLUMNS, version=version).to_arrow())
    for tag in ("before", "kept"):
        assert plain(seen.rows(f"version as of '{tag}'")) == plain(seen.table.scan(columns=COLUMNS, tag=tag).to_arrow())


def test_snapshots_history_and_refs(seen: Served) -> None:
    listed = {header.snapshot.snapshot_id: header for header in seen.table.history(limit=100)}
    snapshots = seen.about("snapshots", "snapshot_id, parent_id, operation, summary")
    assert len(snapshots) >= 10
    numbers = {int(snapshot_id): header.version for snapshot_id, header in listed.items()}
    versions = [numbers[int(str(row["snapshot_id"]))] for row in snapshots]
    for row, version in zip(snapshots, versions, strict=True):
        parent = numbers[int(str(row["parent_id"]))]
        assert parent == max(versions[: versions.index(version)], default=version - 1) or parent not in versions
    history = seen.about("history", "snapshot_id, is_current_ancestor")
    assert history[-1]["snapshot_id"] == seen.table.head().snapshot.snapshot_id
    refs = {row["name"]: (row["type"], row["snapshot_id"]) for row in seen.about("refs")}
    by_version = {header.version: header.snapshot.snapshot_id for header in listed.values()}
    assert refs == {
        "main": ("BRANCH", by_version[seen.table.head().version]),
        "before": ("TAG", by_version[6]),
        "kept": ("TAG", by_version[4]),
    }


def test_a_table_without_rows_has_no_snapshot_and_new_columns_are_there_at_once(
    iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    with connect(tmp_path / "lake") as opened, served(tmp_path / "lake") as address:
        table = opened.create_table("demo.empty", {"id": "long"})
        for form in ("v2", "v3"):
            iceberg_spark.rest_catalog(f"empty_{form}", address, warehouse=form, **{"cache-enabled": "false"})
            assert iceberg_spark.rows(f"select * from empty_{form}.demo.empty").num_rows == 0
            assert iceberg_spark.rows(f"select * from empty_{form}.demo.empty.snapshots").num_rows == 0
        table.append([{"id": 1}])
        with table.alter() as change:
            change.add_column("more", "int")
        for form in ("v2", "v3"):
            found = iceberg_spark.rows(f"select * from empty_{form}.demo.empty").to_pylist()
            assert found == [{"id": 1, "more": None}]
            assert iceberg_spark.rows(f"select * from empty_{form}.demo.empty.snapshots").num_rows == 1


def test_files_entries_and_partitions(seen: Served) -> None:
    files = seen.about("files", "content, record_count, file_path")
    ours = list(seen.table.scan().plan())
    data = [row for row in files if row["content"] == 0]
    assert sorted(str(row["file_path"]).rsplit("/", 1)[1] for row in data) == sorted(
        task.data.location.rsplit("/", 1)[1] for task in ours
    )
    deleted = sum(int(str(row["record_count"])) for row in files if row["content"] == 1)
    total = seen.table.head().totals
    assert (sum(int(str(row["record_count"])) for row in data), deleted) == (total.rows, total.deleted_rows)
    entries = seen.about("entries", "status, sequence_number, data_file.content as content")
    assert sum(row["status"] != 2 and row["content"] == 0 for row in entries) == len(data)
    assert all(row["sequence_number"] is not None for row in entries)
    partitions = seen.about("partitions", "partition, record_count, file_count")
    assert sum(int(str(row["file_count"])) for row in partitions) == len(data)


def test_a_table_that_is_not_there_is_not_found(seen: Served) -> None:
    with pytest.raises(SparkRefused, match="absent") as refused:
        seen.spark.rows(f"select * from {seen.name.replace('flights', 'absent')}")
    assert refused.value.condition == "TABLE_OR_VIEW_NOT_FOUND"


def test_row_ids_are_those_of_the_table(seen: Served) -> None:
    if seen.format_version == 2:
        return  # V2 has none
    columns = ["id", "_row_id", "_last_updated_sequence_number"]
    assert plain(seen.rows(columns=", ".join(columns))) == plain(seen.table.scan(columns=columns).to_arrow())


def test_spark_can_write_nothing(seen: Served) -> None:
    before = seen.table.head()
    with pytest.raises(SparkRefused):
        seen.spark.run(f"insert into {seen.name} values (1, 'UA', 1.0)")
    assert seen.table.head() == before
