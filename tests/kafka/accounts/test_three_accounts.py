"""The comparison of the three accounts finds what does not fit, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from rootline.schemas.verdict import Verdict, VerdictKind
from tests.kafka.accounts.three_accounts import Life, Line, balance

COMMITTED = ("committed", "")


def verdict(offset: int, version: int = 1) -> Verdict:
    return Verdict(
        intent_id=f"i{offset}",
        table="a.b",
        kind=VerdictKind.COMMITTED,
        log="log",
        partition=0,
        offset=offset,
        version=version,
        snapshot_id=1,
        sequence_number=offset,
    )


def line(offset: int, *, again: bool = False) -> Line:
    return Line((0, offset), f"i{offset}", "a.b", "committed", "", 1, again)


def life(name: str, *lines: Line, was_killed: bool = False) -> Life:
    own = Counter({COMMITTED: sum(not found.told_again for found in lines)})
    again = Counter({COMMITTED: sum(found.told_again for found in lines)})
    return Life(name, +own, +again, lines, was_killed=was_killed)


TOPIC = {(0, offset): [verdict(offset)] for offset in range(3)}
WHOLE = life("a", *map(line, range(3)))


def test_accounts_that_agree_are_balanced() -> None:
    found = balance(TOPIC, [WHOLE])
    assert (found.wrong, found.unlogged, found.own, found.again, found.copies) == ((), (), 3, 0, 3)


def test_what_is_told_again_by_the_next_process_is_balanced_if_the_topic_has_it_as_often() -> None:
    heir = life("b", line(2, again=True))
    again = {**TOPIC, (0, 2): [verdict(2), verdict(2)]}
    assert balance(again, [WHOLE, heir]).wrong == ()
    assert "has 2 lines, and was told 1 times" in balance(TOPIC, [WHOLE, heir]).wrong[0]


def test_what_only_a_count_names_is_logged_too() -> None:
    counted = replace(WHOLE, lines=WHOLE.lines[:1], rest=Counter({("committed", False): 2}))
    assert balance(TOPIC, [counted]).wrong == ()


@pytest.mark.parametrize(
    ("lives", "said"),
    [
        ([replace(WHOLE, own=Counter({COMMITTED: 4}))], "counted and not logged {'committed': 1}"),
        ([replace(WHOLE, own=Counter({COMMITTED: 2}))], "logged and not counted {'committed': 1}"),
        ([life("a", *map(line, (0, 1, 2, 2)))], "told more than once"),
        ([WHOLE, life("b", line(0))], "counted as their own by ['a', 'b']"),
        ([life("a", *map(line, range(4)))], "on which the topic has no verdict"),
        ([life("a", *map(line, range(2)))], "in no line, and no process was killed"),
        ([life("a", *map(line, range(2)), replace(line(2), table="c.d"))], "is about"),
    ],
)
def test_each_kind_of_disagreement_is_found(lives: list[Life], said: str) -> None:
    found = balance(TOPIC, lives).wrong
    assert any(said in fault for fault in found), found


def test_a_verdict_that_is_told_in_two_ways_is_found() -> None:
    found = balance({**TOPIC, (0, 1): [verdict(1), verdict(1, version=2)]}, [WHOLE])
    assert "was told differently" in found.wrong[0]


def test_a_killed_process_may_have_counted_less_than_it_logged_and_never_more() -> None:
    killed = replace(WHOLE, was_killed=True, own=Counter({COMMITTED: 1}))
    assert balance(TOPIC, [killed]).wrong == ()
    found = balance(TOPIC, [replace(killed, own=Counter({COMMITTED: 4}))])
    assert "counted, and in no line" in found.wrong[0]


def test_what_a_killed_process_did_not_log_is_named() -> None:
    assert balance(TOPIC, [replace(WHOLE, was_killed=True, lines=WHOLE.lines[:2])]).unlogged == ((0, 2),)
