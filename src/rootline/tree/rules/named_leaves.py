"""The check that a leaf matches its description in an intent, for leaves of writers and of workers.

Owns: where leaves are stored, the content for each type of row, and that check. Does not own: the other rules of leaves
(`writer_leaves`, `flush`).
Invariants: A checked leaf has the content type, number of entries and size that its intent states.
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
    """Raises `Invalid` (`leaf-invalid`) unless `leaf` matches `manifest`. `name`: for error messages."""
    if leaf.content is not CONTENT_OF[manifest.content_type]:
        raise Invalid("leaf-invalid", f"{name} contains {leaf.content} entries, unlike the content type in the intent")
    if leaf.length != manifest.record_count or leaf.size_in_bytes != manifest.file_size_in_bytes:
        raise Invalid(
            "leaf-invalid",
            f"{name} has {leaf.length} entries in {leaf.size_in_bytes} bytes, the intent states "
            f"{manifest.record_count} in {manifest.file_size_in_bytes}",
        )
