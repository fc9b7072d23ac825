"""The header as file metadata: nothing is lost, nothing of the wrong type comes in."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.bytes.root.header_codec import KEYS, decode_header, encode_header
from rootline.schemas.identifiers import Location, LogId
from rootline.schemas.parts.page_reference import CoveredOffset, PageReference
from rootline.schemas.root_header import PARTS, RootHeader
from tests.golden_files import FOLDER
from tests.schemas.entry_values import example_header, headers

NUMBER = "rootline.version"


@given(headers())
def test_what_is_encoded_decodes_to_the_same_header(header: RootHeader) -> None:
    assert decode_header(encode_header(header)) == header


@given(headers(), st.data())
def test_a_changed_value_decodes_or_is_refused(header: RootHeader, data: st.DataObject) -> None:
    metadata = encode_header(header)
    key = data.draw(st.sampled_from(sorted(metadata)))
    value = bytearray(metadata[key] or b"-")
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_header({**metadata, key: bytes(value)})
    except ValueError:
        return
    assert isinstance(decoded, RootHeader)


@pytest.mark.parametrize("key", sorted(set(encode_header(example_header())) - {"rootline.parent-digest"}))
def test_a_key_that_is_absent_is_refused_by_name(key: str) -> None:
    metadata = encode_header(example_header())
    del metadata[key]
    if key in ("format-version", "content", "rootline.profile"):
        decode_header(metadata)  # root_codec looks at these three
        return
    with pytest.raises(ValueError, match=key):
        decode_header(metadata)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (NUMBER, b"-1"),
        (NUMBER, b"01"),
        (NUMBER, b""),
        (NUMBER, b"1_000"),
        (NUMBER, b"9" * 5000),
        ("rootline.table-uuid", b"x"),
        ("rootline.parent-digest", b"00"),
        ("rootline.definition", b'["d"]'),
        ("rootline.definition", b'[1,"00"]'),
        ("rootline.offsets", b"{}"),
        ("rootline.offsets", b'[["log",0,-1]]'),
        ("rootline.offsets", b'[["log",0,true]]'),
        ("rootline.offsets", b'[["log",0,1.0]]'),
        ("rootline.outcomes", b"[[],[],[]]"),
        ("rootline.ledger", b"[]"),
        ("rootline.ledger", b'{"w":[[[1,2]],[],0]}'),
        ("rootline.ledger", b'{"w":' + b"[" * 100_000),
        ("rootline.ledger-pages", b"{}"),
        ("rootline.ledger-pages", b'[["p","00",1,1,[]]]'),
        ("rootline.ledger-pages", b'[["p",1]]'),
        ("rootline.outcome-pages", b'[["p","' + b"00" * 32 + b'",-1,1,[]]]'),
        ("rootline.outcome-pages", b'[["p","' + b"00" * 32 + b'",1,1,[["log",0]]]]'),
        ("rootline.totals", b"[1,2,3]"),
        ("rootline.tags", b'{"a":null}'),
        ("rootline.contents", b"AAAA"),
        ("rootline.contents", b"A"),
        ("rootline.contents", b"\xff"),
        ("rootline.progress", b"{}"),
        ("rootline.progress", b'[["job",1,[1,"append"]]]'),
        ("rootline.progress", b'[["job",-1,[1,"append"],{}]]'),
        ("rootline.progress", b'[["job",1,[1,"append"],{"a":1}]]'),
        ("rootline.snapshot", b"{}"),
        ("rootline.snapshot", b"\xff"),
    ],
)
def test_a_value_of_the_wrong_type_sign_or_length_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(ValueError):
        decode_header({**encode_header(example_header()), key: value})


def test_a_header_without_pages_is_as_it_was_before_there_were_any() -> None:
    metadata = encode_header(example_header())
    assert not {"rootline.ledger-pages", "rootline.outcome-pages"} & set(metadata)
    header = decode_header(metadata)
    assert (header.ledger.pages, header.outcomes.pages) == ((), ())


def test_a_header_names_its_pages() -> None:
    page = PageReference(Location("metadata/pages/p.avro"), bytes(32), 900, 2_000)
    covering = page._replace(covers=(CoveredOffset(LogId("l"), 3, 9),))
    header = replace(
        example_header(),
        ledger=replace(example_header().ledger, pages=(page, page)),
        outcomes=replace(example_header().outcomes, pages=(covering,)),
    )
    assert decode_header(encode_header(header)) == header


def test_keys_of_other_owners_are_left_alone() -> None:
    assert decode_header({**encode_header(example_header()), "avro.codec": b"null"}) == example_header()


def test_the_ledger_of_a_busy_table_stays_small() -> None:
    assert len(encode_header(example_header())["rootline.ledger"]) < 90


def test_headers_that_an_earlier_release_wrote_are_written_as_the_very_same_keys_and_values() -> None:
    """200 headers with every key, drawn at random and stored before each part of a header had a file of its own."""
    lines = gzip.decompress((FOLDER / "drawn_headers.json.gz").read_bytes()).splitlines()
    assert len(lines) == 200
    for line in lines:
        metadata = [(key, base64.b64decode(value)) for key, value in json.loads(line)]
        assert list(encode_header(decode_header(dict(metadata))).items()) == metadata


def test_each_key_belongs_to_one_part_or_to_the_header_itself_and_each_part_is_a_field() -> None:
    of_parts = [key for part in PARTS for key in part.keys]
    assert len(of_parts) == len(set(of_parts))
    assert set(of_parts) < set(KEYS)
    assert len(KEYS) == len(set(KEYS))
    assert {part.name for part in PARTS} < {field.name for field in fields(RootHeader)}
