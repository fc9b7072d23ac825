"""Where a partition is read from, for every state of what is remembered and what is there."""

from __future__ import annotations

import pytest

from rootline.adapters.kafka.group_offsets import Committed, PartitionFacts, starts_of
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId

LOG = LogId("cluster/topic")
OLD = LogId("cluster/before")


def start(committed: Committed | None, begin: int, end: int, bookmark: LogId | None = None) -> int | str:
    """The start, or the code of the refusal."""
    try:
        return starts_of("intents", LOG, bookmark, [PartitionFacts(3, committed, begin, end)])[3]
    except Fenced as refusal:
        return refusal.code


@pytest.mark.parametrize(
    ("committed", "begin", "end", "expected"),
    [
        (None, 0, 0, 0),
        (None, 7, 20, "offset-out-of-range"),
        (Committed(7, LOG), 7, 20, 7),
        (Committed(12, LOG), 7, 20, 12),
        (Committed(20, LOG), 7, 20, 20),
        (Committed(20, LOG), 20, 20, 20),
        (Committed(12, None), 7, 20, 12),
        (Committed(6, LOG), 7, 20, "offset-out-of-range"),
        (Committed(0, None), 7, 20, "offset-out-of-range"),
        (Committed(21, LOG), 7, 20, "log-behind-root"),
        (Committed(12, OLD), 7, 20, "log-replaced"),
        (Committed(6, OLD), 7, 20, "log-replaced"),
        (Committed(21, OLD), 7, 20, "log-replaced"),
    ],
)
def test_a_start_is_what_is_remembered_or_the_first_record_and_never_a_guess(
    committed: Committed | None, begin: int, end: int, expected: int | str
) -> None:
    assert start(committed, begin, end) == expected
    assert start(committed, begin, end, bookmark=LOG) == expected
    assert start(committed, begin, end, bookmark=OLD) == "log-replaced"


def test_a_refusal_names_every_partition_that_lost_records() -> None:
    facts = [
        PartitionFacts(0, Committed(5, LOG), 9, 20),
        PartitionFacts(1, Committed(9, LOG), 9, 20),
        PartitionFacts(2, Committed(0, LOG), 1, 1),
    ]
    with pytest.raises(Fenced, match=r"partition 0 lost offsets 5 to 8 \(4\); partition 2 lost offsets 0 to 0 \(1\)"):
        starts_of("intents", LOG, LOG, facts)


def test_nothing_assigned_starts_nowhere() -> None:
    assert starts_of("intents", LOG, None, []) == {}
