"""Write the merged vectors of a batch into one Puffin file.

Owns: the file's name and the rows that follow from it. Does not own: the merge (`vector_merge`).
Invariants: The same inputs give the same name and bytes. A retry that merges the same vectors reuses the object. The
object of a lost commit is an orphan.

Source: protocol page, section 3.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import DeletionVector
from rootline.schemas.identifiers import Location
from rootline.schemas.object_keys import vector_location
from rootline.tree.draft.change import MergedVector
from rootline.tree.state.pending_object import PendingObject


def write_merged(
    merged: Iterable[MergedVector], codec: EntryCodec, salt: bytes = b""
) -> tuple[PendingObject, list[Row]]:
    """The Puffin file of at least one merged vector, and the rows that reference it, in the order of their data files.

    `salt`: part of the file's name, so that only the root being made references this object.
    """
    ordered = sorted(merged, key=lambda vector: vector.entry.referenced_file or "")
    puffin = encode_puffin([VectorBlob(vector.entry.referenced_file or "", vector.positions) for vector in ordered])
    inputs = hashlib.sha256(salt)
    for vector in ordered:
        inputs.update(f"{vector.entry.referenced_file}\0{len(vector.positions)}\0".encode())
    stem = vector_location(inputs.hexdigest()[:32]).removesuffix(".puffin")
    location = Location(puffin_name(stem, puffin.body))
    rows = [
        Row.of(
            dataclasses.replace(
                vector.entry,
                location=location,
                file_size_in_bytes=len(puffin.body),
                deletion_vector=DeletionVector(place.offset, place.size),
            ),
            codec,
        )
        for vector, place in zip(ordered, puffin.places, strict=True)
    ]
    return PendingObject(location, puffin.body), rows
