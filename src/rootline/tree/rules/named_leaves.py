"""What an intent says of a leaf, and what the leaf is: the same for leaves of writers and of workers.

Owns: where leaves are stored, which content each type of row names, and that check. Does not own: the rest of what must
hold (`writer_leaves`, `flush`).
Invariants: a leaf that passed holds what its intent said: content, entries, bytes.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest

LEAVES_PREFIX: Final = "metadata/leaves/"
CONTENT_OF: Final = {
    ContentType.DATA_MANIFEST: LeafContent.DATA,
    ContentType.DELETE_MANIFEST: LeafContent.DELETE,
}


def check_stated(manifest: AddedManifest, leaf: Leaf, name: str) -> None:
    """Raises `Invalid` (`leaf-invalid`) unless `leaf` is what `manifest` says; `name` is what errors call it."""
    if leaf.content is not CONTENT_OF[manifest.content_type]:
        raise Invalid("leaf-invalid", f"{name} holds {leaf.content} entries, the intent says otherwise")
    if leaf.length != manifest.record_count or leaf.size_in_bytes != manifest.file_size_in_bytes:
        raise Invalid(
            "leaf-invalid",
            f"{name} has {leaf.length} entries in {leaf.size_in_bytes} bytes, the intent says "
            f"{manifest.record_count} in {manifest.file_size_in_bytes}",
        )
