"""What is said of an intent's content: the same in every version, and nothing but what the intent does."""

from __future__ import annotations

import uuid

from rootline.schemas.bytes.record_headers import content_headers, content_of_intent, kept_of, said_in, stated
from rootline.schemas.intent import DataFile, Intent, IntentKind


def _intent(**changes: object) -> Intent:
    file = DataFile(
        location="data/a.parquet",
        record_count=10,
        file_size_in_bytes=100,
        content_stats=b"\x01\xff",
        stats_schema=b"12345678",
    )
    given = Intent(
        intent_id="i",
        table="a.b",
        kind=IntentKind.APPEND,
        writer_id="w",
        writer_sequence=3,
        add_data_files=(file,),
    )
    return given.model_copy(update=changes)


def test_the_value_is_what_earlier_versions_said() -> None:
    """Another value for the same content would reject what is published again after an upgrade."""
    assert content_of_intent(_intent()) == (
        '{"kind":"append","add_data_files":[{"location":"data/a.parquet","record_count":10,"file_size_in_bytes":100,'
        '"content_stats":"Af8=","stats_schema":"MTIzNDU2Nzg="}]}'
    )
    assert stated(content_of_intent(_intent())) == b"76c2fc5e1e8335047298329df7a1d9b6"
    assert [part.hex() for part in kept_of("w", 3, b"said")] == ["a84687648e20a936", "fb46c79b7eb7af17"]


def test_ids_what_was_read_and_the_summary_are_no_content() -> None:
    other = _intent(
        intent_id="j", writer_sequence=9, table_uuid=uuid.uuid4(), read_version=4, summary={"at": "12:00"}, schema_id=1
    )
    assert content_of_intent(other) == content_of_intent(_intent())


def test_kind_and_cargo_are() -> None:
    renamed = _intent().add_data_files[0].model_copy(update={"location": "data/b.parquet"})
    assert content_of_intent(_intent(add_data_files=(renamed,))) != content_of_intent(_intent())
    assert content_of_intent(_intent(kind=IntentKind.OVERWRITE)) != content_of_intent(_intent())


def test_nothing_is_said_in_a_record_without_the_header_or_with_an_empty_one() -> None:
    assert stated("") is None
    assert said_in(content_headers(None)) is None
    assert said_in((("rootline.content", None),)) is None
    assert said_in((("rootline.content", b""), ("x", b"y"))) is None
    assert said_in((("rootline.content", b"old"), ("rootline.content", b"new"))) == b"new"
