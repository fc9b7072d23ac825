"""Pages of kept versions: what is written is read, what is wrong is refused, released bytes stay readable."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.schemas.bytes.root.retained_page import (
    KEPT_MAX,
    RETAINED_PAGES,
    KeptVersion,
    RetainedPage,
    RetainedVersions,
)
from rootline.schemas.bytes.root.root_codec import decode_root, encode_root, sync_marker
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import Version
from rootline.schemas.parts.versions import Expiry
from tests.golden_files import golden
from tests.schemas.bytes.root.test_root_codec import small_root
from tests.schemas.entry_values import TABLE_UUID
from tests.support.examples import examples

rows = st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40), st.integers(1, 2**40)), min_size=1, max_size=60)


def versions(steps: list[tuple[int, int, int]]) -> list[KeptVersion]:
    found, version, timestamp = [], -1, -1
    for gap, elapsed, size in steps:
        version, timestamp = version + gap, timestamp + elapsed
        found.append(KeptVersion(Version(version), timestamp, size))
    return found


def retained(held: list[KeptVersion]) -> tuple[RetainedPage, bytes]:
    return RETAINED_PAGES.encode(TABLE_UUID, RetainedVersions(tuple(held)))


def refused(held: list[KeptVersion]) -> None:
    page, body = retained(held)
    with pytest.raises(Corrupt) as caught:
        RETAINED_PAGES.decode_stored(body, *page.reference[:3], TABLE_UUID, name="page")
    assert caught.value.code == "page-corrupt"


@settings(deadline=None, max_examples=examples(60))
@given(rows)
def test_what_is_encoded_decodes_to_an_equal_page(steps: list[tuple[int, int, int]]) -> None:
    held = versions(steps)
    page, body = retained(held)
    assert RETAINED_PAGES.decode_stored(body, *page.reference[:3], TABLE_UUID, name="page") == page
    for item in held:
        assert page.content.find(item.version) == item
        assert page.content.newest_at(item.timestamp_ms) == item
    known = {item.version for item in held}
    assert all(page.content.find(item.version + 1) is None for item in held if item.version + 1 not in known)
    assert page.content.newest_at(held[0].timestamp_ms - 1) is None
    assert page.content.size_in_bytes == sum(item.size_in_bytes for item in held)


def test_a_page_that_says_nonsense_is_corrupt() -> None:
    first = KeptVersion(Version(3), 1_000, 10)
    for second in (
        first,
        first._replace(version=Version(2), timestamp_ms=1_001),
        first._replace(version=Version(4)),
        KeptVersion(Version(4), 1_001, 0),
        KeptVersion(Version(4), 1_001, -1),
    ):
        refused([first, second])
    refused([KeptVersion(Version(-1), 5, 5)])
    refused([])
    refused([KeptVersion(Version(number), number, 1) for number in range(KEPT_MAX + 1)])


def test_any_other_bytes_are_corrupt_and_nothing_else() -> None:
    page, body = retained(versions([(1, 5, 9)] * 20))
    seeded = random.Random(5)
    for _ in range(2_000):
        wrong = bytearray(body)
        for _ in range(seeded.choice((1, 3))):
            wrong[seeded.randrange(len(wrong))] = seeded.randrange(256)
        named = seeded.choice((page.reference.digest, hashlib.sha256(wrong).digest()))
        try:
            RETAINED_PAGES.decode_stored(bytes(wrong), "p", named, len(wrong), TABLE_UUID, name="page")
        except Corrupt:
            continue


def test_released_bytes_stay_readable() -> None:
    page, body = retained(versions([(7, 60_000, 5_000)] * 3))
    assert golden("page-kept.avro", body) == body
    root = decode_root(small_root(), name="root")
    header = dataclasses.replace(
        root.header,
        row_ids=replace(root.header.row_ids, next_of_parent=3),
        versions=replace(root.header.versions, expiry=Expiry(12_345, page.reference), oldest=Version(5)),
    )
    _, made = encode_root(header, root.blocks, root.codec, sync_marker(header.table_uuid))
    held = golden("root-single-file-commits-2.avro", made)
    assert decode_root(held, name="root").header == header
