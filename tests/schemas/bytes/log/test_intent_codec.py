from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from rootline.schemas.bytes import intent_codec
from rootline.schemas.bytes.intent_codec import (
    RecordFraming,
    decode_intent,
    encode_intent,
    encode_intent_json,
    fingerprint_of,
    shipped_schema,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import GenericStatistics, Intent, IntentKind, WireModel
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import DeadLetter, Verdict
from tests.golden_files import golden
from tests.schemas.intent_examples import FILE, intents

JSON = {"content-type": b"application/json"}
FIRST_RELEASED_FINGERPRINT = bytes.fromhex("1c0689b9a901c7ae")
SECOND_RELEASED_FINGERPRINT = bytes.fromhex("ea56fa2e8689e87b")
KINDS_OF_VERSION_1 = ("append", "remove", "overwrite", "row_delta", "create", "flush")
KINDS_OF_VERSION_2 = (*KINDS_OF_VERSION_1, "compact_leaves", "compact_vectors", "tag", "restore", "rewrite")


def refused(value: bytes, headers: dict[str, bytes] | None = None, limits: IntentLimits | None = None) -> Invalid:
    with pytest.raises(Invalid) as caught:
        decode_intent(value, headers or {}, limits or IntentLimits())
    assert len(caught.value.message) < 2_000
    assert caught.value.message.isprintable()
    return caught.value


def as_json(**changes: Any) -> bytes:
    body = json.loads(encode_intent_json(intents()[0]))
    body.update(changes)
    return json.dumps({name: value for name, value in body.items() if value is not ...}).encode()


def framed(record: dict[str, Any]) -> bytes:
    """An intent as a producer without any code of ours writes it."""
    schema = fastavro.parse_schema(dict(shipped_schema("intent")))
    sink = io.BytesIO(b"\xc3\x01" + fingerprint_of(shipped_schema("intent")))
    sink.seek(10)
    fastavro.schemaless_writer(sink, schema, record)
    return sink.getvalue()


@pytest.mark.parametrize("intent", intents(), ids=lambda intent: str(intent.kind))
def test_an_intent_reads_back_in_both_framings(intent: Intent) -> None:
    assert decode_intent(encode_intent(intent)) == intent
    assert decode_intent(encode_intent_json(intent), JSON) == intent
    assert decode_intent(encode_intent_json(intent), {"content-type": b"Application/JSON; charset=utf-8"}) == intent


@pytest.mark.parametrize("intent", intents(), ids=lambda intent: str(intent.kind))
def test_intents_that_were_released_stay_readable(intent: Intent) -> None:
    version = 3 if intent.page is None else 4
    assert decode_intent(golden(f"intent-{version}-{_name_of(intent)}.avro", encode_intent(intent))) == intent
    assert decode_intent(golden(f"intent-{_name_of(intent)}.json", encode_intent_json(intent)), JSON) == intent


@pytest.mark.parametrize(
    "intent",
    [intent for intent in intents() if intent.kind in KINDS_OF_VERSION_1 and intent.adopt is None],
    ids=lambda intent: str(intent.kind),
)
def test_intents_of_the_first_version_read_as_todays(intent: Intent) -> None:
    held = golden(f"intent-{intent.kind}.avro", _in_version(1, intent))
    assert held[:10] == b"\xc3\x01" + FIRST_RELEASED_FINGERPRINT
    assert decode_intent(held) == intent


@pytest.mark.parametrize(
    "intent",
    [intent for intent in intents() if intent.kind in KINDS_OF_VERSION_2 and intent.adopt is None],
    ids=lambda intent: str(intent.kind),
)
def test_intents_of_the_second_version_read_as_todays(intent: Intent) -> None:
    held = golden(f"intent-2-{intent.kind}.avro", _in_version(2, intent))
    assert held[:10] == b"\xc3\x01" + SECOND_RELEASED_FINGERPRINT
    assert decode_intent(held) == intent


def _in_version(version: int, intent: Intent) -> bytes:
    record = intent.model_dump(exclude={"adopt", "page"})
    if intent.table_uuid is not None:
        record["table_uuid"] = str(intent.table_uuid)
    return RecordFraming(shipped_schema(f"intent_{version}")).encode(record)


def _name_of(intent: Intent) -> str:
    if intent.adopt is not None:
        return "adopt"
    return "expire-all-but" if intent.kind is IntentKind.EXPIRE and intent.page is not None else str(intent.kind)


@pytest.mark.parametrize("intent", intents(), ids=lambda intent: intent.intent_id)
def test_a_newer_schema_is_used_only_for_what_the_one_before_cannot_say(intent: Intent) -> None:
    prefix = encode_intent(intent)[:10]
    named = "intent" if intent.page is None else "intent_4"
    assert prefix == b"\xc3\x01" + fingerprint_of(shipped_schema(named))


def test_a_page_needs_its_whole_digest() -> None:
    page = {"location": "metadata/pages/a.avro", "file_size_in_bytes": 1, "digest": "AAEC"}
    sweep = {"intent_id": "1", "table": "t.t", "kind": "sweep", "made_from_version": 1, "page": page}
    assert "page.digest" in refused(json.dumps(sweep).encode(), JSON).message
    assert "page" in refused(json.dumps({**sweep, "page": None}).encode(), JSON).message


def test_earlier_schemas_are_those_that_were_released() -> None:
    assert fingerprint_of(shipped_schema("intent_1")) == FIRST_RELEASED_FINGERPRINT
    assert fingerprint_of(shipped_schema("intent_2")) == SECOND_RELEASED_FINGERPRINT
    assert fingerprint_of(shipped_schema("intent")) not in {FIRST_RELEASED_FINGERPRINT, SECOND_RELEASED_FINGERPRINT}


def test_a_fingerprint_is_computed_as_the_avro_specification_says() -> None:
    assert fingerprint_of({"type": "int"}) == bytes.fromhex("8f5c393f1ad57572")


def test_every_field_of_the_schemas_is_documented_and_is_the_models_own() -> None:
    def records(schema: Any) -> list[dict[str, Any]]:
        if isinstance(schema, list):
            return [found for branch in schema for found in records(branch)]
        if not isinstance(schema, dict):
            return []
        if schema["type"] == "record":
            return [schema, *(found for field in schema["fields"] for found in records(field["type"]))]
        return records(schema.get("items") or schema.get("values"))

    found = [record for name in ("intent_4", "verdict", "dead_letter") for record in records(shipped_schema(name))]
    assert all(len(field["doc"]) > 5 for record in found for field in record["fields"])
    assert all(record["doc"] for record in found)
    models: dict[str, type[WireModel]] = {
        model.__name__: model for model in (*_subclasses(WireModel), Verdict, DeadLetter)
    }
    today, newer = shipped_schema("intent")["fields"], shipped_schema("intent_4")["fields"]
    assert [field["name"] for field in newer] == [*(field["name"] for field in today), "page"]
    by_name = {record["name"]: record for record in found if record["name"] not in {"Verdicts", "Header"}}
    for name, record in by_name.items():
        fields = {item for item in models[name].model_fields if item not in {"lower_value", "upper_value"}}
        assert {field["name"] for field in record["fields"]} == fields
        for field in record["fields"]:
            assert ("default" in field) == (not models[name].model_fields[field["name"]].is_required()), field


def _subclasses(model: type[WireModel]) -> list[type[WireModel]]:
    return [found for child in model.__subclasses__() for found in (child, *_subclasses(child))]


def test_a_producer_needs_an_avro_library_and_the_schema_only() -> None:
    record = {
        "intent_id": "1",
        "table": "db.events",
        "kind": "append",
        "add_data_files": [{"location": "data/a.parquet", "record_count": 1, "file_size_in_bytes": 2}],
    }
    intent = decode_intent(framed(record))
    assert intent.kind is IntentKind.APPEND
    assert intent.add_data_files[0].location == "data/a.parquet"


def test_intents_of_an_earlier_version_read_as_todays() -> None:
    newest = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"], "default": None}],
    }
    first = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    framing = RecordFraming(newest, earlier=(first,))
    assert framing.decode(RecordFraming(first).encode({"a": 7}), name="r") == {"a": 7, "b": None}
    assert framing.decode(framing.encode({"a": 8, "b": "x"}), name="r") == {"a": 8, "b": "x"}


def test_bytes_that_are_no_intent_are_undecodable() -> None:
    good = encode_intent(intents()[0])
    for value in (
        b"",
        b"\xc3",
        b"\xc3\x01",
        b"[]",
        good[:-1],
        good[:40],
        good[:10],
        good + b"\x00",
        b"\xc3\x02" + good[2:],
        good[:2] + bytes(8) + good[10:],
        good[:10] + b"\xff" * 20,
        good[:10] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a string of 2**63-1 bytes
        good[:10] + b"\x01",  # a string of -1 bytes
        good[:10] + b"\x02\xff",  # not UTF-8
    ):
        assert refused(value).code == "undecodable"
    for value in (b"", b"nonsense", b"[]", b"7", b"\xff", b'{"a":NaN}', b"{" * 30, good, b'{"a":"\\ud800"}'):
        assert refused(value, JSON).code == "undecodable"


def test_a_json_intent_is_known_by_its_first_byte_where_a_log_carries_no_headers() -> None:
    intent = intents()[0]
    assert decode_intent(encode_intent_json(intent)) == intent
    assert decode_intent(b" \n" + encode_intent_json(intent), {"content-type": b"text/plain"}) == intent


def test_a_message_names_the_field() -> None:
    for value, field in (
        (as_json(intent_id=...), "intent_id"),
        (as_json(intent_id=""), "intent_id"),
        (as_json(table=7), "table"),
        (as_json(writer_sequence=-1), "writer_sequence"),
        (as_json(writer_sequence="1"), "writer_sequence"),
        (as_json(writer_sequence=...), "writer_sequence"),
        (as_json(writer_sequence=2**63), "writer_sequence"),
        (as_json(table_uuid="x"), "table_uuid"),
        (as_json(isolation="loose"), "isolation"),
        (as_json(surprise=1), "surprise"),
        (as_json(kind=7), "kind"),
        (as_json(kind=...), "kind"),
        (as_json(add_data_files=[]), "add_data_files"),
        (as_json(add_data_files={}), "add_data_files"),
        (as_json(add_data_files=[7]), "add_data_files.0"),
        (as_json(add_data_files=[{"location": "a", "record_count": -1}]), "add_data_files.0.record_count"),
        (as_json(add_data_files=[{"location": "a", "record_count": True}]), "add_data_files.0.record_count"),
        (as_json(add_data_files=[{"statistics": [{"field_id": 0}]}]), "add_data_files.0.location"),
        (as_json(remove_files=[{"location": "a"}]), "remove_files"),
        (as_json(summary={"a": 1}), "summary.a"),
    ):
        error = refused(value, JSON)
        assert error.code == "intent-malformed"
        assert field in error.message


def test_avro_cannot_carry_what_the_model_refuses() -> None:
    file = FILE.model_dump()
    record = {"intent_id": "1", "table": "db.events", "kind": "append", "add_data_files": [file]}
    for changes, field in (
        ({"record_count": -1}, "add_data_files.0.record_count"),
        ({"file_format": "csv"}, "add_data_files.0.file_format"),
        ({"stats_schema": b"short"}, "add_data_files.0.stats_schema"),
        ({"stats_schema": None}, "stats_schema"),
        ({"split_offsets": [2, 1]}, "split_offsets"),
        ({"statistics": [{"field_id": 1}]}, "exclude"),
    ):
        error = refused(framed({**record, "add_data_files": [{**file, **changes}]}))
        assert error.code == "intent-malformed"
        assert field in error.message
    assert "table_uuid" in refused(framed({**record, "table_uuid": "x"})).message
    equality = {"location": "a", "record_count": 1, "file_size_in_bytes": 1, "equality_ids": [2**31]}
    error = refused(framed({**record, "kind": "row_delta", "add_equality_deletes": [equality]}))
    assert "add_equality_deletes.0.equality_ids.0" in error.message
    removed = {"location": "a", "content_type": 9}
    assert "content_type" in refused(framed({**record, "kind": "remove", "remove_files": [removed]})).message


def test_an_unknown_kind_has_a_code_of_its_own() -> None:
    error = refused(as_json(kind="upsert"), JSON)
    assert (error.code, "upsert" in error.message, "append" in error.message) == ("kind-unknown", True, True)
    assert refused(framed({"intent_id": "1", "table": "t.t", "kind": "x" * 5_000})).code == "kind-unknown"


def test_messages_never_repeat_large_or_unprintable_input() -> None:
    for value in (
        as_json(table_uuid="x" * 100_000),
        as_json(**{"y" * 100_000: 1}),
        as_json(**{"\x1b[31m\u202e": 1}),
        as_json(kind="\x1b" * 50_000),
        as_json(add_data_files=[{"z" * 1_000: 1}] * 5_000),
    ):
        refused(value, JSON)


def test_limits_are_checked_and_the_message_says_which() -> None:
    value = encode_intent(intents()[3])
    for limits, word in (
        (IntentLimits(max_bytes=len(value) - 1), "bytes"),
        (IntentLimits(max_files=3), "4 files, of 3 allowed"),
        (IntentLimits(max_location_chars=14), "characters"),
    ):
        error = refused(value, limits=limits)
        assert error.code == "intent-too-large"
        assert word in error.message
        assert "leaf manifest" in error.message
    assert decode_intent(value, {}, IntentLimits(max_bytes=len(value), max_files=4, max_location_chars=19))
    assert refused(value, {"trace": b"x" * 1_000}, IntentLimits(max_bytes=len(value) + 900)).code == "intent-too-large"
    error = refused(encode_intent(intents()[0]), limits=IntentLimits(max_statistics_columns=1))
    assert "add_data_files.1 has statistics of 2 columns" in error.message


def test_deep_nesting_is_refused_before_it_is_parsed() -> None:
    for value in (b"[" * 900_000, b'{"a":' * 100 + b"1" + b"}" * 100, b'{"s":"\\"[[[",' + b'"a":' + b"[" * 64):
        assert refused(value, JSON).code == "intent-too-large"
    brackets_in_text = as_json(summary={"text": '[[[["' * 50})
    assert decode_intent(brackets_in_text, JSON).summary == {"text": '[[[["' * 50}


def test_a_million_files_are_refused() -> None:
    tiny = {"location": "", "record_count": 0, "file_size_in_bytes": 0}
    many = framed({"intent_id": "1", "table": "t.t", "kind": "append", "add_data_files": [tiny] * 55_000})
    assert len(many) < 1_000_000
    assert "55000 files" in refused(many).message
    assert refused(b'{"add_data_files":[' + b"{}," * 300_000 + b"{}]}", JSON).code == "intent-too-large"
    assert refused(b'{"add_data_files":[' + b"{}," * 2_000_000 + b"{}]}", JSON).code == "intent-too-large"


def test_bounds_as_json_values_travel_in_json_only() -> None:
    plain = FILE.model_copy(update={"content_stats": None, "stats_schema": None})
    file = plain.model_copy(update={"statistics": (GenericStatistics(field_id=1, lower_value="a", upper_value=1.5),)})
    intent = intents()[0].model_copy(update={"add_data_files": (file,)})
    assert decode_intent(encode_intent_json(intent), JSON) == intent
    with pytest.raises(Invalid, match=r"data/part-0\.parquet has bounds as JSON values"):
        encode_intent(intent)


def test_a_number_that_does_not_fit_avro_is_refused_when_encoding() -> None:
    delta = intents()[3]
    wide = delta.add_vectors[0].model_copy(update={"cardinality": 2**70})
    with pytest.raises(Invalid, match="i-delta"):
        encode_intent(delta.model_copy(update={"add_vectors": (wide,)}))


def test_base64_is_read_in_both_alphabets() -> None:
    file = {"location": "a", "record_count": 1, "file_size_in_bytes": 1, "content_stats": "x"}
    for text in ("+/+/AA==", "-_-_AA=="):
        value = as_json(add_data_files=[{**file, "content_stats": text, "stats_schema": "MTIzNDU2Nzg="}])
        assert decode_intent(value, JSON).add_data_files[0].content_stats == b"\xfb\xff\xbf\x00"
    assert "content_stats" in refused(as_json(add_data_files=[{**file, "content_stats": "!"}]), JSON).message


def test_the_released_versions_are_listed_as_the_earlier_ones() -> None:
    assert (shipped_schema("intent_1"), shipped_schema("intent_2")) == intent_codec.EARLIER_VERSIONS
