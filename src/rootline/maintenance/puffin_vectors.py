"""The vectors of a Puffin file, as an intent names them."""

from __future__ import annotations

from collections.abc import Sequence

from rootline.schemas.bytes.vector_codec import EncodedPuffin, VectorBlob
from rootline.schemas.intent import AddedVector, VectorReference


def vectors_of_puffin(
    location: str, puffin: EncodedPuffin, blobs: Sequence[VectorBlob], replaces: Sequence[VectorReference | None]
) -> tuple[AddedVector, ...]:
    """One for each of `blobs`, which `puffin` was made of, and the vector that each replaces."""
    return tuple(
        AddedVector(
            location=location,
            offset=place.offset,
            size_in_bytes=place.size,
            file_size_in_bytes=len(puffin.body),
            cardinality=place.cardinality,
            referenced_file=blob.referenced_data_file,
            replaces_vector=replaced,
        )
        for blob, place, replaced in zip(blobs, puffin.places, replaces, strict=True)
    )
