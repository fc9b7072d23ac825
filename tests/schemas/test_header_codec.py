"""The header as file metadata: nothing is lost, nothing of the wrong type comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.header_codec import decode_header, encode_header
from rootline.schemas.root_header import RootHeader
from tests.schemas.entry_values import example_header, headers

NUMBER = "rootline.version"


@given(headers())
def test_what_is_encoded_decodes_to_the_same_header(header: RootHeader) -> None:
    assert decode_header(encode_header(header)) == header


@given(headers(), st.data())
def test_a_changed_value_decodes_or_is_refused(header: RootHeader, data: st.DataObject) -> None:
    metadata = encode_header(header)
    key = data.draw(st.sampled_from(sorted(metadata)))
    value = bytearray(metadata[key])
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
        ("rootline.totals", b"[1,2,3]"),
        ("rootline.tags", b'{"a":null}'),
        ("rootline.snapshot", b"{}"),
        ("rootline.snapshot", b"\xff"),
    ],
)
def test_a_value_of_the_wrong_type_sign_or_length_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(ValueError):
        decode_header({**encode_header(example_header()), key: value})


def test_keys_of_other_owners_are_left_alone() -> None:
    assert decode_header({**encode_header(example_header()), "avro.codec": b"null"}) == example_header()


def test_the_ledger_of_a_busy_table_stays_small() -> None:
    assert len(encode_header(example_header())["rootline.ledger"]) < 90
