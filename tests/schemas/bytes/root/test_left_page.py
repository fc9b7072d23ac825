"""Pages of what left the live set, and the value of the header that names them."""

from __future__ import annotations

import uuid

import pytest

from rootline.schemas.bytes.root.location_pages import RETIRED_PAGES, RetiredLocations
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.parts.locations import Retired, RetiredSince, decode_retired, encode_retired

TABLE = uuid.UUID(int=7)


def hashes(*names: str) -> LocationHashes:
    return LocationHashes.of(map(location_hash, names))


@pytest.mark.parametrize(("removed", "rewritten"), [(0, 1), (1, 0), (3, 40_000), (70_000, 2)])
def test_a_page_decodes_to_what_was_encoded(removed: int, rewritten: int) -> None:
    sets = [hashes(*(f"{kind}{at}" for at in range(count))) for kind, count in (("a", removed), ("b", rewritten))]
    page, body = RETIRED_PAGES.encode(TABLE, RetiredLocations(*sets))
    assert RETIRED_PAGES.decode(body, page.reference, TABLE, name="page") == page
    assert len(page.content) == removed + rewritten


def test_damaged_bytes_and_pages_of_another_table_are_corrupt() -> None:
    page, body = RETIRED_PAGES.encode(TABLE, RetiredLocations(hashes("a"), hashes("b")))
    damaged = bytearray(body)
    damaged[-20] ^= 1
    for wrong, table in ((bytes(damaged), TABLE), (body[:-1], TABLE), (b"", TABLE), (body, uuid.UUID(int=8))):
        with pytest.raises(Corrupt):
            RETIRED_PAGES.decode(wrong, page.reference, table, name="page")


def test_a_page_whose_hashes_do_not_ascend_is_corrupt() -> None:
    one, two = sorted([location_hash("a"), location_hash("b")])
    crooked = LocationHashes()
    object.__setattr__(crooked, "packed", two + one)
    page, body = RETIRED_PAGES.encode(TABLE, RetiredLocations(crooked, LocationHashes()))
    with pytest.raises(Corrupt, match="ascend"):
        RETIRED_PAGES.decode(body, page.reference, TABLE, name="page")


def test_the_headers_value_decodes_to_what_was_encoded() -> None:
    page, _ = RETIRED_PAGES.encode(TABLE, RetiredLocations(hashes("a"), hashes("b")))
    since = RetiredSince(page.reference, 5, SequenceNumber(6))
    left = Retired(hashes("x", "y").packed, hashes("z").packed, 7, SequenceNumber(8), (since, since))
    assert decode_retired(encode_retired(left)) == left


@pytest.mark.parametrize(
    "value",
    [
        b"[]",
        b"{}",
        b'[0,0,"","",[]]',
        b'[0,0,"AA==","",[]]',
        b'[-1,0,"","",[]]',
        b'[0,0,1,"",[]]',
        b'[0,0,"","",[[]]]',
        b'[0,0,"","",[["AA==",1,1,1,1]]]',
    ],
)
def test_another_value_is_refused(value: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode_retired(value)


def test_sets_of_hashes_unite_and_find_all_that_they_hold() -> None:
    names = [f"data/{at}.parquet" for at in range(2_000)]
    left, right = hashes(*names[:1_200]), hashes(*names[800:])
    both = left.union(right, LocationHashes())
    assert both == hashes(*names)
    assert LocationHashes().union(left) == left
    assert all(location_hash(name) in both for name in names)
    assert not any(location_hash(f"other/{name}") in both for name in names)
    assert left.union() is left
    assert RetiredLocations(left, right).removed is left
