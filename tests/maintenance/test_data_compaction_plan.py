"""Which data files are written again together."""

from __future__ import annotations

from collections.abc import Mapping

from rootline.maintenance.data_compaction_plan import FILES_MAX, DataCompactionLimits, TableFiles, choose_files
from rootline.schemas.intent import Intent, IntentKind
from tests.tree.tables import BY_BUCKET, Lake, append, data_file, intent, new_lake, seen_vector

NONE_LOST: Mapping[str, int] = {}


def chosen(
    lake: Lake, lost: Mapping[str, int] = NONE_LOST, at_most: int = FILES_MAX, **limits: int
) -> tuple[set[str], set[str]]:
    """The names of the group's files, and of those that are too large."""
    fields: dict[str, int] = {"target_bytes": 100_000, "files": 3, "bytes": 100_000, **limits}
    found = choose_files(TableFiles(lake.head), DataCompactionLimits(True, **fields), lost, at_most)
    names = ({entry.location for entry in found.files}, {entry.location for entry in found.left})
    return tuple({name.removeprefix("data/").removesuffix(".parquet") for name in part} for part in names)  # type: ignore[return-value]


def delete_rows(lake: Lake, name: str, target: str, *positions: int) -> Intent:
    location = f"data/{target}.parquet"
    vector = lake.vector(name, location, positions, seen_vector(lake.head, location))
    return intent(IntentKind.ROW_DELTA, name, add_vectors=(vector,))


def test_small_files_of_one_partition_go_together_once_there_are_enough() -> None:
    lake = new_lake(append("a"), append("b"), append("x", data_file("x", carrier="AA")))
    assert chosen(lake) == (set(), set())
    lake.put(append("c"))
    assert chosen(lake) == ({"a", "b", "c"}, set())
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert chosen(lake) == ({"a", "b", "c"}, set())


def test_a_group_has_no_more_bytes_than_the_target_or_the_limit() -> None:
    lake = new_lake(*(append(name) for name in "abcde"))
    assert len(chosen(lake, target_bytes=3_000)[0]) == 3
    assert len(chosen(lake, bytes=4_000)[0]) == 4
    assert len(chosen(lake, at_most=2)[0]) == 2


def test_a_file_of_which_many_rows_are_deleted_is_worth_it_alone() -> None:
    lake = new_lake(append("a", data_file("a", file_size_in_bytes=90_000)))
    lake.put(delete_rows(lake, "v", "a", 1, 2))
    assert chosen(lake) == (set(), set())
    lake.put(delete_rows(lake, "w", "a", 1, 2, 3))
    assert chosen(lake) == ({"a"}, set())
    assert chosen(lake, bytes=80_000) == (set(), {"a"})


def test_large_whole_files_and_those_of_another_spec_stay() -> None:
    large = (append(name, data_file(name, file_size_in_bytes=60_000)) for name in "abc")
    other = (append(name, data_file(name, partition_spec_id=BY_BUCKET, carrier=None)) for name in "xyz")
    assert chosen(new_lake(*large, *other)) == (set(), set())


def test_files_of_groups_that_lost_come_last() -> None:
    lake = new_lake(*(append(name) for name in "abcdef"))
    lost = {f"data/{name}.parquet": 1 for name in "abc"}
    assert chosen(lake, lost, at_most=3) == ({"d", "e", "f"}, set())
    others = (append(name, data_file(name, carrier="AA")) for name in "uvw")
    for item in others:
        lake.put(item)
    all_lost = {f"data/{name}.parquet": 1 for name in "abcdef"}
    assert chosen(lake, all_lost) == ({"u", "v", "w"}, set())
