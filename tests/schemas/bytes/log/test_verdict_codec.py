from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.bytes.intent_codec import RecordFraming, shipped_schema
from rootline.schemas.bytes.verdict_codec import (
    decode_dead_letter,
    decode_verdicts,
    encode_dead_letter,
    encode_verdicts,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind
from tests.golden_files import golden

VERDICTS = [
    Verdict(
        intent_id="i-1",
        table="db.events",
        kind=VerdictKind.COMMITTED,
        log="embedded/0d3e",
        partition=0,
        offset=2**40,
        version=3,
        snapshot_id=2**63 - 1,
        sequence_number=5,
    ),
    Verdict(intent_id="i-2", table="db.events", kind=VerdictKind.DUPLICATE, log="l", partition=1, offset=0),
    Verdict(
        intent_id="i-3",
        table="db.events",
        kind=VerdictKind.REJECTED,
        log="l",
        partition=2**31 - 1,
        offset=1,
        code="file-not-live",
        message="data/größe.parquet is not part of the table",
    ),
]
LETTER = DeadLetter(
    log="embedded/0d3e",
    partition=0,
    offset=4,
    intent_id="i-4",
    table=None,
    code="undecodable",
    message="not a record",
    key=None,
    value=b"\x00\xff",
)
HEADERS = (("traceparent", b"00-4bf9"), ("größe", b"\x00\xff"), ("traceparent", b""), ("empty", None))


def test_verdicts_read_back_in_their_order() -> None:
    assert decode_verdicts(encode_verdicts(VERDICTS)) == VERDICTS
    assert decode_verdicts(encode_verdicts([])) == []


def test_a_dead_letter_keeps_the_original_bytes() -> None:
    for letter in (
        LETTER,
        LETTER.model_copy(update={"key": b"\xfe", "table": "db.events", "value": b""}),
        LETTER.model_copy(update={"headers": HEADERS}),
    ):
        assert decode_dead_letter(encode_dead_letter(letter)) == letter


def test_records_that_were_released_stay_readable() -> None:
    assert decode_verdicts(golden("verdicts.avro", encode_verdicts(VERDICTS))) == VERDICTS
    letter = LETTER.model_copy(update={"headers": HEADERS})
    assert decode_dead_letter(golden("dead-letter-2.avro", encode_dead_letter(letter))) == letter


def test_dead_letters_of_before_headers_read_as_having_none() -> None:
    version_1 = RecordFraming(shipped_schema("dead_letter_1"))
    held = golden("dead-letter.avro", version_1.encode(LETTER.model_dump(exclude={"headers"})))
    assert decode_dead_letter(held) == LETTER
    assert held[:10] != encode_dead_letter(LETTER)[:10]


def test_a_verdict_reads_back_from_json() -> None:
    assert [Verdict.model_validate_json(verdict.model_dump_json()) for verdict in VERDICTS] == VERDICTS
    for letter in (LETTER, LETTER.model_copy(update={"headers": HEADERS})):
        assert DeadLetter.model_validate_json(letter.model_dump_json()) == letter


def test_other_bytes_are_undecodable() -> None:
    verdicts, letter = encode_verdicts(VERDICTS), encode_dead_letter(LETTER)
    for value in (b"", letter, verdicts[:-1], verdicts + b"\x00", verdicts[:9]):
        with pytest.raises(Invalid, match="verdict record") as caught:
            decode_verdicts(value)
        assert caught.value.code == "undecodable"
    for value in (b"", verdicts, letter[:-1], letter + b"\x00"):
        with pytest.raises(Invalid, match="dead letter"):
            decode_dead_letter(value)


def test_a_verdict_of_a_kind_that_does_not_exist_is_undecodable() -> None:
    framing = RecordFraming(shipped_schema("verdict"))
    with pytest.raises(Invalid, match="kind"):
        decode_verdicts(framing.encode({"verdicts": [{**VERDICTS[0].model_dump(), "kind": "perhaps"}]}))


LONG = st.integers(-(2**63), 2**63 - 1)
ANY_VERDICT = st.builds(
    Verdict,
    intent_id=st.text(max_size=20),
    table=st.text(max_size=20),
    kind=st.sampled_from(VerdictKind),
    log=st.text(max_size=20),
    partition=st.integers(-(2**31), 2**31 - 1),
    offset=LONG,
    version=st.none() | LONG,
    snapshot_id=st.none() | LONG,
    sequence_number=st.none() | LONG,
    code=st.none() | st.text(max_size=20),
    message=st.none() | st.text(max_size=20),
)


@given(st.lists(ANY_VERDICT, max_size=4))
def test_the_bytes_are_those_that_an_avro_library_writes(verdicts: list[Verdict]) -> None:
    framing = RecordFraming(shipped_schema("verdict"))
    assert encode_verdicts(verdicts) == framing.encode({"verdicts": [verdict.__dict__ for verdict in verdicts]})
