"""A new leaf for many entries of one older leaf that are restored.

Owns: that leaf, its root row, and its counts. Does not own: which entries are restored (`version_difference`), the few
that become rows of the root instead (`restore`).
Invariants:
* Every entry is ADDED, with its data sequence number and row ids.
* Snapshot id and file sequence number, which are known only at the commit, are inherited from the leaf's row.
* Entries are copied by columns, without a loop.
* The same batch on the same root gives the same leaf.

Source: format page, "Leaf manifest". Decision 0026.
"""

from __future__ import annotations

import hashlib
import uuid

import pyarrow as pa
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, decode_leaf, encode_columns
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status
from rootline.tree.draft.change import IncomingLeaf
from rootline.tree.draft.draft import Draft
from rootline.tree.state.aggregates import aggregates_of
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.leaf_tally import tally_of_leaf

_VERSION_INFO = "version_info"


def restored_leaf(draft: Draft, older: Leaf, ordinals: BitMap, next_row_id: int) -> tuple[IncomingLeaf, EncodedLeaf]:
    """A leaf with these entries of `older`, and its object to store. `older` is no longer part of the table.

    Args:
        draft: the draft that the leaf is added to.
        older: a leaf, read with the root row that referenced it.
        ordinals: at least one entry, none DELETED.
        next_row_id: of the table. The entries have row ids already, so the range of ids of the leaf's row stays unused.
    """
    encoded = encode_columns(_columns(older, ordinals), leaf_uuid=_uuid(draft, older), content=older.content)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    is_data = older.content is LeafContent.DATA
    spec_id = older.entries_at([ordinals.min()])[0].partition_spec_id
    aggregates = aggregates_of(leaf, draft.definition.spec_by_id(spec_id).expr_ids)
    entry = ContentEntry(
        content_type=ContentType.DATA_MANIFEST if is_data else ContentType.DELETE_MANIFEST,
        location=leaf.location,
        file_format=FileFormat.PARQUET,
        version_info=draft.numbers(),
        partition_spec_id=spec_id,
        record_count=leaf.length,
        file_size_in_bytes=leaf.size_in_bytes,
        manifest_stats=aggregates.manifest_stats,
        first_row_id=next_row_id if is_data else None,
        content_stats=aggregates.content_stats,
    )
    lookup = LeafLookup(leaf.of_row(entry))
    return IncomingLeaf(lookup, Row.of(entry, draft.codec), BitMap(), tally_of_leaf(leaf)), encoded


def _columns(older: Leaf, ordinals: BitMap) -> pa.Table:
    table = older.table.take(pa.array(ordinals, pa.int64()))
    at = table.column_names.index(_VERSION_INFO)
    info = table.column(at).combine_chunks()
    members = []
    for field, values in zip(info.type, info.flatten(), strict=True):
        if field.name == "status":
            values = pa.array([int(Status.ADDED)] * len(values), field.type)
        elif field.name != "sequence_number":
            values = pa.nulls(len(values), field.type)
        members.append(values)
    return table.set_column(at, table.schema.field(at), pa.StructArray.from_arrays(members, fields=list(info.type)))


def _uuid(draft: Draft, older: Leaf) -> uuid.UUID:
    """A new uuid for each restore, because the same entries may be restored twice."""
    named = f"{draft.definition.table_uuid}/{draft.version}/{draft.sequence_number}/{older.location}"
    return uuid.UUID(bytes=hashlib.sha256(named.encode()).digest()[:16])
