"""A record with headers, decoded or rejected: both keep them."""

from __future__ import annotations

import tracemalloc

import pytest

from rootline.coordinator.runtime.records import decoded
from rootline.schemas.bytes.intent_codec import encode_intent, encode_intent_json
from rootline.schemas.identifiers import Headers, LogId, LogPosition, LogRecord
from rootline.schemas.intent import DataFile, GenericStatistics, Intent, IntentKind, RemovedFile
from rootline.schemas.intent_rules import IntentLimits
from rootline.tree.draft.batch import Record
from tests.coordinator.running_service import TABLE, append_intent

POSITION = LogPosition(LogId("cluster/topic"), 3, 7)
HEADERS: Headers = (("traceparent", b"00-4bf9"), ("traceparent", b"00-5c0a"), ("empty", None))


def record(value: bytes, headers: Headers) -> LogRecord:
    return LogRecord(POSITION, TABLE.encode(), value, 1, headers)


def test_an_intent_keeps_its_records_headers_and_its_size_counts_them() -> None:
    value = encode_intent(append_intent("one"))

    found = decoded(record(value, HEADERS), IntentLimits())

    assert isinstance(found, Record)
    assert found.headers == HEADERS
    assert found.size_in_bytes == len(TABLE) + len(value) + 2 * len("traceparent" + "00-4bf9") + len("empty")


def test_a_dead_letter_keeps_its_records_headers() -> None:
    found = decoded(record(b"\x00", HEADERS), IntentLimits())

    assert isinstance(found, tuple)
    assert (found[1].code, found[1].value, found[1].headers) == ("undecodable", b"\x00", HEADERS)


def test_the_last_content_type_counts_and_one_without_a_value_says_nothing() -> None:
    value = b"  " * 40 + encode_intent_json(append_intent("one"))  # not known by its first bytes
    json: Headers = (("content-type", b"avro/binary"), ("content-type", b"application/json"))

    assert isinstance(decoded(record(value, json), IntentLimits()), Record)
    assert isinstance(decoded(record(value, (("content-type", None),)), IntentLimits()), tuple)


def test_headers_count_towards_the_limit_of_an_intent() -> None:
    value = encode_intent(append_intent("one"))
    limits = IntentLimits(max_bytes=len(value) + 1_000)

    assert isinstance(decoded(record(value, (("h", bytes(999)),)), limits), Record)
    rejection = decoded(record(value, (("h", bytes(1_000)),)), limits)
    assert isinstance(rejection, tuple)
    assert rejection[1].code == "intent-too-large"


def with_files(count: int, columns: int) -> Intent:
    columns_of_one = tuple(GenericStatistics(field_id=number + 1, lower_bound=b"a" * 20) for number in range(columns))
    files = tuple(
        DataFile(location=f"data/{number}", record_count=1, file_size_in_bytes=1, statistics=columns_of_one)
        for number in range(count)
    )
    return Intent(intent_id="many", table=TABLE, kind=IntentKind.APPEND, add_data_files=files)


def with_removals(count: int) -> Intent:
    removed = tuple(RemovedFile(location=f"data/{number:012d}.parquet") for number in range(count))
    return Intent(intent_id="many", table=TABLE, kind=IntentKind.REMOVE, remove_files=removed)


@pytest.mark.parametrize(
    "intent",
    [
        append_intent("one"),
        with_files(1, 20),
        with_files(50, 0),
        with_files(50, 5),
        with_removals(1),
        with_removals(200),
    ],
    ids=["append", "statistics", "files", "files with statistics", "removal", "removals"],
)
def test_what_is_counted_for_an_intent_in_memory_is_about_what_it_takes_there(intent: Intent) -> None:
    value = encode_intent(intent)
    raws = [record(bytes(bytearray(value)), ()) for _ in range(20)]
    tracemalloc.start()
    try:
        records = [decoded(raw, IntentLimits()) for raw in raws]
        taken = tracemalloc.get_traced_memory()[0] / len(raws) + len(value)
    finally:
        tracemalloc.stop()
    held = records[0].buffered_bytes if isinstance(records[0], Record) else 0
    assert taken / 2 < held < 2 * taken
