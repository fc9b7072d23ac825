"""What was rewritten stays known: the same files sent again never double rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rootline.maintenance.orphan_sweep_plan import locations_of
from rootline.schemas.bytes.root.location_pages import RETIRED_PAGES
from rootline.schemas.intent import IntentKind, VersionReference
from rootline.schemas.parts.locations import NOTHING_RETIRED
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.parts.locations import FRESH_BYTES_MAX
from tests.tree.intents.test_drop import another, drop, undrop
from tests.tree.intents.test_rewrite import A, B, rewrite
from tests.tree.sweeps import DAY_MS, SweptLake, swept_lake
from tests.tree.tables import (
    TABLE_UUID,
    Lake,
    append,
    codes,
    data_file,
    intent,
    kinds,
    new_entry,
    new_lake,
    remove,
    removed,
)


def rewritten_lake() -> Lake:
    """Files a and b, which a rewrite made one."""
    lake = new_lake(append("a"), append("b"))
    assert codes(lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),)))) == [None]
    return lake


def compact(lake: Lake, name: str, count: int) -> list[str]:
    """`count` files that came in one batch become one; their locations."""
    names = [f"{name}-{number}" for number in range(count)]
    lake.put(*(append(item) for item in names))
    paths = [f"data/{item}.parquet" for item in names]
    assert codes(
        lake.put(rewrite(lake, f"rewrite {name}", *paths, adds=(data_file(f"{name}-all", rows=10 * count),)))
    ) == [None]
    return paths


def is_duplicate(verdicts: Sequence[Verdict]) -> bool:
    return kinds(verdicts) == [VerdictKind.DUPLICATE] * len(verdicts)


def restore(version: int) -> dict[str, object]:
    return {"ref": VersionReference(version=version)}


def test_an_append_without_a_writer_that_comes_again_after_a_rewrite_is_a_duplicate() -> None:
    lake = rewritten_lake()
    rows = lake.head.header.totals.rows
    assert is_duplicate(lake.put(append("sent again", data_file("a"))))
    assert is_duplicate(lake.put(append("both", data_file("a"), data_file("b"))))
    assert is_duplicate(lake.put(append("another", data_file("a"), writer_id="w", writer_sequence=7)))
    assert lake.head.header.totals.rows == rows


def test_one_that_races_the_rewrite_in_its_batch_is_a_duplicate_too() -> None:
    lake = new_lake(append("a"), append("b"))
    merged = rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),))
    verdicts = lake.put(append("before", data_file("a")), merged, append("after", data_file("a")))
    assert [(item.kind, item.code) for item in verdicts] == [
        (VerdictKind.REJECTED, "file-already-live"),
        (VerdictKind.COMMITTED, None),
        (VerdictKind.DUPLICATE, None),
    ]


def test_the_same_files_in_a_leaf_are_a_duplicate_as_well() -> None:
    lake = rewritten_lake()
    leaf = lake.written_leaf(new_entry(data_file("a")), new_entry(data_file("b")))
    assert is_duplicate(lake.put(intent(IntentKind.APPEND, "in a leaf", add_manifests=[leaf])))


def test_an_intent_that_brings_something_else_too_is_rejected_as_a_whole() -> None:
    lake = rewritten_lake()
    assert codes(lake.put(append("more", data_file("a"), data_file("c")))) == ["file-removed"]
    overwrite = intent(
        IntentKind.OVERWRITE, "o", remove_files=[removed("data/new.parquet")], add_data_files=[data_file("a", rows=20)]
    )
    assert codes(lake.put(overwrite)) == ["file-removed"]
    assert codes(lake.put(append("c", data_file("c")))) == [None]


def test_after_a_restore_the_rows_are_not_there_so_it_is_no_duplicate() -> None:
    lake = new_lake(append("z"))
    version = lake.head.header.version
    lake.put(append("a"), append("b"))
    lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),)))
    lake.put(intent(IntentKind.RESTORE, "back", **restore(version)))
    assert codes(lake.put(append("sent again", data_file("a")))) == ["file-removed"]
    assert codes(lake.reloaded_lake().put(append("sent again", data_file("a")))) == ["file-removed"]


def test_a_restore_in_the_batch_of_the_rewrite_counts_as_well() -> None:
    lake = new_lake(append("z"))
    version = lake.head.header.version
    lake.put(append("a"), append("b"))
    merged = rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),))
    back = intent(IntentKind.RESTORE, "back", **restore(version))
    verdicts = lake.put(merged, append("one", data_file("a")), back, append("two", data_file("a")))
    assert codes(verdicts) == [None, None, None, "file-removed"]
    assert codes(lake.put(append("three", data_file("a")))) == ["file-removed"]


def test_a_page_that_is_merged_after_a_restore_keeps_what_the_restore_undid() -> None:
    lake = new_lake(append("z"))
    version = lake.head.header.version
    [path, *_] = compact(lake, "x", 40)
    lake.put(intent(IntentKind.RESTORE, "back", **restore(version)))
    compact(lake, "y", 40)
    left = lake.head.header.locations.retired
    assert len(left.pages) == 1, "both are in one page, which is younger than the restore"
    assert codes(lake.put(append("sent again", data_file(path[5:-8])))) == ["file-removed"], "its rows are not there"
    assert codes(lake.reloaded_lake().put(append("sent again", data_file(path[5:-8])))) == ["file-removed"]


def test_what_a_restore_brought_back_is_live_and_may_be_rewritten_again() -> None:
    lake = new_lake(append("a"), append("b"))
    version = lake.head.header.version
    lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),)))
    lake.put(intent(IntentKind.RESTORE, "back", **restore(version)))
    assert codes(lake.put(append("sent again", data_file("a")))) == ["file-already-live"]
    assert codes(lake.put(rewrite(lake, "r2", A, B, adds=(data_file("newer", rows=20),)))) == [None]
    assert is_duplicate(lake.put(append("sent again", data_file("a")))), "its rows are in the table"
    assert is_duplicate(lake.reloaded_lake().put(append("sent again", data_file("a"))))


@pytest.mark.parametrize("more", [0, 40])
def test_what_became_of_a_file_last_counts_wherever_each_time_is_noted(more: int) -> None:
    """`more`: files that are rewritten in between, so that each time is noted in another page."""
    lake = new_lake(append("z"))
    empty = lake.head.header.version
    lake.put(append("a"), append("b"))
    there = lake.head.header.version

    def merge_and_restore(name: str, version: int) -> None:
        assert codes(lake.put(rewrite(lake, name, A, B, adds=(data_file(name, rows=20),)))) == [None]
        if more:
            compact(lake, f"more {name}", more)
        assert codes(lake.put(intent(IntentKind.RESTORE, f"undo {name}", **restore(version)))) == [None]

    merge_and_restore("r1", there)
    merge_and_restore("r2", there)
    assert codes(lake.put(append("sent again", data_file("a")))) == ["file-already-live"]
    lake.put(rewrite(lake, "r3", A, B, adds=(data_file("r3", rows=20),)))
    assert is_duplicate(lake.reloaded_lake().put(append("sent again", data_file("a"))))
    lake.put(intent(IntentKind.RESTORE, "before", **restore(empty)))
    assert codes(lake.reloaded_lake().put(append("sent again", data_file("a")))) == ["file-removed"]


def test_a_file_that_was_removed_may_still_come_back() -> None:
    lake = rewritten_lake()
    lake.put(append("c"), remove("gone", removed("data/c.parquet")))
    assert codes(lake.put(append("again", data_file("c")))) == [None]


def test_many_locations_move_to_a_page_and_are_found_there_by_whoever_reads_the_root() -> None:
    lake = new_lake()
    paths = compact(lake, "x", 40)
    left = lake.head.header.locations.retired
    assert (left.removed, left.rewritten, len(left.pages)) == (b"", b"", 1)
    assert left.pages[0].page.location in lake.objects
    assert left.pages[0].page.location in set(locations_of(lake.head.header))
    read = lake.reloaded()
    assert (read.header, read.pages) == (lake.head.header, lake.head.pages)
    again = lake.reloaded_lake()
    assert is_duplicate(again.put(*(append(path, data_file(path[5:-8])) for path in paths)))


def test_the_header_holds_few_and_pages_stay_few_however_often_a_table_is_compacted() -> None:
    lake = new_lake()
    kept = compact(lake, "first", 3)
    for number in range(60):
        compact(lake, f"n{number}", 11)
        left = lake.head.header.locations.retired
        assert len(left.removed) + len(left.rewritten) <= FRESH_BYTES_MAX
        assert len(left.pages) < 8
    assert sum(len(page.content) for page in lake.head.pages.of(RETIRED_PAGES)) <= 60 * 11 + 3
    assert is_duplicate(lake.put(*(append(path, data_file(path[5:-8])) for path in kept)))


def swept_and_compacted() -> tuple[SweptLake, list[str]]:
    lake = swept_lake()
    lake.days_pass(1)
    paths = compact(lake, "x", 40)
    return lake, paths


def test_the_horizon_takes_over_when_it_has_passed_the_rewrite() -> None:
    lake, paths = swept_and_compacted()
    uploaded_ms, names = lake.now_ms, [path[5:-8] for path in paths]
    lake.days_pass(5)
    assert codes(lake.put(lake.sweep("early", horizon_ms=lake.youngest_ms))) == [None]
    assert is_duplicate(lake.put_claiming(uploaded_ms, append("again", data_file(names[0]))))
    lake.days_pass(10)
    assert codes(lake.put(lake.sweep("s", horizon_ms=lake.youngest_ms))) == [None]
    assert lake.head.header.locations.retired.pages == ()
    assert codes(lake.put_claiming(uploaded_ms, append("late", data_file(names[0])))) == ["expired"]


def test_without_a_horizon_what_no_copy_on_the_log_can_name_is_forgotten() -> None:
    lake, _ = swept_and_compacted()
    lake.days_pass(7)
    assert len(lake.head.header.locations.retired.pages) == 1
    lake.days_pass(3)
    assert lake.head.header.locations.retired == NOTHING_RETIRED


def test_a_clock_that_jumps_ahead_forgets_nothing() -> None:
    lake, paths = swept_and_compacted()
    lake.now_ms += 400 * DAY_MS
    lake.put(append("jump"))
    assert is_duplicate(lake.put(append("again", data_file(paths[0][5:-8]))))


@pytest.mark.parametrize("count", [2, 40])
def test_a_dropped_table_comes_back_with_it_and_the_next_of_the_name_begins_without(count: int) -> None:
    lake = new_lake()
    [path, *_] = compact(lake, "x", count)
    lake.put(drop())
    lake.put(undrop(lake.head.header.version))
    assert is_duplicate(lake.put(append("again", data_file(path[5:-8]), table_uuid=TABLE_UUID)))
    assert codes(lake.put(drop("once more"), another())) == [None, None]
    assert (lake.head.header.locations.retired, lake.head.pages.of(RETIRED_PAGES)) == (NOTHING_RETIRED, ())
