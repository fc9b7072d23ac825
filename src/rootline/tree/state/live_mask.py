"""Masks of the live entries of a leaf, computed on columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.content_entry import Status


def live_mask(columns: pa.Table, dead: BitMap | None = None) -> pa.ChunkedArray:
    """One flag for each entry: it is neither DELETED nor among the `dead` ordinals.

    `columns` are of every entry of a leaf and include `version_info.status`.
    """
    live = pc.not_equal(pc.struct_field(columns.column("version_info"), "status"), int(Status.DELETED))
    if not dead:
        return live
    ordinals = pa.array(range(len(columns)), pa.int64())
    return pc.and_not(live, pc.is_in(ordinals, value_set=pa.array(dead, pa.int64())))


def undeleted_rows(leaf: Leaf, names: Sequence[str]) -> tuple[list[int], pa.Table]:
    """The ordinals of the entries of `leaf` that are not DELETED, and their columns `names`.

    Every lookup over a whole leaf starts here, because manifests of other writers list removed files too.
    """
    columns = leaf.columns([*names, "version_info.status"])
    ordinals = pc.indices_nonzero(live_mask(columns))
    return ordinals.to_pylist(), columns.take(ordinals)
