"""Files that a table had and takes no more are known before an intent names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.client.data_file import DataFile
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from rootline.spark.added_folder import refused_by, refused_locations
from tests.client.change.test_equality_deletes import _rows
from tests.tree.sweeps import swept_lake
from tests.tree.tables import append

_MORE_THAN_A_HEADER_HOLDS = 34


def refused(lake: Lake, table: TableHandle, locations: set[str]) -> frozenset[str]:
    header = table.head()
    return lake.holder.run(lambda session: refused_locations(session.store, header, locations))


def located(table: TableHandle) -> set[str]:
    return {task.location for task in table.scan().plan()}


def test_what_was_rewritten_is_refused_and_what_was_deleted_is_not(
    lake: Lake, folder: Path, flights: TableHandle
) -> None:
    flights.append(_rows(100, carrier="AA"))
    deleted = located(flights)
    flights.delete_where("carrier = 'AA'")
    for id_ in range(_MORE_THAN_A_HEADER_HOLDS):
        flights.append(_rows(id_))
    rewritten = located(flights)
    assert refused(lake, flights, rewritten | deleted) == frozenset()
    flights.rewrite()
    assert flights.head().locations.retired.pages
    assert refused(lake, flights, rewritten | deleted | located(flights)) == rewritten
    place = folder / "demo" / "flights" / min(rewritten)
    file = DataFile.from_parquet(min(rewritten), flights.definition(), source=place)
    with pytest.raises(Invalid, match="file-removed"):
        flights.add_files([file, file.model_copy(update={"location": "data/new.parquet"})])


def test_what_was_rewritten_before_a_restore_is_refused_too(lake: Lake, flights: TableHandle) -> None:
    for id_ in range(2):
        flights.append(_rows(id_))
    version, first = flights.head().version, located(flights)
    flights.rewrite()
    second = located(flights)
    flights.restore(version)
    assert refused(lake, flights, first - located(flights)) == frozenset()
    flights.rewrite()
    assert refused(lake, flights, first | second) >= first


def test_what_is_condemned_is_refused() -> None:
    lake = swept_lake(append("a"))
    lake.days_pass(20)
    lake.put(lake.sweep("s", ["data/gone.parquet"], horizon_ms=lake.youngest_ms))
    assert lake.is_condemned("data/gone.parquet")
    header, pages = lake.head.header, lake.head.pages
    assert refused_by(header, pages, ["data/gone.parquet", "data/new.parquet"]) == {"data/gone.parquet"}
