"""Dropping tables as a program does it: the name is free, everyone sees it, and the table comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.catalog.rest.catalog import TableDirectory
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])
ROWS = {"id": [1, 2, 3], "carrier": ["UA", "AA", None], "delay": [5.0, None, -1.0]}


def ids(table: TableHandle) -> list[int]:
    return sorted(table.scan().to_arrow().column("id").to_pylist())


def refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(Invalid) as caught:
        attempt()
    return caught.value.code


def test_a_dropped_table_is_nowhere_to_be_found(lake: Lake, flights: TableHandle) -> None:
    flights.append(ROWS)
    assert lake.drop_table(flights.name).version == 2
    assert lake.list_tables() == []
    for attempt in (
        lambda: lake.table(flights.name),
        lambda: flights.scan().to_arrow(),
        lambda: flights.scan(version=1).to_arrow(),
        flights.history,
        flights.head,
        lambda: flights.changes(from_version=0),
        lambda: flights.append(ROWS),
        lambda: flights.tag("t"),
        lambda: flights.restore(version=1),
        flights.export,
        lambda: lake.drop_table(flights.name),
    ):
        assert refused(attempt) == "table-dropped"
    with pytest.raises(Invalid, match=r"was dropped in version 2, at 2.* `rootline table restore demo\.flights`"):
        lake.table(flights.name)


def test_the_catalog_shows_what_is_there_now(lake: Lake, flights: TableHandle) -> None:
    async def shown(session: Session) -> list[tuple[list[str], bool]]:
        found = []
        directory = known.setdefault("directory", TableDirectory(session.store))
        found.append((await directory.names("demo"), await directory.exists(TableName(flights.name))))
        assert await directory.namespaces() == (["demo"] if found[0][1] else [])
        return found

    known: dict[str, TableDirectory] = {}
    assert lake.holder.run(shown) == [(["flights"], True)]
    lake.drop_table(flights.name)
    assert lake.holder.run(shown) == [([], False)]
    lake.restore_table(flights.name)
    assert lake.holder.run(shown) == [(["flights"], True)]


def test_a_dropped_table_comes_back_with_its_rows_history_and_tags(lake: Lake, flights: TableHandle) -> None:
    flights.append(ROWS)
    flights.tag("loaded")
    before = flights.definition()
    lake.drop_table(flights.name)
    back = lake.restore_table(flights.name)
    assert (ids(back), back.definition()) == ([1, 2, 3], before)
    assert ids(flights) == [1, 2, 3]
    assert back.scan(tag="loaded").to_arrow().num_rows == 3
    assert back.scan(version=0).to_arrow().num_rows == 0
    flights.append(ROWS)
    assert list(back.check()) == []
    assert refused(lambda: lake.restore_table(flights.name)) == "table-exists"


def test_a_new_table_of_the_name_is_another_table(lake: Lake, flights: TableHandle) -> None:
    flights.append(ROWS)
    lake.drop_table(flights.name)
    made = lake.create_table(flights.name, SCHEMA, if_not_exists=True)
    assert made.head().version == 3
    made.append({"id": [9], "carrier": ["UA"], "delay": [0.0]})
    assert ids(made) == [9]
    assert refused(lambda: flights.append(ROWS)) == "table-uuid-mismatch"
    flights.append(ROWS)  # a handle is of a name: it has read the new definition
    assert ids(made) == [1, 2, 3, 9]
    assert [header.version for header in made.history(everything=True)] == [6, 5, 4, 3]
    assert refused(lambda: made.scan(version=1).to_arrow()) == "version-unknown"
    assert refused(lambda: made.restore(version=1)) == "version-unknown"
    assert refused(lambda: lake.restore_table(flights.name)) == "table-exists"
    assert list(made.check()) == []


def test_a_purged_table_does_not_come_back(lake: Lake, flights: TableHandle) -> None:
    flights.append(ROWS)
    lake.drop_table(flights.name)
    lake.drop_table(flights.name, purge=True)
    assert refused(lambda: lake.restore_table(flights.name)) == "table-dropped"
    assert refused(lambda: lake.drop_table(flights.name, purge=True)) == "table-dropped"
    lake.create_table(flights.name, SCHEMA).append(ROWS)
    assert ids(flights) == [1, 2, 3]


def test_each_table_of_a_name_is_exported_by_itself(lake: Lake, flights: TableHandle, folder: Path) -> None:
    flights.append(ROWS)
    old = flights.export()
    lake.drop_table(flights.name)
    made = lake.create_table(flights.name, SCHEMA)
    made.append({"id": [9], "carrier": ["UA"], "delay": [0.0]})
    made.append({"id": [10], "carrier": ["UA"], "delay": [0.0]})
    new = made.export()
    assert f'"table-uuid":"{made.definition().table_uuid}"'.encode() in new.metadata.replace(b" ", b"")
    assert old.metadata != new.metadata
    assert Path(old.metadata_location.removeprefix("file://")).exists()
    assert folder.exists()


def test_what_is_wrong_with_a_call_is_said_at_once(lake: Lake, flights: TableHandle) -> None:
    assert refused(lambda: lake.drop_table("demo.planes")) == "table-unknown"
    assert refused(lambda: lake.restore_table("demo.planes")) == "table-unknown"
    assert refused(lambda: lake.restore_table(flights.name)) == "table-exists"
    assert refused(lambda: lake.drop_table(flights.name, purge="no")) == "setting-invalid"  # type: ignore[arg-type]


def test_32_who_drop_and_make_one_name_leave_one_story(lake: Lake, flights: TableHandle) -> None:
    """What each of them was told adds up: a name is made as often as it was free."""
    told: list[str] = []

    def race(number: int) -> None:
        try:
            if number % 2:
                lake.drop_table(flights.name)
                told.append("dropped")
            else:
                lake.create_table(flights.name, SCHEMA)
                told.append("created")
        except Invalid as error:
            told.append(error.code)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(race, range(32)))
    assert len(told) == 32
    assert set(told) <= {"dropped", "created", "table-exists", "table-dropped", "table-uuid-mismatch"}
    is_there = lake.list_tables() == [flights.name]
    assert 1 + told.count("created") - told.count("dropped") == (1 if is_there else 0)
    if not is_there:
        lake.restore_table(flights.name)
    assert list(flights.check()) == []


def test_what_a_check_says_to_publish_is_for_the_table_that_was_checked(
    lake: Lake, flights: TableHandle, folder: Path
) -> None:
    flights.append(ROWS)
    lake.drop_table(flights.name)
    lake.restore_table(flights.name)
    [lost] = [path for path in folder.rglob("data/**/*.parquet") if "UA" in str(path)] or [
        next(folder.rglob("data/**/*.parquet"))
    ]
    lost.unlink()
    [finding] = list(flights.check())
    intent = {"intent_id": "given-up", **json.loads(finding.way_out)}
    assert intent["table_uuid"] == str(flights.definition().table_uuid)
