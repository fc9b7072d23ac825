"""A set of hashes is what strictly ascends, however many there are."""

from __future__ import annotations

import pytest

from rootline.schemas.location_hashes import LocationHashes, ascending_hashes


@pytest.mark.parametrize("count", [0, 1, 2, 100, 101, 1_000])
def test_hashes_that_strictly_ascend_are_a_set_and_no_others_are(count: int) -> None:
    hashes = [(2**120 + at * 2**60 + at % 2).to_bytes(16) for at in range(count)]
    packed = b"".join(hashes)
    assert ascending_hashes(packed) == packed
    assert list(LocationHashes(packed)) == hashes
    with pytest.raises(ValueError, match="not hashes"):
        ascending_hashes(packed + b"x")
    for wrong in ([*hashes, *hashes[-1:]], [*hashes, bytes(16)], [*hashes[1:], *hashes[:1]]):
        if len(wrong) > 1:
            with pytest.raises(ValueError, match="ascend"):
                ascending_hashes(b"".join(wrong))
            with pytest.raises(ValueError, match="ascend"):
                LocationHashes(b"".join(wrong))
