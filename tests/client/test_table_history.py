"""Tags and restored versions, through the library."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Invalid
from tests.client.conftest import SCHEMA
from tests.support.examples import examples


def put(table: TableHandle, *ids: int) -> int:
    """Append rows; the version that has them."""
    rows = {"id": list(ids), "carrier": ["UA"] * len(ids), "delay": [float(number) for number in ids]}
    return table.append(rows).version


def ids(table: TableHandle, **point: object) -> list[int]:
    found: list[int] = table.scan(**point).to_arrow().column("id").to_pylist()  # type: ignore[arg-type]
    return sorted(found)


def test_a_version_is_read_by_its_tag(flights: TableHandle) -> None:
    first = put(flights, 1)
    flights.tag("release")
    put(flights, 2)
    assert flights.tags() == {"release": first}
    assert ids(flights, tag="release") == [1]
    assert ids(flights) == [1, 2]
    assert list(flights.check()) == []


def test_a_tag_moves_only_when_it_is_told_to(flights: TableHandle) -> None:
    first, second = put(flights, 1), put(flights, 2)
    flights.tag("release", version=first)
    flights.tag("release", version=first)
    with pytest.raises(Invalid) as caught:
        flights.tag("release", version=second)
    assert caught.value.code == "tag-conflict"
    flights.tag("release", version=second, move=True)
    assert flights.tags() == {"release": second}


def test_a_tag_that_is_deleted_is_gone(flights: TableHandle) -> None:
    put(flights, 1)
    flights.tag("release")
    flights.untag("release")
    assert flights.tags() == {}
    for use in (lambda: flights.untag("release"), lambda: flights.scan(tag="release").count()):
        with pytest.raises(Invalid) as caught:
            use()
        assert caught.value.code == "tag-unknown"


@pytest.mark.parametrize(("name", "version", "code"), [("a b", 0, "tag-invalid"), ("a", 99, "version-unknown")])
def test_what_cannot_be_tagged_is_refused_before_it_is_published(
    flights: TableHandle, name: str, version: int, code: str
) -> None:
    before = flights.head().version
    with pytest.raises(Invalid) as caught:
        flights.tag(name, version=version)
    assert caught.value.code == code
    assert flights.head().version == before


def all_rows(table: TableHandle, **point: object) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(**point).to_arrow().to_pylist())  # type: ignore[arg-type]


def test_restored_rows_are_those_of_the_version(flights: TableHandle) -> None:
    put(flights, 1, 2, 3)
    wanted = flights.delete_where("id = 2")
    assert wanted is not None
    put(flights, 4)
    flights.delete_where("id < 3")
    flights.overwrite([])
    commit = flights.restore(version=wanted.version)
    assert commit.version == flights.head().version
    assert ids(flights) == [1, 3]
    assert all_rows(flights) == all_rows(flights, version=wanted.version)
    assert list(flights.check()) == []


def test_a_restore_can_be_taken_back(flights: TableHandle) -> None:
    first, second = put(flights, 1), put(flights, 2)
    flights.restore(version=first)
    assert ids(flights) == [1]
    flights.restore(version=second)
    assert ids(flights) == [1, 2]
    assert list(flights.check()) == []


def test_a_version_to_restore_is_named_as_one_to_scan(flights: TableHandle) -> None:
    put(flights, 1)
    flights.tag("good")
    put(flights, 2)
    flights.restore(tag="good")
    assert ids(flights) == [1]
    history = flights.history()
    flights.restore(snapshot_id=history[1].snapshot.snapshot_id)
    assert ids(flights) == [1, 2]
    flights.restore(timestamp=history[-1].snapshot.timestamp_ms)
    assert ids(flights) == []


def test_a_preview_tells_what_the_restore_then_does(flights: TableHandle) -> None:
    first = put(flights, *range(10))
    flights.delete_where("id in (1, 2)")
    put(flights, 20)
    before = flights.head().version
    preview = flights.preview_restore(version=first)
    assert flights.head().version == before
    assert [record["change"] for record in preview.records()] == ["removed", "rows-restored"]
    assert (preview.from_version, preview.to_version) == (before, first)
    commit = flights.restore(version=first)
    done = flights.changes(from_version=before, to_version=commit.version)
    assert list(done.records()) == list(preview.records())
    assert not flights.changes(from_version=first, to_version=commit.version)
    assert not flights.preview_restore(version=first)


@pytest.mark.parametrize("point", [{"version": 9}, {"version": -1}, {"snapshot_id": 1}])
def test_a_version_that_is_not_there_is_not_restored(flights: TableHandle, point: dict[str, int]) -> None:
    for use in (flights.restore, flights.preview_restore):
        with pytest.raises(Invalid) as caught:
            use(**point)  # type: ignore[arg-type]
        assert caught.value.code == "version-unknown"


STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 9), min_size=1, max_size=6)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("overwrite"), st.integers(0, 9)),
    st.tuples(st.just("restore"), st.integers(0, 99)),
    st.tuples(st.just("restore"), st.integers(0, 99)),
)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, min_size=3, max_size=9))
def test_whatever_happened_a_restored_table_reads_as_it_did_and_changes_tell_the_difference(
    steps: list[tuple[str, object]],
) -> None:
    with connect("memory://") as lake:
        table = lake.create_table("demo.t", SCHEMA, partition_by=["bucket(2, id)"])
        then: dict[int, list[tuple[object, ...]]] = {0: all_rows(table)}
        for word, value in steps:
            _STEPS[word](table, value)
            version = table.head().version
            if word == "restore":
                assert all_rows(table) == then[_version(value, version - 1)]
            then[version] = all_rows(table)
        last = table.head().version
        for older, rows in then.items():
            assert all_rows(table, version=older) == rows
            changes = table.changes(from_version=older, to_version=last)
            came = sum(file.entry.record_count - _deleted(file.vectors) for file in changes.added_files)
            went = sum(file.entry.record_count - _deleted(file.vectors) for file in changes.removed_files)
            inside = sum(len(change.restored) - len(change.deleted) for change in changes.rows)
            assert len(rows) + came - went + inside == len(then[last])
            assert bool(changes) or rows == then[last]
        assert list(table.check()) == []


def _deleted(vectors: tuple[ContentEntry, ...]) -> int:
    return sum(vector.record_count for vector in vectors)


def _version(value: object, head: int) -> int:
    assert isinstance(value, int)
    return value % (head + 1)


def _append(table: TableHandle, value: object) -> None:
    assert isinstance(value, list)
    put(table, *value)


_STEPS: dict[str, Callable[[TableHandle, object], object]] = {
    "append": _append,
    "delete": lambda table, value: table.delete_where(f"id = {value}"),
    "overwrite": lambda table, value: table.overwrite(
        {"id": [value], "carrier": ["DL"], "delay": [0.5]}, where=f"id < {value}"
    ),
    "restore": lambda table, value: table.restore(version=_version(value, table.head().version)),
}
