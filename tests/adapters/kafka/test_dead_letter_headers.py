"""What a dead letter's headers say, and what gives way when they do not all fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootline.adapters.kafka.record_headers import dead_letter_of, headers_of_dead_letter
from rootline.schemas.identifiers import Headers
from rootline.schemas.verdict import DeadLetter

LETTER = DeadLetter(
    log="cluster/topic",
    partition=2,
    offset=41,
    intent_id="intent-41",
    table="demo.flights",
    code="row-conflict",
    message="two updates of one row",
    key=b"demo.flights",
    value=b"value",
)
ROOM = 65_536


def said(letter: DeadLetter, bytes_max: int = ROOM) -> Headers:
    return headers_of_dead_letter(letter, topic="rootline.intents", connector="rootline", bytes_max=bytes_max)


def read_back(letter: DeadLetter, bytes_max: int = ROOM) -> DeadLetter:
    return dead_letter_of(letter.key, letter.value, said(letter, bytes_max))


def size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") + 10 for name, value in headers)


def with_headers(*headers: tuple[str, bytes | None]) -> DeadLetter:
    return LETTER.model_copy(update={"headers": headers})


def test_the_records_own_headers_stand_first_unchanged_twice_and_null_ones_too() -> None:
    letter = with_headers(("traceparent", b"00-4bf9"), ("traceparent", b"\x00\xff"), ("größe", None), ("", b""))

    assert said(letter)[:4] == letter.headers
    assert read_back(letter) == letter


def test_a_dead_letter_that_was_put_back_with_its_headers_and_rejected_again_tells_the_newer_reason() -> None:
    first = with_headers(("traceparent", b"00-4bf9"))
    again = LETTER.model_copy(update={"offset": 99, "code": "undecodable", "headers": said(first)})

    assert read_back(again) == again
    assert dict(said(again))["rootline.code"] == b"undecodable"


@pytest.mark.parametrize("count", [None, b"many", b"-1"])
def test_a_letter_without_a_count_has_the_headers_that_are_not_by_name_ours(count: bytes | None) -> None:
    older = tuple(header for header in said(with_headers(("traceparent", b"1"))) if header[0] != "rootline.headers")
    headers = older if count is None else (*older, ("rootline.headers", count))

    assert dead_letter_of(b"k", b"v", headers).headers == (("traceparent", b"1"),)


def test_our_message_gives_way_before_a_header_of_the_record_does() -> None:
    letter = with_headers(("large", bytes(3_000))).model_copy(update={"message": "é" * 8_000})

    headers = said(letter, 6_000)

    assert size(headers) <= 6_000
    assert headers[0] == letter.headers[0]
    told = read_back(letter, 6_000)
    assert told.headers == letter.headers
    assert 1_000 < len(told.message) < 8_000
    assert letter.message.startswith(told.message)


def test_headers_that_do_not_fit_are_left_out_and_named_and_those_that_fit_stay() -> None:
    letter = with_headers(("a", b"1"), ("large", bytes(70_000)), ("b", b"2"), ("larger", bytes(80_000)))

    headers = said(letter)

    assert size(headers) <= ROOM
    assert headers[:2] == (("a", b"1"), ("b", b"2"))
    left_out = b"2 of 4 headers, 150011 bytes, for want of room: large, larger"
    assert dict(headers)["rootline.headers-left-out"] == left_out
    told = read_back(letter)
    assert told.headers == (("a", b"1"), ("b", b"2"))
    assert told.message == f"{letter.message} (the dead letter is without {left_out.decode()})"
    assert (told.key, told.value) == (letter.key, letter.value)


def test_a_hundred_thousand_headers_are_no_trouble() -> None:
    letter = with_headers(*(("h", b"") for _ in range(100_000)))

    headers = said(letter)

    assert size(headers) <= ROOM
    assert int(dict(headers)["rootline.headers"] or b"") == len(headers) - 13


@given(
    headers=st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=3_000)), max_size=8),
    message=st.text(max_size=3_000),
    bytes_max=st.integers(2_500, 20_000),
)
def test_whatever_there_is_fits_and_what_is_kept_is_as_it_was(
    headers: list[tuple[str, bytes | None]], message: str, bytes_max: int
) -> None:
    letter = with_headers(*headers).model_copy(update={"message": message})

    made = said(letter, bytes_max)

    assert size(made) <= bytes_max
    told = dead_letter_of(letter.key, letter.value, made)
    remaining = iter(headers)
    assert all(header in remaining for header in told.headers), "some of them, in their order"
    assert told.model_copy(update={"headers": (), "message": ""}) == LETTER.model_copy(update={"message": ""})
