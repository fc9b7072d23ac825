"""DuckDB reads every version of a table that has been through everything, as it is scanned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootline.catalog.export_keys import FormatVersion
from rootline.connect import connect
from tests.catalog.exported_lake import ExportedLake, long_story, sorted_rows
from tests.engines.duckdb_reader import open_duckdb

COLUMNS = ["id", "carrier", "delay"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExportedLake]:
    folder = tmp_path_factory.mktemp("exported")
    with connect(folder) as lake:
        made = ExportedLake(folder, lake)
        long_story(made)
        yield made


@pytest.mark.parametrize("format_version", list(FormatVersion))
def test_every_version_of_a_long_story_is_read_as_it_is_scanned(
    exported: ExportedLake, format_version: FormatVersion
) -> None:
    with open_duckdb() as duckdb:
        for version in range(exported.head + 1):
            theirs = duckdb.rows(exported.export(format_version, version).metadata_location, columns=COLUMNS)
            assert sorted_rows(theirs) == sorted_rows(exported.table.scan(version=version).to_arrow()), version


@pytest.mark.parametrize("format_version", list(FormatVersion))
def test_filters_find_what_is_there_through_partitions_and_statistics(
    exported: ExportedLake, format_version: FormatVersion
) -> None:
    location = exported.export(format_version).metadata_location
    with open_duckdb() as duckdb:
        for where in ("carrier = 'UA'", "carrier is null", "id = 35", "delay > 15 and carrier = 'AA'", "id < 0"):
            theirs = duckdb.rows(location, columns=COLUMNS, where=where)
            assert sorted_rows(theirs) == sorted_rows(exported.table.scan(where).to_arrow()), where
