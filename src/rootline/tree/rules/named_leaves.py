"""The need for a leaf that an intent names, and the check that the leaf matches its description in the intent.

Owns: where leaves are stored, the content for each type of row, the need for a leaf, and that check. Does not own: the
other rules of leaves (`writer_leaves`, `flush`).
Invariants: A checked leaf has the content type, number of entries and size that its intent states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import Absent, Need
from rootline.tree.proof.leaf_proof import LeafProof

LEAVES_PREFIX: Final = "metadata/leaves/"
CONTENT_OF: Final = {
    ContentType.DATA_MANIFEST: LeafContent.DATA,
    ContentType.DELETE_MANIFEST: LeafContent.DELETE,
}


@dataclass(frozen=True, slots=True)
class ReadLeaf:
    """A leaf that was read, with its proof if one was demanded."""

    leaf: Leaf
    proof: LeafProof | None = None


@dataclass(frozen=True, slots=True)
class LeafNeed(Need[ReadLeaf | Absent]):
    """The leaf at a location.

    * `proving`: the definition to prove it under. Leaves of maintenance need no proof.
    * `older`: its root row and the definition, needed to read a manifest of an older format.
    """

    location: str
    proving: TableDefinition | None = field(default=None, compare=False)
    older: tuple[ContentEntry, TableDefinition] | None = field(default=None, compare=False)

    @override
    def joined(self, later: LeafNeed) -> LeafNeed:
        proving = self.proving if later.proving is None else later.proving
        return LeafNeed(self.location, proving, self.older if later.older is None else later.older)


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
