"""Derived columns of leaves stay while there is room."""

from __future__ import annotations

from functools import cached_property

from rootline.schemas.bytes.leaf import KeptColumns


class Thing:
    def __init__(self, keeper: KeptColumns, length: int) -> None:
        self._keeper, self._length, self.made = keeper, length, 0

    def __len__(self) -> int:
        return self._length

    @cached_property
    def columns(self) -> int:
        self._keeper.add(self)
        self.made += 1
        return self.made


def things(keeper: KeptColumns, *lengths: int) -> list[Thing]:
    made = [Thing(keeper, length) for length in lengths]
    for thing in made:
        assert thing.columns == 1
    return made


def kept(made: list[Thing]) -> list[bool]:
    return ["columns" in thing.__dict__ for thing in made]


def test_the_oldest_leave_when_there_is_no_room() -> None:
    keeper = KeptColumns(["columns"], entries_max=10)
    made = things(keeper, 4, 4, 4, 2)
    assert kept(made) == [False, True, True, True]
    assert made[0].columns == 2
    assert kept(made) == [True, False, True, True]


def test_one_that_is_larger_than_the_room_stays_alone() -> None:
    made = things(KeptColumns(["columns"], entries_max=10), 3, 50)
    assert kept(made) == [False, True]


def test_there_is_room_for_so_many_and_no_more() -> None:
    made = things(KeptColumns(["columns"], leaves_max=2), 1, 1, 1)
    assert kept(made) == [False, True, True]


def test_nothing_is_kept_alive() -> None:
    keeper = KeptColumns(["columns"], entries_max=10)
    (alone,) = things(keeper, 9)
    del alone
    (after,) = things(keeper, 9)
    assert kept([after]) == [True]
