from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent
from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.intent import AddedVector, DataFile, Intent, IntentKind, Isolation, RemovedFile, VersionReference
from rootline.schemas.root_header import Operation
from rootline.tree.check.root_diff import diff
from rootline.tree.scan.delete_index import DeleteIndex
from tests.support.state_rules import state_violations
from tests.tree.tables import (
    BY_BUCKET,
    DEFINITION,
    UNPARTITIONED,
    Lake,
    append,
    codes,
    data_file,
    equality_delete,
    intent,
    new_lake,
    remove,
    removed,
    seen_vector,
)

A, B, D = "data/a.parquet", "data/b.parquet", "data/d.parquet"


def delete_value(name: str, value: int, carrier: str | None = "UA", *, spec: int = 0) -> Intent:
    return intent(IntentKind.ROW_DELTA, name, add_equality_deletes=(equality_delete(name, value, carrier, spec=spec),))


def delete_rows(lake: Lake, name: str, target: str, *positions: int, adds: Sequence[DataFile] = ()) -> Intent:
    vector = lake.vector(name, target, positions, seen_vector(lake.head, target))
    return intent(IntentKind.ROW_DELTA, name, add_vectors=(vector,), add_data_files=adds)


def convert(
    lake: Lake,
    intent_id: str,
    *deletes: str,
    rows: dict[str, Iterable[int]] | None = None,
    clean: Sequence[str] = (),
    **more: object,
) -> Intent:
    """By a worker who read the head; `rows`: data file → its deleted rows, those of its vector included."""
    vectors: list[AddedVector] = []
    for at, (target, positions) in enumerate((rows or {}).items()):
        vectors.append(lake.vector(f"{intent_id}-{at}", target, positions, seen_vector(lake.head, target)))
    fields: dict[str, object] = {
        "remove_files": [RemovedFile(location=name, content_type=ContentType.EQUALITY_DELETE) for name in deletes],
        "add_vectors": vectors,
        "replaces": clean,
        "made_from_version": lake.head.header.version,
        "read_sequence_number": lake.head.header.snapshot.sequence_number,
    }
    return intent(IntentKind.CONVERT_EQUALITY_DELETES, intent_id, **(fields | more))


def rows_of(lake: Lake) -> dict[str, set[int]]:
    """The rows that a scan shows; a row's id is its position."""
    live = list(lake.live().values())
    index = DeleteIndex.of(
        (item for item in live if item.content_type is ContentType.EQUALITY_DELETE), DEFINITION, None
    )
    found: dict[str, set[int]] = {}
    for entry in live:
        if entry.content_type is ContentType.DATA:
            vector = lake.head.vector_of(entry.location)
            gone = set() if vector is None else set(lake.positions(vector))
            gone |= {int(str(one.content_stats[1].lower_bound)) for one in index.of_file(entry).equality}
            found[entry.location] = set(range(entry.record_count)) - gone
    return found


def changed(lake: Lake) -> bool:
    return bool(diff(lake.head.root, lake.head.leaves, lake.head.live.stored))


def holds(lake: Lake) -> None:
    assert state_violations(lake.head) == []
    assert state_violations(lake.reloaded()) == []


def test_a_delete_becomes_a_vector_and_no_root_shows_it() -> None:
    lake = new_lake(append("a"), append("b"), delete_value("d", 3))
    before = rows_of(lake)
    assert codes(lake.put(convert(lake, "c", D, rows={A: {3}, B: {3}}))) == [None]
    assert rows_of(lake) == before
    assert not changed(lake)
    assert lake.shown(Status.ADDED) == lake.shown(Status.DELETED) == []
    assert lake.head.header.snapshot.operation is Operation.REPLACE
    assert dict(lake.head.header.snapshot.summary) == {
        "rootline.converted-equality-deletes": "1",
        "total-data-files": "2",
        "total-delete-files": "2",
        "total-position-deletes": "2",
        "total-records": "20",
    }
    holds(lake)


def test_an_intent_of_a_conversion_crosses_the_log_as_the_present_schema_says_it() -> None:
    lake = new_lake(append("a"), delete_value("d", 3))
    sent = convert(lake, "c", D, rows={A: {3}}, clean=[B])
    assert decode_intent(encode_intent(sent)) == sent


@pytest.mark.parametrize("in_leaves", [False, True])
def test_a_vector_is_replaced_by_one_that_holds_its_rows_too_wherever_all_of_them_are(in_leaves: bool) -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(delete_rows(lake, "v", A, 1))
    lake.put(delete_value("d", 3))
    if in_leaves:
        data = lake.leaf(lake.root_entries())
        vectors = lake.leaf(
            lake.root_entries(ContentType.POSITION_DELETE), content=LeafContent.DELETE, belongs_to=data.location
        )
        deletes = lake.leaf(lake.root_entries(ContentType.EQUALITY_DELETE), content=LeafContent.DELETE)
        assert codes(lake.put(lake.flush("f", data, vectors, deletes))) == [None]
    before = rows_of(lake)
    assert codes(lake.put(convert(lake, "c", D, rows={A: {1, 3}}, clean=[B]))) == [None]
    assert rows_of(lake)[A] == before[A]
    assert not changed(lake)
    assert lake.head.header.totals.equality_deletes == 0
    holds(lake)


def test_a_file_where_no_row_matched_is_listed_and_keeps_its_vector() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(delete_rows(lake, "v", A, 3))
    lake.put(delete_value("d", 3))
    vector = seen_vector(lake.head, A)
    assert codes(lake.put(convert(lake, "c", D, clean=[A, B]))) == [None]
    assert seen_vector(lake.head, A) == vector
    holds(lake)


def test_a_file_within_reach_that_is_not_listed_stops_the_conversion() -> None:
    lake = new_lake(append("a"), append("b"), delete_value("d", 3))
    assert codes(lake.put(convert(lake, "c", D, rows={A: {3}}))) == ["stale-source"]
    assert lake.head.header.totals.equality_deletes == 1


@pytest.mark.parametrize("in_leaves", [False, True])
def test_what_a_rewrite_made_meanwhile_of_rows_that_it_had_not_seen_deleted_stops_it(in_leaves: bool) -> None:
    lake = new_lake(append("a"), append("b"))
    rewritten = intent(
        IntentKind.REWRITE,
        "r",
        remove_files=[removed(A), removed(B)],
        add_data_files=[data_file("n", rows=20)],
        read_sequence_number=lake.head.header.snapshot.sequence_number,
    )
    lake.put(delete_value("d", 3))
    planned = convert(lake, "c", D, rows={A: {3}, B: {3}})
    assert codes(lake.put(rewritten)) == [None]
    if in_leaves:
        lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    before = rows_of(lake)
    assert codes(lake.put(planned)) == ["stale-source"]
    assert rows_of(lake) == before
    assert 3 not in before["data/n.parquet"]


def test_a_rewrite_that_read_the_delete_meets_the_vector_that_came_for_it() -> None:
    lake = new_lake(append("a"), append("b"), delete_value("d", 3))
    late = intent(
        IntentKind.REWRITE,
        "r",
        remove_files=[removed(A)],
        add_data_files=[data_file("n", rows=9)],
        read_sequence_number=lake.head.header.snapshot.sequence_number,
    )
    lake.put(convert(lake, "c", D, rows={A: {3}, B: {3}}))
    assert codes(lake.put(late)) == ["stale-source"]


def test_a_file_that_left_meanwhile_is_no_hindrance_nor_one_that_came_back_newer_under_its_name() -> None:
    lake = new_lake(append("a"), append("b"), delete_value("d", 3))
    planned = convert(lake, "c", D, rows={A: {3}, B: {3}})
    lake.put(remove("gone", removed(A), removed(B)))
    lake.put(append("again", data_file("a")))
    assert codes(lake.put(planned)) == [None]
    assert rows_of(lake) == {A: set(range(10))}
    holds(lake)


def test_files_that_came_after_the_delete_and_those_of_other_partitions_need_not_be_listed() -> None:
    lake = new_lake(append("a"), append("other", data_file("other", carrier="AA")), delete_value("d", 3))
    planned = convert(lake, "c", D, rows={A: {3}})
    lake.put(append("late"))
    assert codes(lake.put(planned)) == [None]
    holds(lake)


def test_a_delete_of_an_unpartitioned_spec_reaches_every_spec() -> None:
    bucketed = data_file("b", partition_spec_id=BY_BUCKET, carrier=None)
    lake = new_lake(append("a"), append("b", bucketed), delete_value("d", 3, None, spec=UNPARTITIONED))
    assert codes(lake.put(convert(lake, "c", D, rows={A: {3}}))) == ["stale-source"]
    assert codes(lake.put(convert(lake, "c2", D, rows={A: {3}, B: {3}}))) == [None]
    holds(lake)


def test_of_two_deletes_either_may_be_converted_first() -> None:
    for first, second in (("d", "e"), ("e", "d")):
        lake = new_lake(append("a"), delete_value("d", 3), append("b"), delete_value("e", 3))
        before = rows_of(lake)
        rows: dict[str, dict[str, Iterable[int]]] = {"d": {A: {3}}, "e": {A: {3}, B: {3}}}
        assert codes(lake.put(convert(lake, "c1", f"data/{first}.parquet", rows=rows[first]))) == [None]
        assert rows_of(lake) == before
        assert codes(lake.put(convert(lake, "c2", f"data/{second}.parquet", rows=rows[second]))) == [None]
        assert rows_of(lake) == before
        holds(lake)


def test_a_vector_that_has_grown_since_is_merged() -> None:
    lake = new_lake(append("a"), delete_value("d", 3))
    planned = convert(lake, "c", D, rows={A: {3}})
    lake.put(delete_rows(lake, "v", A, 7))
    assert codes(lake.put(planned)) == [None]
    assert rows_of(lake)[A] == set(range(10)) - {3, 7}
    assert not changed(lake)
    holds(lake)


def test_rows_deleted_after_a_merge_in_the_same_batch_are_shown_and_no_others() -> None:
    lake = new_lake(append("a"), delete_value("d", 3))
    planned = convert(lake, "c", D, rows={A: {3}})
    lake.put(delete_rows(lake, "v", A, 7))
    later = delete_rows(lake, "w", A, 7, 8)
    assert codes(lake.put(planned, later)) == [None, None]
    assert rows_of(lake)[A] == set(range(10)) - {3, 7, 8}
    changes = diff(lake.head.root, lake.head.leaves, lake.head.live.stored)
    [before], [after] = changes.removed, changes.added
    assert (before.record_count, after.record_count) == (2, 3)
    holds(lake)


def test_a_file_that_leaves_after_its_conversion_in_the_same_batch_takes_the_vector_along() -> None:
    lake = new_lake(append("a"), append("b"), delete_value("d", 3))
    planned = convert(lake, "c", D, rows={A: {3}, B: {3}})
    assert codes(lake.put(planned, remove("r", removed(A, planned.add_vectors[0].replaces_vector)))) == [
        None,
        "stale-source",
    ]
    lake.put(remove("r2", removed(A, seen_vector(lake.head, A))))
    assert set(rows_of(lake)) == {B}
    holds(lake)


@pytest.mark.parametrize("in_leaf", [False, True])
@pytest.mark.parametrize("had_vector", [False, True])
def test_rows_deleted_earlier_in_the_same_batch_are_shown_and_the_converted_ones_are_not(
    had_vector: bool, in_leaf: bool
) -> None:
    lake = new_lake(append("a"))
    if had_vector:
        lake.put(delete_rows(lake, "v", A, 1))
        if in_leaf:
            lake.put(
                lake.flush("f", lake.leaf(lake.root_entries(ContentType.POSITION_DELETE), content=LeafContent.DELETE))
            )
    lake.put(delete_value("d", 3))
    old = {1} if had_vector else set()
    planned = convert(lake, "c", D, rows={A: {3} | old})
    assert codes(lake.put(delete_rows(lake, "w", A, 7, *old), planned)) == [None, None]
    assert rows_of(lake)[A] == set(range(10)) - {3, 7} - old
    changes = diff(lake.head.root, lake.head.leaves, lake.head.live.stored)
    before, after = (
        {row for entry in entries for row in lake.positions(entry)} for entries in (changes.removed, changes.added)
    )
    assert after - before == {7}
    assert before == {3} | old
    holds(lake)


def test_any_order_of_deletes_and_conversions_in_one_batch_shows_the_deletes_only() -> None:
    lake = new_lake(append("a"))
    lake.put(delete_rows(lake, "v", A, 1))
    lake.put(delete_value("d", 3))
    lake.put(delete_value("e", 4))
    one, two = convert(lake, "c1", D, rows={A: {1, 3}}), convert(lake, "c2", "data/e.parquet", rows={A: {1, 4}})
    first, second = delete_rows(lake, "w", A, 1, 7), delete_rows(lake, "x", A, 1, 8)
    names = {"1": one, "2": two, "w": first, "x": second}
    for order in permutations("12wx"):
        trial = replace(lake)
        assert codes(trial.put(*(names[name] for name in order))) == [None] * 4
        assert rows_of(trial)[A] == set(range(10)) - {1, 3, 4, 7, 8}
        changes = diff(trial.head.root, trial.head.leaves, trial.head.live.stored)
        before, after = (
            {row for entry in entries for row in trial.positions(entry)} for entries in (changes.removed, changes.added)
        )
        assert after - before == {7, 8}
        assert not before - after
        holds(trial)


def test_a_writer_who_read_before_the_conversion_adds_to_it() -> None:
    lake = new_lake(append("a"), delete_value("d", 3))
    stale = delete_rows(lake, "v", A, 7, adds=[data_file("u", rows=1)])
    lake.put(convert(lake, "c", D, rows={A: {3}}))
    assert codes(lake.put(stale)) == [None]
    assert rows_of(lake)[A] == set(range(10)) - {3, 7}
    holds(lake)


def test_a_restore_brings_the_delete_back_and_a_plan_from_before_it_is_stale() -> None:
    lake = new_lake(append("a"), delete_value("d", 3))
    version, before = lake.head.header.version, rows_of(lake)
    planned = convert(lake, "late", D, rows={A: {3}})
    lake.put(convert(lake, "c", D, rows={A: {3}}))
    lake.put(intent(IntentKind.RESTORE, "back", ref=VersionReference(version=version)))
    assert rows_of(lake) == before
    assert EntryPlace(ContentType.EQUALITY_DELETE, D) in lake.live()
    assert seen_vector(lake.head, A) is None
    assert codes(lake.put(planned)) == ["stale-source"]
    holds(lake)


def test_a_delete_that_is_gone_takes_the_rest_of_its_intent_along() -> None:
    lake = new_lake(append("a"), delete_value("d", 3), delete_value("e", 4))
    planned = convert(lake, "c", D, "data/e.parquet", rows={A: {3, 4}})
    lake.put(convert(lake, "other", D, rows={A: {3}}))
    assert codes(lake.put(planned)) == ["stale-source"]
    assert lake.head.header.totals.equality_deletes == 1


def test_a_serializable_writer_who_read_before_the_delete_still_hears_of_it_and_one_who_read_it_does_not() -> None:
    lake = new_lake(append("a"))
    before = lake.head.header.snapshot.sequence_number
    lake.put(delete_value("d", 3))
    after = lake.head.header.snapshot.sequence_number
    lake.put(append("z", data_file("z", ids=[900])))
    lake.put(convert(lake, "c", D, rows={A: {3}}))
    late = [
        append(
            f"s{number}",
            data_file(f"s{number}", ids=[1_000]),
            isolation=Isolation.SERIALIZABLE,
            filter="id = 3",
            read_sequence_number=number,
        )
        for number in (before, after)
    ]
    assert codes(lake.put(*late)) == ["isolation-conflict", None]


def test_a_vector_of_a_file_that_no_converted_delete_reaches_is_refused() -> None:
    lake = new_lake(append("a"), append("x", data_file("x", carrier="AA")), delete_value("d", 3))
    assert codes(lake.put(convert(lake, "c", D, rows={A: {3}, "data/x.parquet": {1}}))) == ["vector-invalid"]


@pytest.mark.parametrize(
    ("rows", "code"),
    [({A: {1}}, "vector-invalid"), ({A: {3, 70}}, "vector-invalid"), ({"data/../b": {1}}, "location-invalid")],
    ids=["lacks a row of the one it replaces", "has a row that the file has not", "is of no file"],
)
def test_a_vector_that_cannot_be_is_refused(rows: dict[str, Iterable[int]], code: str) -> None:
    lake = new_lake(append("a"))
    lake.put(delete_rows(lake, "v", A, 7))
    lake.put(delete_value("d", 3))
    clean = [] if A in rows else [A]
    assert codes(lake.put(convert(lake, "c", D, rows=rows, clean=clean))) == [code]
    assert rows_of(lake)[A] == set(range(10)) - {3, 7}


def test_other_files_cannot_leave_by_a_conversion_nor_a_number_be_named_that_nobody_read() -> None:
    lake = new_lake(append("a"), delete_value("d", 3))
    assert codes(lake.put(convert(lake, "c", D, clean=[A], remove_files=[removed(A)]))) == ["intent-malformed"]
    assert codes(lake.put(convert(lake, "n", D, clean=[A], read_sequence_number=99))) == ["version-unknown"]
    assert codes(lake.put(convert(lake, "x", "data/x.parquet", clean=[A]))) == ["stale-source"]
