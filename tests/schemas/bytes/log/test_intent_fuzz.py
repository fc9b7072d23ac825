from __future__ import annotations

import json
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent, encode_intent_json, shipped_schema
from rootline.schemas.bytes.verdict_codec import decode_dead_letter, decode_verdicts
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, IntentKind
from tests.schemas.intent_examples import intents
from tests.support.examples import examples

pytestmark = pytest.mark.slow

JSON = {"content-type": b"application/json"}
PREFIX = encode_intent(intents()[0])[:10]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CODES = {"undecodable", "intent-malformed", "kind-unknown", "intent-too-large"}


def intent_or_invalid(value: bytes, headers: dict[str, bytes]) -> Intent | None:
    try:
        return decode_intent(value, headers)
    except Invalid as error:
        caught = error
    assert caught.code in CODES
    assert len(caught.message) < 2_000
    return None


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_an_intent_or_invalid(value: bytes) -> None:
    for whole in (value, PREFIX + value):
        intent_or_invalid(whole, {})
    intent_or_invalid(value, JSON)
    for decode in (decode_verdicts, decode_dead_letter):
        with pytest.raises(Invalid):
            decode(value)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_any_json_gives_an_intent_or_invalid(data: st.DataObject) -> None:
    body = json.loads(encode_intent_json(data.draw(st.sampled_from(intents()))))
    target = body
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from([*sorted(target), "extra"]))
        target[name] = data.draw(JSON_VALUES)
    intent_or_invalid(json.dumps(body).encode(), JSON)


def test_what_mutated_bytes_decode_to_encodes_to_the_same_intent_again() -> None:
    seeded = random.Random(7)
    survived = 0
    for _ in range(6_000):
        value = bytearray(encode_intent(seeded.choice(intents())))
        for _ in range(seeded.choice((1, 1, 2, 8))):
            value[seeded.randrange(10, len(value))] = seeded.choice((0, 1, 2, 0x7F, 0x80, 0xFF, seeded.randrange(256)))
        intent = intent_or_invalid(bytes(value), {})
        if intent is not None:
            survived += 1
            assert decode_intent(encode_intent(intent)) == intent
    assert survived > 100


def test_memory_stays_in_proportion_to_the_bytes_that_arrive() -> None:
    removed = framed_removals(75_000)
    assert intent_or_invalid(framed_removals(2), {}) is not None
    empty_statistics = b'{"location":"","statistics":[' + b"{}," * 998 + b"{}]}"
    in_json = b'{"kind":"append","add_data_files":[' + b",".join([empty_statistics] * 75) + b"]}"
    for value, headers in ((removed, {}), (in_json, JSON), (b'{"a":[' + b"[]," * 75_000 + b"[]]}", JSON)):
        assert 200_000 < len(value) < 1_000_000
        tracemalloc.start()
        assert intent_or_invalid(value, headers) is None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 150 * len(value)


def framed_removals(count: int) -> bytes:
    """An intent that removes `count` files of three bytes each."""
    removal = encode_intent(Intent.model_construct(intent_id="i", table="t", kind=IntentKind.REMOVE))
    names = [field["name"] for field in shipped_schema("intent")["fields"]]
    later = len(names) - names.index("remove_files") - 1  # fields, all of them empty: a zero byte each
    before, after = removal[: -later - 1], removal[-later:]
    length, rest = bytearray(), count * 2
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    length.append(rest)
    return before + bytes(length) + bytes(3) * count + b"\x00" + after
