"""The commonest intent read from its bytes: what is read is what the general way reads; what is common is read."""

from __future__ import annotations

import io
import random
import uuid
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent, read_fast_append, shipped_schema
from rootline.schemas.content_entry import FileFormat
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.intent_rules import IntentLimits
from tests.schemas.intent_examples import FILE, intents

LIMITS = IntentLimits()
SCHEMA = fastavro.parse_schema(dict(shipped_schema("intent")))
PLAIN = Intent(
    intent_id="5f3e0c1a9d",
    table="db.events",
    table_uuid=uuid.UUID("01234567-89ab-cdef-0123-456789abcdef"),
    kind=IntentKind.APPEND,
    writer_id="process/1",
    writer_sequence=70_000,
    schema_id=3,
    read_version=12,
    read_sequence_number=2**40,
    add_data_files=(FILE.model_copy(update={"split_offsets": (4, 134_217_728), "sort_order_id": 1}),),
)


def generally(value: bytes) -> Intent | None:
    """As a reader without any code of ours reads it, checked by the model; `None`: it cannot be read."""
    source = io.BytesIO(value)
    source.seek(10)
    try:
        record: Any = fastavro.schemaless_reader(source, SCHEMA, None)
        return Intent.model_validate({**record, "page": None}) if source.tell() == len(value) else None
    except (ValueError, EOFError, LookupError, TypeError, ArithmeticError, MemoryError, ValidationError):
        return None


def check_alike(value: bytes) -> bool:
    read = read_fast_append(value, LIMITS)
    if read is None:
        return False
    known = generally(value)
    assert known is not None
    assert read == known
    assert repr(read) == repr(known)  # types too: a bool is equal to a number
    assert read.model_dump() == known.model_dump()
    assert read.model_fields_set == known.model_fields_set
    assert read.add_data_files[0].model_fields_set == known.add_data_files[0].model_fields_set
    assert encode_intent(read) == encode_intent(known)
    return True


COUNT = st.integers(0, 2**63 - 1) | st.integers(0, 300)
SMALL = st.integers(0, 2**31 - 1) | st.integers(0, 300)
FILES = st.builds(
    DataFile,
    location=st.text(min_size=1, max_size=80),
    file_format=st.sampled_from(FileFormat),
    partition_spec_id=SMALL,
    record_count=COUNT,
    file_size_in_bytes=COUNT,
    content_stats=st.binary(max_size=200),
    stats_schema=st.binary(min_size=8, max_size=8),
    sort_order_id=st.none() | SMALL,
    split_offsets=st.none() | st.lists(COUNT, max_size=4).map(sorted).map(tuple),
    key_metadata=st.sampled_from((None, None, None, b"\x00")),
)
APPENDS = st.builds(
    lambda stamp, **fields: Intent(kind=IntentKind.APPEND, **stamp, **fields),
    st.just({}) | st.fixed_dictionaries({"writer_id": st.text(min_size=1, max_size=70), "writer_sequence": COUNT}),
    intent_id=st.text(min_size=1, max_size=70),
    table=st.text(max_size=70),
    table_uuid=st.none() | st.uuids(),
    schema_id=st.none() | SMALL,
    read_version=st.none() | COUNT,
    read_sequence_number=st.none() | COUNT,
    add_data_files=st.lists(FILES, min_size=1, max_size=2).map(tuple),
    summary=st.sampled_from(({}, {}, {"a": "b"})),
)
settings_of_appends = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings_of_appends
@given(APPENDS)
def test_what_is_read_is_what_the_general_way_reads(intent: Intent) -> None:
    check_alike(encode_intent(intent))


@settings_of_appends
@given(APPENDS, st.data())
def test_so_it_is_after_the_bytes_were_changed(intent: Intent, data: st.DataObject) -> None:
    value = bytearray(encode_intent(intent))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(10, len(value) - 1))
        value[at] = data.draw(st.sampled_from((0, 1, 2, 0x7E, 0x80, 0xFF)) | st.integers(0, 255))
    check_alike(bytes(value[: data.draw(st.integers(len(value) - 2, len(value)))]))


def test_mutated_bytes_are_read_the_same_way_or_not_at_all() -> None:
    seeded = random.Random(11)
    plain = encode_intent(PLAIN)
    read = 0
    for _ in range(4_000):
        value = bytearray(plain)
        for _ in range(seeded.choice((1, 1, 2))):
            at = seeded.randrange(10, len(value))
            match seeded.randrange(3):
                case 0:
                    value[at] = seeded.choice((0, 1, 2, 0x7E, 0x80, 0xC3, 0xFF, seeded.randrange(256)))
                case 1:
                    del value[at]
                case _:
                    value.insert(at, seeded.randrange(256))
        read += check_alike(bytes(value))
    assert read > 200


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"table_uuid": None},
        {"writer_id": None, "writer_sequence": None},
        {"writer_sequence": 0},
        {"writer_sequence": 2**63 - 1},
        {"schema_id": None, "read_version": None, "read_sequence_number": None},
        {"writer_id": f"process/{uuid.UUID(int=5)}"},
        {"intent_id": "größe"},
    ],
    ids=repr,
)
def test_the_forms_that_producers_send_are_read_straight(changes: dict[str, Any]) -> None:
    assert check_alike(encode_intent(PLAIN.model_copy(update=changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"location": "data/" + "x" * 900 + ".parquet"},
        {"location": "data/größe.parquet"},
        {"file_format": FileFormat.ORC},
        {"file_format": FileFormat.AVRO},
        {"sort_order_id": None, "split_offsets": None},
        {"split_offsets": (4,)},
        {"split_offsets": tuple(range(4, 67))},
        {"content_stats": b""},
        {"content_stats": bytes(20_000)},
        {"record_count": 2**63 - 1, "file_size_in_bytes": 0, "partition_spec_id": 2**31 - 1},
    ],
    ids=lambda changes: ", ".join(changes),
)
def test_files_as_producers_describe_them_are_read_straight(changes: dict[str, Any]) -> None:
    file = PLAIN.add_data_files[0].model_copy(update=changes)
    assert check_alike(encode_intent(PLAIN.model_copy(update={"add_data_files": (file,)})))


def test_every_other_intent_is_left_to_the_general_way() -> None:
    others = [intent for intent in intents() if intent.kind is not IntentKind.APPEND]
    others.append(PLAIN.model_copy(update={"add_data_files": (FILE, FILE)}))
    others.append(PLAIN.model_copy(update={"summary": {"a": "b"}}))
    others.append(PLAIN.model_copy(update={"filter": "a > 1"}))
    for intent in others:
        assert read_fast_append(encode_intent(intent), LIMITS) is None
        assert decode_intent(encode_intent(intent)) == intent


@pytest.mark.parametrize("limits", [IntentLimits(max_files=0), IntentLimits(max_location_chars=5)])
def test_what_is_over_a_limit_is_left_to_the_general_way(limits: IntentLimits) -> None:
    value = encode_intent(PLAIN)
    assert read_fast_append(value, limits) is None
    with pytest.raises(Invalid, match="allowed"):
        decode_intent(value, {}, limits)


def test_headers_that_say_json_are_believed() -> None:
    with pytest.raises(Invalid, match="not JSON"):
        decode_intent(encode_intent(PLAIN), {"content-type": b"application/json"})
