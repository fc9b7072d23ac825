"""What was read and has left since is a conflict for a serializable intent, like what came."""

from __future__ import annotations

import dataclasses

import pytest

from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent, IntentKind, Isolation, RemovedFile
from rootline.tree.check.invariants import violations
from tests.tree.tables import (
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


def serializable(intent_id: str, read: int, where: str = "id = 15") -> Intent:
    return append(
        intent_id,
        data_file(intent_id, ids=[99]),
        isolation=Isolation.SERIALIZABLE,
        read_sequence_number=read,
        filter=where,
    )


def now(lake: Lake) -> int:
    return lake.head.header.snapshot.sequence_number


@pytest.fixture
def lake() -> Lake:
    return new_lake(append("a", data_file("a", ids=[10, 20])))


def test_a_file_that_was_read_and_removed_since_is_a_conflict(lake: Lake) -> None:
    read = now(lake)
    lake.put(remove("rm", removed("data/a.parquet")))
    assert codes(lake.put(serializable("s", read), serializable("t", now(lake)))) == ["isolation-conflict", None]


def test_a_file_replaced_by_one_that_does_not_match_is_a_conflict(lake: Lake) -> None:
    gone = (removed("data/a.parquet"),)
    lake.put(intent(IntentKind.OVERWRITE, "ow", remove_files=gone, add_data_files=(data_file("b", ids=[30]),)))
    assert codes(lake.put(serializable("s", 2))) == ["isolation-conflict"]


def test_a_removal_by_an_earlier_intent_of_the_batch_is_a_conflict(lake: Lake) -> None:
    assert codes(lake.put(remove("rm", removed("data/a.parquet")), serializable("s", 2))) == [
        None,
        "isolation-conflict",
    ]


def test_a_removal_is_known_long_after_the_root_that_showed_it(lake: Lake) -> None:
    lake.put(remove("rm", removed("data/a.parquet")))
    for index in range(5):
        lake.put(append(f"more{index}", data_file(f"more{index}", ids=[70])))
    again = lake.reloaded_lake()
    assert codes(again.put(serializable("s", 2))) == ["isolation-conflict"]


def test_a_file_removed_from_a_leaf_is_a_conflict(lake: Lake) -> None:
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    read = now(lake)
    lake.put(remove("rm", removed("data/a.parquet")))
    assert codes(lake.put(serializable("s", read))) == ["isolation-conflict"]


def test_an_equality_delete_that_leaves_brings_rows_back_and_is_a_conflict(lake: Lake) -> None:
    delete = equality_delete("e", 15, "UA")
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(delete,)))
    read = now(lake)
    lake.put(remove("rm", RemovedFile(location=delete.location, content_type=ContentType.EQUALITY_DELETE)))
    assert codes(lake.put(serializable("s", read), serializable("t", now(lake)))) == ["isolation-conflict", None]


def test_a_removal_in_a_partition_that_the_filter_leaves_out_is_none(lake: Lake) -> None:
    lake.put(append("b", data_file("b", ids=[15], carrier="AA")))
    read = now(lake)
    lake.put(remove("rm", removed("data/b.parquet")))
    assert codes(lake.put(serializable("s", read, "carrier = 'UA'"), serializable("t", read, "carrier = 'AA'"))) == [
        None,
        "isolation-conflict",
    ]


def test_removals_in_more_partitions_than_are_kept_conflict_with_every_filter(lake: Lake) -> None:
    files = [data_file(f"p{number}", ids=[1], carrier=f"C{number}") for number in range(40)]
    lake.put(append("many", *files))
    read = now(lake)
    lake.put(remove("rm", *(removed(file.location) for file in files)))
    there = "carrier = 'UA'"
    assert codes(lake.put(serializable("s", read, there), serializable("t", now(lake), there))) == [
        "isolation-conflict",
        None,
    ]


def test_what_maintenance_moves_or_rewrites_is_no_removal(lake: Lake) -> None:
    rewritten = intent(
        IntentKind.REWRITE,
        "rw",
        read_sequence_number=2,
        remove_files=(removed("data/a.parquet"),),
        add_data_files=(data_file("r", ids=[10, 20]),),
    )
    assert codes(lake.put(rewritten)) == [None]
    assert codes(lake.put(lake.flush("f", lake.leaf(lake.root_entries())))) == [None]
    assert codes(lake.put(serializable("s", 2))) == [None]


def test_a_vector_that_a_rewrite_carried_out_still_shows_that_rows_left(lake: Lake) -> None:
    read = now(lake)
    vector = lake.vector("v", "data/a.parquet", [1])
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_vectors=(vector,)))
    seen = now(lake)
    rewritten = intent(
        IntentKind.REWRITE,
        "rw",
        read_sequence_number=seen,
        remove_files=(removed("data/a.parquet", seen_vector(lake.head, "data/a.parquet")),),
        add_data_files=(data_file("r", ids=[10]),),
    )
    assert codes(lake.put(rewritten)) == [None]
    assert codes(lake.put(serializable("s", read), serializable("t", seen))) == ["isolation-conflict", None]


def test_what_left_is_not_known_in_a_root_of_an_older_version_so_its_readers_read_again(lake: Lake) -> None:
    lake.put(remove("rm", removed("data/a.parquet")))
    header = dataclasses.replace(lake.head.header, removals=None)
    lake.state = dataclasses.replace(lake.head, root=dataclasses.replace(lake.head.root, header=header))
    assert codes(lake.put(serializable("s", 2), serializable("t", now(lake)))) == ["isolation-conflict", None]


def test_partitions_that_were_encoded_by_another_definition_may_all_match(lake: Lake) -> None:
    lake.put(append("b", data_file("b", ids=[15], carrier="AA")))
    read = now(lake)
    lake.put(remove("rm", removed("data/b.parquet")))
    known = lake.head.header.removals
    assert known is not None
    header = dataclasses.replace(lake.head.header, removals=known._replace(stats_schema=b"\0" * 8))
    lake.state = dataclasses.replace(lake.head, root=dataclasses.replace(lake.head.root, header=header))
    between = now(lake)
    there = "carrier = 'UA'"
    assert codes(lake.put(serializable("s", read, there))) == ["isolation-conflict"]
    lake.put(remove("rm2", removed("data/a.parquet")))
    assert lake.head.header.removals is not None
    assert lake.head.header.removals.forgotten == known.newest[-1].sequence_number
    assert codes(lake.put(serializable("t", read, "carrier = 'DL'"), serializable("u", between, "carrier = 'DL'"))) == [
        "isolation-conflict",
        None,
    ]


def test_a_root_that_forgets_a_removal_breaks_a_rule(lake: Lake) -> None:
    old = lake.head
    lake.put(remove("rm", removed("data/a.parquet")))
    assert lake.head.header.removals is not None
    forgotten = dataclasses.replace(lake.head.header, removals=old.header.removals)
    new = dataclasses.replace(lake.head, root=dataclasses.replace(lake.head.root, header=forgotten))
    assert any("removal" in sentence for sentence in violations(old, new))
