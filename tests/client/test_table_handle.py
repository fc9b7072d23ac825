"""Tables as a program sees them: create, append, look back."""

from __future__ import annotations

import datetime as dt
import gc
import pickle
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rootline
from rootline.client.checks import hint
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.distribution import VERSION
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition

ROWS = {"id": [1, 2, 3], "carrier": ["UA", "AA", None], "delay": [5.0, None, -1.0]}


def ids(table: TableHandle, **options: Any) -> list[int]:
    """The ids that a scan yields, ascending."""
    return sorted(table.scan(**options).to_arrow().column("id").to_pylist())


def test_appended_rows_are_read_back_as_they_were(flights: TableHandle) -> None:
    commit = flights.append(ROWS)
    read = flights.scan().to_arrow().sort_by("id")
    assert read.to_pydict() == ROWS
    assert commit == rootline.Commit(1, flights.head().snapshot.snapshot_id, flights.head().snapshot.sequence_number)


@pytest.mark.parametrize(
    "data",
    [
        pa.table(ROWS),
        pa.RecordBatch.from_pydict(ROWS),
        pd.DataFrame({"id": [1, 2, 3], "carrier": ["UA", "AA", None], "delay": [5.0, None, -1.0]}),
        [{"id": 1, "carrier": "UA"}, {"id": 2, "carrier": "AA"}, {"id": 3}],
    ],
    ids=["table", "batch", "pandas", "dicts"],
)
def test_rows_may_come_in_any_usual_form(flights: TableHandle, data: Any) -> None:
    flights.append(data)
    assert ids(flights) == [1, 2, 3]


def test_a_table_of_a_taken_name_is_refused(lake: Lake, flights: TableHandle) -> None:
    with pytest.raises(Invalid) as caught:
        lake.create_table(flights.name, pa.schema([("id", pa.int64())]))
    assert caught.value.code == "table-exists"


def test_a_table_that_is_not_there_is_refused_by_name(lake: Lake) -> None:
    with pytest.raises(Invalid, match=r"demo\.planes") as caught:
        lake.table("demo.planes")
    assert caught.value.code == "table-unknown"


def test_the_tables_of_a_lake_are_listed_by_name(lake: Lake, flights: TableHandle) -> None:
    lake.create_table("demo.airports", pa.schema([("id", pa.int64())]))
    assert lake.list_tables() == ["demo.airports", flights.name]


def test_properties_and_partitioning_reach_the_definition(lake: Lake) -> None:
    table = lake.create_table(
        "demo.t", pa.schema([("id", pa.int64())]), partition_by=["bucket(4, id)"], properties={"owner": "me"}
    )
    definition = table.definition()
    assert isinstance(definition, TableDefinition)
    assert definition.properties["owner"] == "me"
    assert [expression.transform for expression in definition.expressions] == ["bucket[4]"]


def test_rows_that_do_not_fit_the_table_are_refused_before_anything_is_stored(
    flights: TableHandle, folder: Path
) -> None:
    with pytest.raises(Invalid, match="delay"):
        flights.append({"id": [1], "carrier": ["UA"], "delay": ["late"]})
    assert not list(folder.glob("demo/flights/data/**/*.parquet"))


@pytest.mark.parametrize("data", [7, "rows", b"rows"])
def test_what_cannot_hold_rows_cannot_be_appended(flights: TableHandle, data: Any) -> None:
    with pytest.raises(Invalid) as caught:
        flights.append(data)
    assert caught.value.code == "rows-invalid"


@pytest.mark.parametrize(
    "data", [[], {}, iter(()), pa.table({"id": pa.array([], pa.int64())}), pd.DataFrame({"id": [], "carrier": []})]
)
@pytest.mark.parametrize("merge_schema", [True, False])
def test_an_append_of_no_rows_is_a_success_without_a_commit(
    flights: TableHandle, data: Any, merge_schema: bool
) -> None:
    before = flights.append(ROWS)
    after = flights.append(data, merge_schema=merge_schema)
    assert (after, after.is_new, after.added_rows, after.deleted_rows) == (before, False, 0, 0)
    assert flights.add_files([]) == before
    assert flights.head().version == before.version


def test_no_rows_of_a_column_that_the_table_lacks_are_refused_as_rows_of_it_are(flights: TableHandle) -> None:
    with pytest.raises(Invalid, match="no column 'gate'"):
        flights.append(pa.table({"gate": pa.array([], pa.string())}))


def test_a_change_says_how_many_rows_it_added_and_deleted(flights: TableHandle) -> None:
    def counts(commit: rootline.Commit) -> tuple[int | None, int | None, bool]:
        return commit.added_rows, commit.deleted_rows, commit.is_new

    many = {"id": list(range(10)), "carrier": ["UA", "AA"] * 5}
    assert counts(flights.append(many)) == (10, 0, True)
    assert counts(flights.delete_where("id < 3")) == (0, 3, True)
    [rewritten] = flights.rewrite(where="carrier = 'UA'")
    assert counts(rewritten) == (0, 0, True)
    assert counts(flights.overwrite({"id": [20, 21]}, where="id < 5")) == (2, 2, True)
    assert counts(flights.append({"id": [30], "extra": [1]}, merge_schema=True)) == (1, 0, True)
    assert counts(flights.delete_where("carrier = 'AA'")) == (0, 3, True)
    assert counts(flights.overwrite([])) == (0, 5, True)
    assert flights.scan().count() == 0


def test_a_scan_yields_the_wanted_columns_of_matching_rows(flights: TableHandle) -> None:
    flights.append(ROWS)
    read = flights.scan(where="delay > 0 and carrier = 'UA'", columns=["delay", "id"]).to_arrow()
    assert read.column_names == ["delay", "id"]
    assert read.to_pylist() == [{"delay": 5.0, "id": 1}]
    assert flights.scan(columns=["delay", "id"]).schema().names == ["delay", "id"]


def test_batches_hold_the_same_rows_as_the_table_and_may_be_left_early(flights: TableHandle) -> None:
    flights.append(ROWS)
    batches = flights.scan().to_batches()
    first = next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert first.num_rows == 1
    assert sum(batch.num_rows for batch in flights.scan().to_batches()) == 3


def test_a_plan_names_only_files_that_may_match(flights: TableHandle) -> None:
    flights.append(ROWS)
    assert len(flights.scan().plan()) == 3
    assert len(flights.scan(where="carrier = 'UA'").plan()) == 1
    assert flights.scan(where="carrier = 'UA'").count() == 1


@pytest.mark.parametrize("where", ["delay >", "nowhere = 1", "delay = 'late'"])
def test_a_filter_that_cannot_be_used_is_refused(flights: TableHandle, where: str) -> None:
    with pytest.raises(Invalid) as caught:
        flights.scan(where=where).to_arrow()
    assert caught.value.code == "filter-invalid"


def test_every_version_can_be_read_by_number_snapshot_and_moment(flights: TableHandle) -> None:
    for number in range(4):
        flights.append({"id": [number], "carrier": ["UA"], "delay": [0.0]})
    history = flights.history()
    assert [item.version for item in history] == [4, 3, 2, 1, 0]
    for item in history:
        expected = list(range(item.version))
        moment = dt.datetime.fromtimestamp(item.snapshot.timestamp_ms / 1000, dt.UTC)
        assert ids(flights, version=item.version) == expected
        assert ids(flights, snapshot_id=item.snapshot.snapshot_id) == expected
        assert ids(flights, timestamp=item.snapshot.timestamp_ms) == expected
        assert ids(flights, timestamp=moment + dt.timedelta(microseconds=500)) == expected
    assert ids(flights, timestamp="2999-01-01T00:00:00Z") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("point", "code"),
    [
        ({"version": 9}, "version-unknown"),
        ({"version": -1}, "version-unknown"),
        ({"snapshot_id": 1}, "version-unknown"),
        ({"timestamp": "1970-01-02T00:00:00Z"}, "version-unknown"),
        ({"timestamp": "1970-01-02"}, "setting-invalid"),
        ({"tag": "release"}, "tag-unknown"),
        ({"timestamp": "yesterday"}, "setting-invalid"),
        ({"version": 0, "snapshot_id": 1}, "setting-invalid"),
    ],
)
def test_a_version_that_does_not_exist_is_refused(flights: TableHandle, point: dict[str, Any], code: str) -> None:
    with pytest.raises(Invalid) as caught:
        flights.scan(**point).to_arrow()
    assert caught.value.code == code


def test_history_reads_no_more_than_it_is_asked_for(flights: TableHandle) -> None:
    for number in range(3):
        flights.append({"id": [number], "carrier": ["UA"], "delay": [0.0]})
    assert [item.version for item in flights.history(limit=2)] == [3, 2]
    with pytest.raises(Invalid):
        flights.history(limit=0)


def test_a_table_and_a_scan_show_what_they_are(flights: TableHandle) -> None:
    flights.append(ROWS)
    assert flights.schema() == flights.scan().schema()
    assert flights.schema().names == ["id", "carrier", "delay"]
    assert repr(flights.scan()) == "<Scan of demo.flights; newest version>"
    scan = flights.scan("id > 1", ["id", "carrier"], limit=2, version=1)
    assert repr(scan) == "<Scan of demo.flights; version 1; where 'id > 1'; columns id, carrier; at most 2 rows>"


def test_the_summary_of_an_append_is_kept_in_its_snapshot(flights: TableHandle) -> None:
    flights.append(ROWS, summary={"job": "nightly"})
    assert flights.head().snapshot.summary["job"] == "nightly"


def test_the_tree_shows_itself_as_text_and_as_a_picture(flights: TableHandle) -> None:
    flights.append(ROWS)
    tree = flights.tree()
    assert flights.name in str(tree)
    assert tree.svg().startswith("<svg")
    assert flights.tree(version=0).outline().data_files == 0


def test_a_check_of_a_sound_table_finds_nothing(flights: TableHandle) -> None:
    flights.append(ROWS)
    flights.delete_where("id = 1")
    assert list(flights.check()) == []


def test_a_handle_survives_pickling(flights: TableHandle) -> None:
    copy = pickle.loads(pickle.dumps(flights))
    assert copy.name == flights.name
    copy.append(ROWS)
    assert ids(flights) == [1, 2, 3]


def test_every_public_name_can_be_had_from_the_package() -> None:
    assert {name for name in rootline.__all__ if not hasattr(rootline, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'disconnect'"):
        rootline.disconnect  # noqa: B018


def test_the_version_is_where_every_package_has_it() -> None:
    assert rootline.__version__ == VERSION


@pytest.mark.parametrize(
    ("at", "name", "here"),
    [
        ("lake", "tables", "lake.list_tables()"),
        ("lake", "load_table", "lake.table("),
        ("table", "delete", "table.delete_where("),
        ("table", "to_pandas", "table.scan().to_arrow(), .to_pandas()"),
        ("coroutines", "update", "table.update_where("),
        ("scan", "select", "columns=["),
    ],
)
def test_a_name_of_another_library_is_answered_with_the_name_here(
    lake: Lake, flights: TableHandle, at: str, name: str, here: str
) -> None:
    owners = {"lake": lake, "table": flights, "scan": flights.scan(), "coroutines": lake.async_table("demo.flights")}
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .*{re.escape(here)}"):
        getattr(owners[at], name)
    with pytest.raises(AttributeError, match=r"no attribute 'made_up'$"):
        getattr(owners[at], "made_up")  # noqa: B009
    with pytest.raises(AttributeError, match=r"no attribute 'load_catalog': rootline\.connect"):
        rootline.load_catalog  # noqa: B018


def test_a_subclass_of_a_user_lacks_names_in_the_same_words(flights: TableHandle) -> None:
    class Flights(TableHandle):
        __slots__ = ()

    own = Flights.__new__(Flights)
    assert not hasattr(own, "made_up")
    with pytest.raises(AttributeError, match=r"'Flights' object has no attribute 'delete': .*table\.delete_where\("):
        own.delete  # noqa: B018


def test_a_hint_names_what_exists_and_is_for_a_name_that_does_not(lake: Lake, flights: TableHandle) -> None:
    owners: dict[str, object] = {"rootline": rootline, "Lake": lake, "TableHandle": flights, "Scan": flights.scan()}
    words = {"lake": lake, "table": flights, "scan": flights.scan(), "rootline": rootline, "duckdb": duckdb}
    data = tomllib.loads(files("rootline.client").joinpath("foreign_names.toml").read_text("utf-8"))
    assert data.keys() == owners.keys()
    for kind, hints in data.items():
        for text, foreign in hints.items():
            for name in foreign.split():
                assert not hasattr(owners[kind], name), name
                assert hint(kind, name) == f": {text}"
            for word, method in re.findall(r"\b(lake|table|scan|rootline|duckdb)\.([a-z_]+)", text):
                assert hasattr(words[word], method) or "rootline.expire" in text, (word, method)


def test_a_table_that_is_not_there_is_missed_in_a_warehouse_that_is_named(lake: Lake, folder: Path) -> None:
    with pytest.raises(Invalid, match=f"demo.flight: no table has this name .* The warehouse is file://{folder}"):
        lake.table("demo.flight")


def test_headers_are_short_where_a_notebook_shows_them(flights: TableHandle) -> None:
    flights.append(ROWS)
    flights.delete_where("id = 1")
    assert repr(flights.history(limit=1)) == "[<RootHeader demo.flights version 2: delete, 2 rows in 2 data files>]"


def test_connect_can_be_called_however_it_was_imported(folder: Path) -> None:
    import rootline.connect as module

    with module(folder) as opened:  # type: ignore[operator]
        assert opened.list_tables() == []


def test_a_parquet_file_in_the_tables_folder_is_added_as_it_is(flights: TableHandle, folder: Path) -> None:
    path = folder / "demo" / "flights" / "data" / "mine.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [7, 8], "carrier": ["UA", "UA"], "delay": [1.0, None]}), path)
    file = rootline.DataFile.from_parquet("data/mine.parquet", flights.definition(), source=path)
    flights.add_files([file])
    assert ids(flights, where="delay = 1") == [7]
    assert flights.scan().plan()[0].location == "data/mine.parquet"
    with pytest.raises(Invalid) as caught:
        flights.add_files([file])
    assert caught.value.code == "file-already-live"
    assert list(flights.check()) == []


def test_a_batch_read_half_way_may_be_forgotten(flights: TableHandle) -> None:
    flights.append(ROWS)
    next(flights.scan().to_batches())
    gc.collect()
    assert ids(flights) == [1, 2, 3]
