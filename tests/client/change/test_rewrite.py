"""Rewriting the files of an embedded lake: rows and their ids stay, whatever lands meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from rootline.client.lake import Lake
from rootline.client.row_changes import RewriteOptions, rewrite_intents
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.schemas.intent import Intent
from tests.catalog.iceberg_tables import FolderCatalog
from tests.client.change.test_equality_deletes import _rows, delete_by_id

COLUMNS = ["id", "carrier", "delay", "_row_id", "_last_updated_sequence_number"]
Row = tuple[Any, ...]


def rows_of(table: TableHandle) -> list[Row]:
    """Every row with its id and the number of its last change."""
    found = table.scan(None, COLUMNS).to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in COLUMNS) for row in found)


def files_of(table: TableHandle) -> int:
    return len(table.scan().plan())


@pytest.fixture
def worn(lake: Lake, folder: Path, flights: TableHandle) -> TableHandle:
    """Flights in small files of two carriers, some of them deleted by vectors and by equality deletes."""
    flights.append(_rows(*range(6)))
    flights.append(_rows(*range(6, 9)))
    delete_by_id(lake, folder, flights, 1, 7)
    flights.append(_rows(20, 21, carrier="AA"))
    flights.append(_rows(1, 10))
    flights.delete_where("id = 4")
    return flights


def test_small_files_become_one_a_partition_with_the_same_rows_and_row_ids(worn: TableHandle) -> None:
    before = rows_of(worn)
    head = worn.history()[0].version
    [commit] = worn.rewrite()
    assert rows_of(worn) == before
    assert len({row[3] for row in before}) == len(before)
    assert files_of(worn) == 2
    assert worn.scan().count() == len(before)
    changes = worn.changes(from_version=head, to_version=commit.version)
    assert not changes
    assert list(worn.check()) == []


def test_a_table_whose_files_are_as_they_should_be_is_left_alone(worn: TableHandle) -> None:
    assert len(worn.rewrite()) == 1
    assert worn.rewrite() == ()


def test_only_files_that_may_match_are_rewritten(worn: TableHandle) -> None:
    assert worn.rewrite(where="carrier = 'AA'") == ()
    assert len(worn.rewrite(where="carrier = 'UA'")) == 1


def test_rows_that_are_rewritten_twice_keep_their_ids(worn: TableHandle) -> None:
    before = rows_of(worn)
    worn.rewrite()
    worn.append(_rows(30))
    worn.rewrite()
    assert [row for row in rows_of(worn) if row[0] != 30] == before


def planned(lake: Lake, table: TableHandle) -> Intent:
    """The intent of a rewrite, before it is published."""

    async def plan(session: Session) -> list[Intent]:
        options = RewriteOptions(30.0, 1_000_000, {})
        return [intent async for intent in rewrite_intents(session, table.name, None, options)]

    [intent] = lake.holder.run(plan)
    return intent


def published(lake: Lake, intent: Intent) -> str | None:
    with lake.producer() as producer:
        return producer.publish(intent).verdict(timeout_s=30).code


def test_an_equality_delete_that_lands_meanwhile_reaches_the_rewritten_rows(
    worn: TableHandle, lake: Lake, folder: Path
) -> None:
    before = rows_of(worn)
    intent = planned(lake, worn)
    delete_by_id(lake, folder, worn, 3, 8)
    assert published(lake, intent) is None
    assert rows_of(worn) == [row for row in before if row[0] not in (3, 8)]
    assert list(worn.check()) == []


def test_a_vector_that_lands_meanwhile_makes_the_rewrite_stale_and_is_not_undone(worn: TableHandle, lake: Lake) -> None:
    before = rows_of(worn)
    intent = planned(lake, worn)
    worn.delete_where("id = 5")
    assert published(lake, intent) == "stale-source"
    assert len(worn.rewrite()) == 1
    assert rows_of(worn) == [row for row in before if row[0] != 5]


def test_rows_that_are_appended_or_rewritten_meanwhile_are_there_once(worn: TableHandle, lake: Lake) -> None:
    before = rows_of(worn)
    intent = planned(lake, worn)
    worn.rewrite()
    worn.append(_rows(40))
    assert published(lake, intent) == "stale-source"
    assert [row for row in rows_of(worn) if row[0] != 40] == before


def test_an_overwrite_keeps_ids_and_last_change_of_rows_that_it_does_not_match(worn: TableHandle) -> None:
    worn.rewrite(where="carrier = 'UA'")
    before = rows_of(worn)
    worn.overwrite(_rows(100), where="id in (2, 10)")
    after = rows_of(worn)
    assert [row for row in after if row[0] != 100] == [row for row in before if row[0] not in (2, 10)]
    [new] = [row for row in after if row[0] == 100]
    assert new[3] not in {row[3] for row in before}
    assert new[4] > max(row[4] for row in before)
    assert list(worn.check(data_files="all")) == []


def test_an_overwrite_that_adds_a_column_keeps_the_ids_of_the_other_rows(worn: TableHandle) -> None:
    before = rows_of(worn)
    worn.overwrite([{"id": 100, "carrier": "UA", "gate": "A1"}], where="id = 2", merge_schema=True)
    assert [row for row in rows_of(worn) if row[0] != 100] == [row for row in before if row[0] != 2]


def test_a_table_with_a_column_of_its_own_named_row_id_is_overwritten_all_the_same(lake: Lake, tmp_path: Path) -> None:
    schema = Schema(*(NestedField(number, name, LongType()) for number, name in enumerate(("id", "_row_id"), 1)))
    elsewhere = FolderCatalog(tmp_path / "elsewhere").make("own", schema, format_version=2)
    lake.adopt(elsewhere.metadata_location, "demo.own")  # a new table of ours may not have such a name
    table = lake.table("demo.own")
    table.append([{"id": 1, "_row_id": 7}, {"id": 2, "_row_id": 8}])
    table.overwrite([{"id": 3, "_row_id": 9}], where="id = 1")
    assert sorted(row["_row_id"] for row in table.scan().to_arrow().to_pylist()) == [8, 9]
