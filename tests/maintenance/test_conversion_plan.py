"""Which equality deletes are converted together."""

from __future__ import annotations

from rootline.maintenance.conversion_plan import ConversionLimits, choose_deletes
from rootline.maintenance.data_compaction_plan import TableFiles
from rootline.schemas.intent import Intent, IntentKind
from tests.tree.tables import Lake, append, data_file, equality_delete, intent, new_lake


def delete_value(name: str, value: int, carrier: str = "UA") -> Intent:
    return intent(IntentKind.ROW_DELTA, name, add_equality_deletes=(equality_delete(name, value, carrier),))


def chosen(lake: Lake, at_most: int = 256, **limits: int) -> tuple[list[str], list[str], list[str]]:
    """The names of the deletes, of the files that they may reach, and of the deletes that are left."""
    found = choose_deletes(TableFiles(lake.head), ConversionLimits(**limits), at_most)
    names = ([delete.location for delete in found.deletes], [task.location for task in found.tasks])
    parts = (*names, [delete.location for delete in found.left])
    return tuple([name.removeprefix("data/").removesuffix(".parquet") for name in part] for part in parts)  # type: ignore[return-value]


def test_the_oldest_deletes_come_first_with_every_file_that_they_may_reach() -> None:
    lake = new_lake(append("a"), delete_value("d", 3), append("b"), delete_value("e", 3), append("c"))
    assert chosen(lake) == (["d", "e"], ["a", "b"], [])
    assert chosen(lake, at_most=1) == (["d"], ["a"], [])


def test_a_delete_that_alone_needs_too_much_is_left_and_hinders_no_other() -> None:
    lake = new_lake(append("a"), append("b"), append("x", data_file("x", carrier="AA")), delete_value("d", 3))
    lake.put(delete_value("e", 3, "AA"))
    assert chosen(lake, files=1) == (["e"], ["x"], ["d"])
    assert chosen(lake, files=2) == (["d"], ["a", "b"], [])
    assert chosen(lake, bytes=1_999) == (["e"], ["x"], ["d"])
    assert chosen(lake, rows=1)[0] == ["d"]


def test_a_delete_that_reaches_no_file_needs_none() -> None:
    lake = new_lake(append("a"), delete_value("d", 900))
    assert chosen(lake, files=1) == (["d"], [], [])


def test_rows_of_a_root_and_of_leaves_are_found_alike() -> None:
    lake = new_lake(append("a"), append("b"), delete_value("d", 3))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert chosen(lake) == (["d"], ["a", "b"], [])
