"""What the entries of a leaf count for, over columns.

Owns: the sums. Does not own: what one entry counts for (`totals`, which this must agree with).
Invariants: DELETED entries count for nothing; equal to counting entry by entry (a test holds the two together).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf.leaf import Leaf, LeafContent
from rootline.schemas.content_entry import ContentType, Status
from rootline.tree.state.aggregates import exact_sum
from rootline.tree.state.totals import Tally


def tally_of_leaf(leaf: Leaf, dead: BitMap | None = None) -> Tally:
    """The tally of a leaf's entries that are neither DELETED nor `dead`; the leaf itself is not counted."""
    table = leaf.columns(["content_type", "version_info.status", "record_count", "file_size_in_bytes"])
    types, records, sizes = (
        _one(table.column(name)) for name in ("content_type", "record_count", "file_size_in_bytes")
    )
    live = pc.not_equal(pc.struct_field(_one(table.column("version_info")), "status"), int(Status.DELETED))
    if dead:
        positions = pa.array(range(leaf.length), pa.int64())
        live = pc.and_not(live, pc.is_in(positions, value_set=pa.array(dead, pa.int64())))
    tally = Tally()
    if leaf.content is LeafContent.DATA:
        tally.data_files = pc.sum(live).as_py() or 0
        tally.rows, tally.data_bytes = exact_sum(records.filter(live)), exact_sum(sizes.filter(live))
        return tally
    vectors = pc.and_(live, pc.equal(types, int(ContentType.POSITION_DELETE)))
    equality = pc.and_(live, pc.equal(types, int(ContentType.EQUALITY_DELETE)))
    tally.vectors, tally.equality_deletes = pc.sum(vectors).as_py() or 0, pc.sum(equality).as_py() or 0
    tally.deleted_rows = exact_sum(records.filter(vectors))
    tally.equality_rows = exact_sum(records.filter(equality))
    blobs = _one(leaf.columns(["deletion_vector.size_in_bytes"]).column(0))
    tally.delete_bytes = exact_sum(pc.struct_field(blobs, "size_in_bytes").filter(vectors))
    tally.delete_bytes += exact_sum(sizes.filter(equality))
    return tally


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
