"""Writers say when the oldest file of an intent was uploaded, and say nothing when they do not know."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import rootline
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_archive import SqliteLogArchive
from rootline.client.session import UploadDates
from rootline.coordinator.runtime.records import decoded
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import (
    CLAIM_UNREADABLE,
    OLDEST_FILE_HEADER,
    Headers,
    LogId,
    LogPosition,
    LogRecord,
    oldest_file_of,
)
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import DEFAULT_LIMITS
from rootline.tree.draft.batch import Record
from tests.tree.tables import append, data_file

ROWS = pa.table({"id": [1, 2, 3]})


def an_append(*names: str) -> Intent:
    return append("a", *(data_file(name) for name in names))


def test_an_intent_is_as_old_as_its_oldest_file_and_of_no_age_if_one_is_not_known() -> None:
    dates = UploadDates()
    dates.note("demo.flights", "data/a.parquet", 20)
    dates.note("demo.flights", "data/b.parquet", 10)
    dates.note("demo.other", "data/c.parquet", 5)
    assert dates.oldest_of([an_append("a", "b")]) == 10
    assert dates.oldest_of([an_append("a"), an_append("b")]) == 10
    assert dates.oldest_of([an_append("a", "c")]) is None
    assert dates.oldest_of([]) is None


def test_a_leaf_is_as_old_as_the_files_that_it_lists() -> None:
    dates = UploadDates()
    for name, stored_ms in (("a", 10), ("b", 20), ("leaf", 30)):
        dates.note("t.t", name, stored_ms)
    dates.note_leaves("t.t", ["leaf"], dates.oldest("t.t", ["a", "b"]))
    assert dates.oldest("t.t", ["leaf"]) == 10
    dates.note_leaves("t.t", ["leaf"], dates.oldest("t.t", ["a", "of another process"]))
    assert dates.oldest("t.t", ["leaf"]) is None


@pytest.mark.parametrize(
    ("headers", "oldest_ms"),
    [
        ((), None),
        ((("other", b"1"),), None),
        (((OLDEST_FILE_HEADER, b"17"),), 17),
        (((OLDEST_FILE_HEADER, b"17"), (OLDEST_FILE_HEADER, b"5")), 5),
        (((OLDEST_FILE_HEADER, b"-1"),), CLAIM_UNREADABLE),
        (((OLDEST_FILE_HEADER, None),), CLAIM_UNREADABLE),
        (((OLDEST_FILE_HEADER, b"9" * 400),), CLAIM_UNREADABLE),
        (((OLDEST_FILE_HEADER, "١٢".encode()),), CLAIM_UNREADABLE),
    ],
)
def test_a_claim_that_is_no_number_is_later_than_every_append_time(headers: Headers, oldest_ms: int | None) -> None:
    assert oldest_file_of(headers) == oldest_ms
    value = encode_intent(an_append("a"))
    record = decoded(LogRecord(LogPosition(LogId("x"), 0, 0), None, value, 1, headers), DEFAULT_LIMITS)
    assert isinstance(record, Record)
    assert record.oldest_file_ms == oldest_ms


async def test_a_claim_is_read_back_from_both_embedded_logs(tmp_path: Path) -> None:
    for log in (MemoryIntentLog(), SqliteIntentLog(tmp_path)):
        await log.publish(b"k", b"v", oldest_file_ms=17)
        await log.publish(b"k", b"v")
        records = await log.read(0, limit=10, wait_s=0)
        assert [oldest_file_of(record.headers) for record in records] == [17, None]
        await log.close() if isinstance(log, SqliteIntentLog) else None


async def test_every_intent_of_a_lake_says_how_old_its_files_are(tmp_path: Path) -> None:
    with rootline.connect(str(tmp_path)) as lake:
        table = lake.create_table("demo.flights", ROWS.schema, properties={"rootline.append.leaf-files": "3"})
        table.append(ROWS)
        table.append(ROWS)
        table.delete_where("id = 2")
    archive = SqliteLogArchive(tmp_path / ".rootline")
    records = [record async for portion in archive.records() for record in portion]
    await archive.close()
    claims = [oldest_file_of(record.headers) for record in reversed(records)]
    assert claims[0] is None, "a definition is no file"
    assert all(
        claim is not None and claim <= record.appended_ms + 1
        for claim, record in zip(claims[1:], list(reversed(records))[1:], strict=True)
    )
