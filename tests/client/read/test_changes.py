"""Deleting and replacing rows by a filter."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rootline.client.lake import Lake
from rootline.client.session import RowCounts
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.errors import Invalid
from tests.client.conftest import SCHEMA
from tests.support.examples import examples

Row = tuple[int, str | None, float | None]


def put(table: TableHandle, *rows: Row) -> None:
    """Append rows."""
    table.append(_columns(list(rows)))


def rows_of(table: TableHandle) -> list[Row]:
    """All rows, in a fixed order."""
    read = [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]
    return sorted(read, key=repr)


def _columns(rows: list[Row]) -> dict[str, list[object]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(SCHEMA.names)}


def test_deleted_rows_are_gone_and_no_data_file_is_rewritten(flights: TableHandle, folder: Path) -> None:
    put(flights, (1, "UA", 5.0), (2, "UA", None), (3, "UA", 70.0))
    files = set(folder.glob("demo/flights/data/**/*.parquet"))
    commit = flights.delete_where("delay > 60")
    assert rows_of(flights) == [(1, "UA", 5.0), (2, "UA", None)]
    assert set(folder.glob("demo/flights/data/**/*.parquet")) == files
    assert (commit.is_new, commit.rows) == (True, RowCounts(0, 0, 1))
    assert flights.head().totals.vectors == 1


def test_a_second_delete_keeps_the_rows_of_the_first_deleted(flights: TableHandle) -> None:
    put(flights, *((number, "UA", float(number)) for number in range(10)))
    flights.delete_where("id < 3")
    flights.delete_where("id > 6")
    assert [row[0] for row in rows_of(flights)] == [3, 4, 5, 6]
    assert flights.head().totals.vectors == 1
    assert flights.head().totals.deleted_rows == 6


def test_files_that_match_whole_are_removed_without_a_vector(flights: TableHandle) -> None:
    put(flights, (1, "UA", 5.0), (2, "AA", 6.0))
    flights.delete_where("carrier = 'UA'")
    assert rows_of(flights) == [(2, "AA", 6.0)]
    totals = flights.head().totals
    assert (totals.data_files, totals.vectors) == (1, 0)


def test_whole_and_partial_files_go_in_one_commit(flights: TableHandle) -> None:
    put(flights, (1, "UA", 5.0), (2, "AA", 6.0), (3, "AA", 1.0))
    before = flights.head().version
    flights.delete_where("delay >= 5")
    assert rows_of(flights) == [(3, "AA", 1.0)]
    assert flights.head().version == before + 1


def test_deleting_nothing_makes_no_version(flights: TableHandle) -> None:
    put(flights, (1, "UA", 5.0))
    before = flights.head().version
    for nothing in (
        flights.delete_where("delay > 60"),
        flights.delete_where("carrier = 'ZZ'"),
        flights.overwrite(SCHEMA.empty_table(), where="delay > 60"),
    ):
        assert (nothing.version, nothing.is_new, nothing.rows) == (before, False, RowCounts(0, 0, 0))
    assert flights.head().version == before


def test_deleting_the_same_rows_again_makes_no_version(flights: TableHandle) -> None:
    put(flights, (1, "UA", 5.0), (2, "UA", 6.0), (3, "AA", 5.0), (4, "AA", 5.0))
    assert flights.delete_where("delay = 5").is_new
    assert not flights.delete_where("delay = 5").is_new
    assert rows_of(flights) == [(2, "UA", 6.0)]


def test_rows_whose_test_is_unknown_are_kept(flights: TableHandle) -> None:
    put(flights, (1, "UA", None), (2, "UA", 6.0), (3, None, 6.0))
    flights.delete_where("not (delay < 5)")
    assert rows_of(flights) == [(1, "UA", None)]
    put(flights, (2, "UA", 6.0), (3, None, 7.0))
    flights.overwrite(_columns([(9, "UA", 0.0)]), where="carrier != 'AA'")
    assert rows_of(flights) == [(3, None, 7.0), (9, "UA", 0.0)]


def test_an_overwrite_replaces_the_matching_rows_only(flights: TableHandle) -> None:
    put(flights, (1, "UA", 5.0), (2, "UA", 70.0), (3, "AA", 80.0), (4, "AA", 90.0))
    flights.overwrite(_columns([(2, "UA", 0.0), (5, "DL", 0.0)]), where="delay > 60")
    assert rows_of(flights) == [(1, "UA", 5.0), (2, "UA", 0.0), (5, "DL", 0.0)]
    assert list(flights.check()) == []


def test_an_overwrite_keeps_deleted_rows_deleted(flights: TableHandle) -> None:
    put(flights, (1, "UA", 5.0), (2, "UA", 70.0), (3, "UA", 80.0))
    flights.delete_where("id = 1")
    flights.overwrite(_columns([(4, "UA", 0.0)]), where="id = 2")
    assert rows_of(flights) == [(3, "UA", 80.0), (4, "UA", 0.0)]
    assert flights.head().totals.vectors == 0


def test_an_overwrite_without_a_filter_replaces_everything(flights: TableHandle) -> None:
    put(flights, (1, "UA", 5.0), (2, "AA", 70.0))
    flights.overwrite(_columns([(3, "DL", None)]))
    assert rows_of(flights) == [(3, "DL", None)]
    flights.overwrite(SCHEMA.empty_table())
    assert rows_of(flights) == []
    assert not flights.overwrite(SCHEMA.empty_table()).is_new


def test_many_deletes_of_one_file_at_once_all_land(flights: TableHandle) -> None:
    put(flights, *((number, "UA", 0.0) for number in range(40)))

    def delete(part: int) -> None:
        flights.delete_where(f"id >= {part * 8} and id < {part * 8 + 4}", timeout_s=60)

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(delete, range(5)))
    assert [row[0] for row in rows_of(flights)] == sorted(
        (number for number in range(40) if number % 8 >= 4), key=lambda number: repr((number, "UA", 0.0))
    )


def test_overwrites_of_one_row_at_once_leave_one_winner_and_lose_no_other_row(flights: TableHandle) -> None:
    put(flights, *((number, "UA", 0.0) for number in range(6)))

    def overwrite(value: int) -> None:
        flights.overwrite(_columns([(3, "UA", float(value))]), where="id = 3", timeout_s=60)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(overwrite, (10, 20, 30)))
    read = rows_of(flights)
    assert [row[0] for row in read] == list(range(6))
    assert read[3][2] in (10.0, 20.0, 30.0)
    assert list(flights.check()) == []


@pytest.mark.parametrize("change", [lambda t: t.delete_where("id ="), lambda t: t.overwrite([], where="nowhere = 1")])
def test_a_change_with_a_filter_that_cannot_be_used_is_refused(
    flights: TableHandle, change: Callable[[TableHandle], object]
) -> None:
    with pytest.raises(Invalid) as caught:
        change(flights)
    assert caught.value.code == "filter-invalid"


def test_an_unknown_isolation_is_refused(flights: TableHandle) -> None:
    with pytest.raises(Invalid, match="snapshot or serializable"):
        flights.delete_where("id = 1", isolation="chaos")


ROW = st.tuples(
    st.integers(0, 5), st.sampled_from(["UA", "AA", None]), st.one_of(st.none(), st.sampled_from([0.0, 5.0, 70.0]))
)
FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ("id < 3", lambda row: row[0] < 3),
    ("carrier = 'UA'", lambda row: row[1] == "UA"),
    ("carrier is null", lambda row: row[1] is None),
    ("delay > 1 and id != 4", lambda row: row[2] is not None and row[2] > 1 and row[0] != 4),
    ("delay is null or carrier = 'AA'", lambda row: row[2] is None or row[1] == "AA"),
]
STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(ROW, min_size=1, max_size=6)),
    st.tuples(st.just("delete"), st.sampled_from(range(len(FILTERS)))),
    st.tuples(st.just("overwrite"), st.sampled_from(range(len(FILTERS))), st.lists(ROW, max_size=3)),
)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, min_size=1, max_size=8))
def test_a_table_holds_what_a_list_of_rows_would(steps: list[tuple[object, ...]]) -> None:
    model: list[Row] = []
    with connect("memory://") as lake:
        table = lake.create_table("demo.t", SCHEMA, partition_by=["bucket(2, carrier)"])
        for step in steps:
            model = _carried_out(lake, table, model, step)
            assert rows_of(table) == sorted(model, key=repr)
        assert list(table.check()) == []


def _carried_out(lake: Lake, table: TableHandle, model: list[Row], step: tuple[object, ...]) -> list[Row]:
    match step:
        case ("append", list(rows)):
            put(table, *rows)
            return model + rows
        case ("delete", int(at)):
            text, matches = FILTERS[at]
            assert table.delete_where(text).is_new == any(map(matches, model))
            return [row for row in model if not matches(row)]
        case ("overwrite", int(at), list(rows)):
            text, matches = FILTERS[at]
            table.overwrite(SCHEMA.empty_table() if not rows else _columns(rows), where=text)
            return [row for row in model if not matches(row)] + rows
    raise AssertionError(step)
