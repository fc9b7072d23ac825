"""When a batch closes, and how long retries wait."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rootline.coordinator.protocol.group_window import (
    BatchLimits,
    awaited,
    is_full,
    moving_average,
    next_window,
    take,
    writers_of,
)
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.intent import AddedManifest, DataFile, Intent, IntentKind
from rootline.tree.draft.batch import Record
from rootline.tree.rules.leaf_rules import LEAVES_BYTES_MAX

LIMITS = BatchLimits(intents_max=10, bytes_max=1_000, age_s_max=0.5)


def record(offset: int, size_in_bytes: int = 10) -> Record:
    added = DataFile(location=f"data/{offset}.parquet", record_count=1, file_size_in_bytes=1)
    intent = Intent(intent_id=str(offset), table="a.b", kind=IntentKind.APPEND, add_data_files=(added,))
    return Record(LogPosition(LogId("l"), 0, offset), intent, size_in_bytes)


def test_a_lone_writer_never_waits() -> None:
    assert next_window(returning=1, queued=0, put_s=0.1, limits=LIMITS) is None
    assert next_window(returning=0, queued=1, put_s=0.1, limits=LIMITS) is None


def test_after_a_root_of_several_intents_the_batch_waits_for_as_many_but_only_a_quarter_of_a_put() -> None:
    window = next_window(returning=4, queued=1, put_s=0.1, limits=LIMITS)
    assert window is not None
    assert (window.expected, window.delay_s) == (5, 0.025)


def test_a_batch_stays_open_only_for_writers_that_do_not_wait_already() -> None:
    def of_writer(offset: int, writer_id: str | None) -> Record:
        plain = record(offset)
        number = None if writer_id is None else offset
        return replace(
            plain, intent=plain.intent.model_copy(update={"writer_id": writer_id, "writer_sequence": number})
        )

    batch = [of_writer(0, "a"), of_writer(1, "a"), of_writer(2, "b"), of_writer(3, None)]
    earlier = [writers_of(batch)]
    assert awaited(batch, [], earlier) == 4
    assert awaited(batch, [of_writer(4, "c")], earlier) == 4
    assert awaited(batch, [of_writer(4, "a")], earlier) == 2
    assert awaited(batch, [of_writer(4, "b"), of_writer(5, None)], earlier) == 3, (
        "a writer without an id may be any writer"
    )
    assert next_window(returning=0, queued=4, put_s=0.1, limits=LIMITS) is None


def test_a_batch_stays_open_only_for_writers_of_one_of_the_two_roots_before() -> None:
    def root(*writers: str) -> list[Record]:
        return [replace(record(0), intent=record(0).intent.model_copy(update={"writer_id": name})) for name in writers]

    paced, other = writers_of(root("x", "y")), writers_of(root("z"))
    assert awaited(root("a", "b"), [], ()) == 0
    assert awaited(root("a", "b"), [], (paced, other)) == 0
    assert awaited(root("a", "x"), [], (paced, other)) == 1, "groups that alternate meet again"
    assert awaited(root("a", "z"), [], (paced, other)) == 1


def test_a_window_never_exceeds_the_age_limit() -> None:
    window = next_window(returning=4, queued=0, put_s=60.0, limits=LIMITS)
    assert window is not None
    assert window.delay_s == LIMITS.age_s_max


def test_a_batch_that_is_full_already_closes_at_once() -> None:
    assert next_window(returning=2, queued=10, put_s=0.1, limits=LIMITS) is None


def test_a_batch_is_full_by_count_and_by_bytes() -> None:
    assert not is_full([record(0), record(1)], LIMITS, expected=3)
    assert is_full([record(0), record(1), record(2)], LIMITS, expected=3)
    assert is_full([record(0, 999), record(1, 1)], LIMITS, expected=9)


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=40))
def test_a_batch_takes_at_least_one_record_and_stays_within_its_limits(sizes: list[int]) -> None:
    queue = [record(offset, size) for offset, size in enumerate(sizes)]
    count = take(queue, LIMITS)
    taken = sizes[:count]
    assert 1 <= count <= LIMITS.intents_max
    assert count == 1 or sum(taken) <= LIMITS.bytes_max
    if count < len(sizes):
        assert count == LIMITS.intents_max or sum(sizes[: count + 1]) > LIMITS.bytes_max


def test_the_moving_average_starts_at_the_first_value_and_follows() -> None:
    first = moving_average(None, 1.0)
    assert first == 1.0
    assert 1.0 < moving_average(first, 2.0) < 2.0


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_delays_grow_to_a_cap_and_stay_there(count: int, jitter: float) -> None:
    policy = RetryPolicy(delay_s_min=0.02, delay_s_max=5.0, losses_max=8)
    assert 0.01 <= policy.after_failure(count, jitter) <= 5.0
    assert 0.0 <= policy.after_loss(count, jitter) <= 5.0


def test_the_first_lost_race_is_run_again_at_once() -> None:
    assert RetryPolicy(0.02, 5.0, 8).after_loss(1, 0.9) == 0.0


def test_a_batch_takes_no_more_leaves_than_fit_into_memory_but_always_one_intent() -> None:
    def naming(offset: int, size_in_bytes: int) -> Record:
        leaf = AddedManifest(
            location=f"metadata/leaves/{offset}.parquet",
            content_type=ContentType.DATA_MANIFEST,
            file_size_in_bytes=size_in_bytes,
            record_count=1,
            partition_spec_id=0,
        )
        intent = Intent(intent_id=str(offset), table="a.b", kind=IntentKind.APPEND, add_manifests=(leaf,))
        return Record(LogPosition(LogId("l"), 0, offset), intent, 10)

    half = LEAVES_BYTES_MAX // 2
    assert take([naming(0, half), naming(1, half), record(2), naming(3, 1), record(4)], LIMITS) == 3
    assert take([naming(0, 2 * LEAVES_BYTES_MAX), record(1)], LIMITS) == 1
    refused = replace(naming(0, 2 * LEAVES_BYTES_MAX), refusal=("signature-missing", "no"))
    assert take([record(1), refused, record(2)], LIMITS) == 3, "no one reads the leaves of those who may not write"
