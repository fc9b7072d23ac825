"""The tally of the entries of a leaf, computed on columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_columns import one_chunk
from rootline.schemas.content_entry import ContentType
from rootline.tree.state.aggregates import exact_sum
from rootline.tree.state.live_mask import live_mask
from rootline.tree.state.totals import SIZE_OF, Tally


def tally_of_leaf(leaf: Leaf, dead: BitMap | None = None) -> Tally:
    """The tally of a leaf's entries that are neither DELETED nor `dead`, without the leaf itself.

    It equals counting entry by entry (checked by `tests/tree/state/test_leaf_tally.py`).
    """
    is_data = leaf.content is LeafContent.DATA
    types = [ContentType.DATA] if is_data else [ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE]
    table = leaf.columns(
        ["content_type", "version_info.status", "record_count", *sorted({SIZE_OF[kind] for kind in types})]
    )
    live = live_mask(table, dead)
    tally = Tally()
    for content_type in types:
        chosen = live if is_data else pc.and_(live, pc.equal(_column(table, "content_type"), int(content_type)))
        records, sizes = (_column(table, name).filter(chosen) for name in ("record_count", SIZE_OF[content_type]))
        tally.add(content_type, len(records), exact_sum(one_chunk(records)), exact_sum(one_chunk(sizes)))
    return tally


def _column(table: pa.Table, path: str) -> pa.ChunkedArray:
    name, _, member = path.partition(".")
    return pc.struct_field(table.column(name), member) if member else table.column(name)
