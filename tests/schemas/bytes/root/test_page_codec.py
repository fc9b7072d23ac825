"""Pages of ledger and outcomes: readable by plain Avro, whole or Corrupt, named by what they hold."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from operator import attrgetter
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.bytes.avro_encoding import NULL, encode_bytes, encode_long, encode_string
from rootline.schemas.bytes.root.ledger_page import (
    LEDGER_PAGES,
    LedgerPage,
    LedgerRows,
    decode_ledger_row,
    encode_ledger_row,
    last_seen_of,
    record_in,
)
from rootline.schemas.bytes.root.location_pages import (
    CONDEMNED_PAGES,
    RETIRED_PAGES,
    CondemnedLocations,
    RetiredLocations,
)
from rootline.schemas.bytes.root.outcome_page import (
    OUTCOME_PAGES,
    OutcomePage,
    PagedOutcomes,
    covers_of,
    encode_outcome,
)
from rootline.schemas.bytes.root.page_codec import PAGE_BLOCK_BYTES, PageKind
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, KeptVersion, RetainedVersions
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import LogId, SequenceNumber, Version, WriterId
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.parts.ledger import CommittedRun, RejectedSequence, WriterRecord
from rootline.schemas.parts.outcomes import OutcomeException, OutcomeRun, Outcomes
from rootline.schemas.parts.page_reference import CoveredOffset, PageReference
from rootline.tree.state.table_state import PAGE_KINDS
from tests.golden_files import kept
from tests.schemas.entry_values import TABLE_UUID

NAME = "shop/orders/metadata/pages/p.avro"
LOG = LogId("cluster/topic")
SURROGATE = chr(0xD800)
count = st.integers(0, 2**63 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=20)
records = st.builds(
    WriterRecord,
    st.lists(
        st.builds(CommittedRun, count, count, st.integers(-1, 2**63 - 1), st.sampled_from((0, 1))), max_size=4
    ).map(tuple),
    st.lists(st.builds(RejectedSequence, count, text, text, text), max_size=3).map(tuple),
    count,
)
ledgers = st.dictionaries(text, records, min_size=1, max_size=6)
outcomes = st.builds(
    Outcomes,
    st.lists(st.builds(OutcomeRun, text, count, count, count, count, count), max_size=4).map(tuple),
    st.lists(
        st.builds(OutcomeException, text, count, count, count, st.none() | text, st.none() | text, st.none() | count),
        max_size=4,
    ).map(tuple),
).filter(lambda found: bool(found.items))

LEDGER = {
    WriterId("spark/q1"): WriterRecord(
        (CommittedRun(0, 9, Version(3), 1), CommittedRun(12, 12, Version(-1), 0)),
        (RejectedSequence(10, "i-10", "spec-unknown", "spec 9 is no spec of größe"),),
        1_700_000_000_000,
    ),
    WriterId("ingest"): WriterRecord((CommittedRun(5, 6, Version(2), 0),), (), 1_700_000_000_500),
    WriterId("seen"): WriterRecord((), (), 7),
}
OUTCOMES = Outcomes(
    (OutcomeRun(LOG, 3, 10, 12, Version(4), SequenceNumber(20)),),
    (
        OutcomeException(LOG, 3, 13, Version(4), "file-not-live", "data/x: not live", None),
        OutcomeException(LOG, 4, 7, Version(4), None, None, Version(2)),
        OutcomeException(LOG, 4, 8, Version(4), None, None, None),
    ),
)
REASONED = OUTCOMES.exceptions[0]


def ledger_page(ledger: dict[WriterId, WriterRecord]) -> tuple[LedgerPage, bytes]:
    rows = {writer: encode_ledger_row(writer, record) for writer, record in ledger.items()}
    return LEDGER_PAGES.encode(TABLE_UUID, LedgerRows(rows))


def outcome_page(found: Outcomes) -> tuple[OutcomePage, bytes]:
    return OUTCOME_PAGES.encode(TABLE_UUID, PagedOutcomes(found))


def ledger_of(page: LedgerPage) -> dict[str, WriterRecord | None]:
    return {writer: record_in(page, writer) for writer in page.content.rows}


@given(ledgers)
def test_a_ledger_page_reads_back_equal(ledger: dict[WriterId, WriterRecord]) -> None:
    page, body = ledger_page(ledger)
    again = LEDGER_PAGES.decode(body, page.reference, TABLE_UUID, name=NAME)
    assert again == page
    assert ledger_of(again) == ledger
    assert record_in(again, WriterId("no one at all, of a name so long")) is None


@given(outcomes)
def test_an_outcome_page_reads_back_equal_and_in_order(found: Outcomes) -> None:
    page, body = outcome_page(found)
    again = OUTCOME_PAGES.decode(body, page.reference, TABLE_UUID, name=NAME)
    assert again.content.outcomes == found
    assert again.reference.covers == covers_of(found)


@given(records, text)
def test_a_row_is_passed_over_without_decoding_it(record: WriterRecord, writer: str) -> None:
    row = encode_ledger_row(WriterId(writer), record)
    assert last_seen_of(row) == record.last_seen_ms
    assert decode_ledger_row(row) == record


def test_plain_fastavro_reads_both_pages() -> None:
    reader = fastavro.reader(io.BytesIO(ledger_page(LEDGER)[1]))
    rows: list[Any] = list(reader)
    assert reader.codec == "zstandard"
    assert [reader.metadata[key] for key in ("format-version", "content", "rootline.profile")] == [
        "4", "ledger", "single-file-commits/1",
    ]  # fmt: skip
    assert [row["writer"] for row in rows] == list(LEDGER)
    assert rows[0]["committed"][0] == {"first": 0, "last": 9, "version": 3, "stride": 1}
    assert rows[0]["rejected"][0]["intent_id"] == "i-10"
    rows = list(fastavro.reader(io.BytesIO(outcome_page(OUTCOMES)[1]), return_record_name=True))
    assert [name for name, _ in rows] == ["outcome_run", *["outcome_exception"] * 3]
    assert rows[0][1]["last_offset"] == 12
    assert rows[1][1]["message"] == "data/x: not live"
    assert rows[2][1]["duplicate_of"] == 2


def test_the_golden_pages_are_still_what_we_read_and_write() -> None:
    page, body = ledger_page(LEDGER)
    held = kept("page-ledger.avro", body)  # its compressed bytes depend on the zstd library
    again = LEDGER_PAGES.decode(held, reference_of(held, page.reference), TABLE_UUID, name=NAME)
    assert again.content.rows == page.content.rows
    assert ledger_of(again) == LEDGER
    made, body = outcome_page(OUTCOMES)
    held = kept("page-outcomes.avro", body)
    outcomes_again = OUTCOME_PAGES.decode(held, reference_of(held, made.reference), TABLE_UUID, name=NAME)
    assert outcomes_again.content.outcomes == OUTCOMES


def reference_of(body: bytes, like: PageReference) -> PageReference:
    return like._replace(digest=hashlib.sha256(body).digest(), size_in_bytes=len(body))


def test_the_same_rows_are_the_same_object() -> None:
    one, two = ledger_page(LEDGER), ledger_page(dict(LEDGER))
    assert one == two
    assert one[0].reference.location == f"metadata/pages/{hashlib.sha256(one[1]).hexdigest()[:32]}.avro"
    other = LEDGER_PAGES.encode(uuid.UUID(int=9), one[0].content)
    assert other[0].reference.location != one[0].reference.location


def test_an_offset_is_found_in_a_page() -> None:
    page, _ = outcome_page(OUTCOMES)
    assert [page.content.run_at(LOG, 3, offset) for offset in (9, 10, 12, 13)] == [None, *[OUTCOMES.runs[0]] * 2, None]
    assert page.content.run_at(LOG, 4, 11) is None
    assert page.content.exception_at(LOG, 4, 7) == OUTCOMES.exceptions[1]
    assert page.content.exception_at("cluster/other", 4, 7) is None
    assert page.reference.covers == (CoveredOffset(LOG, 3, 13), CoveredOffset(LOG, 4, 8))


def test_many_rows_take_several_blocks() -> None:
    message = "x" * 300
    ledger = {
        WriterId(f"w-{number}"): WriterRecord((), (RejectedSequence(number, "i", "c", message),), number)
        for number in range(2 * PAGE_BLOCK_BYTES // 300)
    }
    page, body = ledger_page(ledger)
    again = LEDGER_PAGES.decode(body, page.reference, TABLE_UUID, name=NAME)
    assert page.reference.content_bytes > 2 * PAGE_BLOCK_BYTES
    assert ledger_of(again) == ledger
    assert len(list(fastavro.block_reader(io.BytesIO(body)))) == 3


def test_a_reason_that_quotes_half_a_character_does_not_break_a_page() -> None:
    record = WriterRecord((), (RejectedSequence(1, "i", "c", f"not {SURROGATE}"),), 1)
    page, _ = ledger_page({WriterId("w"): record})
    found = decode_ledger_row(page.content.rows[WriterId("w")])
    assert found.rejected[0].message == "not \\ud800"
    item = OutcomeException(LOG, 0, 1, Version(1), "c", f"not {SURROGATE}", None)
    assert b"not \\ud800" in encode_outcome(item)


HASHES = LocationHashes.of(map(location_hash, ("data/a", "data/b")))
OTHER_HASHES = LocationHashes.of(map(location_hash, ("data/c",)))
EXAMPLES: dict[PageKind[Any], Any] = {
    LEDGER_PAGES: ledger_page(LEDGER)[0].content,
    OUTCOME_PAGES: PagedOutcomes(OUTCOMES),
    CONDEMNED_PAGES: CondemnedLocations(1_700_000_000_000, HASHES, (bytes(32),)),
    RETIRED_PAGES: RetiredLocations(HASHES, OTHER_HASHES),
    RETAINED_PAGES: RetainedVersions((KeptVersion(Version(7), 60_000, 500), KeptVersion(Version(9), 61_000, 501))),
}
every_kind = pytest.mark.parametrize("kind", PAGE_KINDS, ids=attrgetter("name"))


def read(kind: PageKind[Any], body: bytes, reference: PageReference) -> None:
    page = kind.decode(body, reference, TABLE_UUID, name=NAME)
    if kind is LEDGER_PAGES:
        ledger_of(page)


@every_kind
def test_an_intent_names_the_page_that_a_root_names(kind: PageKind[Any]) -> None:
    page, body = kind.encode(TABLE_UUID, EXAMPLES[kind])
    location, digest, size_in_bytes, *_ = page.reference
    stored = kind.decode_stored(body, location, digest, size_in_bytes, TABLE_UUID, name=NAME)
    assert stored.content == page.content == kind.decode(body, page.reference, TABLE_UUID, name=NAME).content
    assert stored.reference == page.reference._replace(covers=())
    for damaged in (body[:-1], bytes([*body[:-20], body[-20] ^ 1, *body[-19:]])):
        with pytest.raises(Corrupt, match="length or digest"):
            kind.decode_stored(damaged, location, digest, size_in_bytes, TABLE_UUID, name=NAME)


@every_kind
def test_every_flipped_bit_and_cut_tail_is_corrupt_and_named(kind: PageKind[Any]) -> None:
    page, body = kind.encode(TABLE_UUID, EXAMPLES[kind])
    for position in range(len(body)):
        flipped = bytearray(body)
        flipped[position] ^= 1 << position % 8
        for damaged in (bytes(flipped), body[:position]):
            with pytest.raises(Corrupt, match=NAME) as caught:
                read(kind, damaged, page.reference)
            assert caught.value.code == "page-corrupt"


@every_kind
@given(data=st.data())
def test_a_page_that_was_never_right_decodes_or_is_corrupt(kind: PageKind[Any], data: st.DataObject) -> None:
    """Its digest agrees, so a faulty writer made it; a reader must not fall over it."""
    page, body = kind.encode(TABLE_UUID, EXAMPLES[kind])
    forged = bytearray(body)
    for position in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        forged[position] = data.draw(st.integers(0, 255))
    attempt(kind, bytes(forged), reference_of(bytes(forged), page.reference))


@every_kind
@given(data=st.data())
def test_rows_that_were_never_right_decode_or_are_corrupt(kind: PageKind[Any], data: st.DataObject) -> None:
    rows = [data.draw(st.binary(min_size=1, max_size=60))]
    if data.draw(st.booleans()):
        plain = bytearray(data.draw(st.sampled_from(list(kind.rows_of(EXAMPLES[kind])))))
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
        rows = [bytes(plain)]
    reference, body = kind.encode_rows(TABLE_UUID, rows)
    attempt(kind, body, reference)


@every_kind
def test_a_row_with_any_bit_flipped_or_its_tail_cut_decodes_or_is_corrupt(kind: PageKind[Any]) -> None:
    row = max(kind.rows_of(EXAMPLES[kind]), key=len)
    flips = [row[:at] + bytes((row[at] ^ 1 << bit,)) + row[at + 1 :] for at in range(len(row)) for bit in range(8)]
    for damaged in (*flips, *(row[:length] for length in range(1, len(row))), row + b"\x00"):
        reference, body = kind.encode_rows(TABLE_UUID, [damaged])
        attempt(kind, body, reference)


UNSIZED_RUN = b"\x02" + encode_long(5) * 4 + b"\x00"
SIZED_RUN = encode_long(-1) + encode_bytes(encode_long(5) * 4) + b"\x00"
NO_RUN = b"\x00"
WRITER = encode_string("w")
OVERLONG_ONE = b"\x82\x00"
BEYOND_64_BITS = b"\xff" * 9 + b"\x02"


def test_a_row_of_the_ledger_as_the_format_says_reads() -> None:
    found = decode_ledger_row(WRITER + encode_long(1) + SIZED_RUN + NO_RUN)
    assert found == WriterRecord((CommittedRun(5, 5, Version(5), 5),), (), 1)


@pytest.mark.parametrize(
    "row",
    [
        WRITER + encode_long(1) + UNSIZED_RUN + NO_RUN,
        WRITER + encode_long(1) + SIZED_RUN[:1] + encode_long(5) + SIZED_RUN[2:] + NO_RUN,
        WRITER + OVERLONG_ONE + SIZED_RUN + NO_RUN,
        WRITER + BEYOND_64_BITS + NO_RUN + NO_RUN,
        WRITER + encode_long(1) + NO_RUN + NO_RUN + b"\x00",
        WRITER + encode_long(1) + NO_RUN,
        b"\x02\xff" + encode_long(1) + NO_RUN + NO_RUN,
    ],
)
def test_a_row_of_the_ledger_in_another_encoding_is_corrupt_and_named(row: bytes) -> None:
    with pytest.raises(Corrupt, match=NAME) as caught:
        decode_ledger_row(row, name=NAME)
    assert caught.value.code == "page-corrupt"


@pytest.mark.parametrize(
    "row",
    [
        b"\x00" + encode_string(LOG) + OVERLONG_ONE + encode_long(1) * 4,
        b"\x00" + encode_string(LOG) + BEYOND_64_BITS + encode_long(1) * 4,
        b"\x01" + encode_string(LOG) + encode_long(1) * 3 + NULL * 3,
        b"\x04" + encode_string(LOG) + encode_long(1) * 5,
        encode_outcome(REASONED) + b"\x00",
        encode_outcome(REASONED)[:-1],
    ],
)
def test_an_outcome_in_another_encoding_is_corrupt_and_named(row: bytes) -> None:
    reference, body = OUTCOME_PAGES.encode_rows(TABLE_UUID, [row])
    with pytest.raises(Corrupt, match=NAME) as caught:
        read(OUTCOME_PAGES, body, reference)
    assert caught.value.code == "page-corrupt"


def attempt(kind: PageKind[Any], body: bytes, reference: PageReference) -> None:
    refusal = None
    try:
        read(kind, body, reference)
    except Corrupt as error:
        refusal = error
    if refusal is not None:
        assert refusal.code in ("page-corrupt", "profile-unknown")
        assert NAME in refusal.message or reference.location in refusal.message


def test_a_page_of_another_kind_table_or_size_is_refused() -> None:
    page, body = ledger_page(LEDGER)
    with pytest.raises(Corrupt, match=r"avro\.schema"):
        OUTCOME_PAGES.decode(body, page.reference, TABLE_UUID, name=NAME)
    with pytest.raises(Corrupt, match="table-uuid"):
        LEDGER_PAGES.decode(body, page.reference, uuid.UUID(int=1), name=NAME)
    with pytest.raises(Corrupt, match="bytes that the root states"):
        LEDGER_PAGES.decode(body, page.reference._replace(content_bytes=1), TABLE_UUID, name=NAME)
    with pytest.raises(Corrupt, match="bytes are stored"):
        LEDGER_PAGES.decode(body + b"x", page.reference, TABLE_UUID, name=NAME)


def test_a_page_in_a_format_of_later_is_refused_by_name() -> None:
    page, body = ledger_page(LEDGER)
    later = body.replace(b"single-file-commits/1", b"single-file-commits/2")
    with pytest.raises(Corrupt) as caught:
        read(LEDGER_PAGES, later, reference_of(later, page.reference))
    assert caught.value.code == "profile-unknown"


def test_a_writer_with_two_rows_is_corrupt() -> None:
    row = encode_ledger_row(WriterId("w"), WriterRecord((), (), 1))
    reference, body = LEDGER_PAGES.encode_rows(TABLE_UUID, [row, row])
    with pytest.raises(Corrupt, match="two rows"):
        LEDGER_PAGES.decode(body, reference, TABLE_UUID, name=NAME)


def test_the_schemas_name_the_fields_of_the_values() -> None:
    fields = {
        record["name"]: [field["name"] for field in record["fields"]]
        for record in json.loads(OUTCOME_PAGES.schema.json)
    }
    assert fields == {
        "outcome_run": list(OutcomeRun._fields),
        "outcome_exception": list(OutcomeException._fields),
    }
