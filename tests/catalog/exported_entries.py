"""Entries to export, of any table of `exported_tables`, and what is left of them when they are read back.

Owns: values. Does not own: what is asserted about them.
Invariants: everything made here may be in a leaf; every field that an export carries is sometimes set, sometimes not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st
from pyiceberg.types import DoubleType, FloatType, PrimitiveType, TimeType, UUIDType

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.field_ids import DELETE_FILE_PATH
from rootline.schemas.table_definition import TableDefinition
from tests.schemas import entry_values

BASE: Final = "file:///lake/ns/t"
SYNC: Final = bytes(range(16))
_COUNT: Final = st.integers(0, 2**40) | st.integers(0, 200)
_LOCATION: Final = st.text(min_size=1, max_size=30)


def absolute(location: str) -> str:
    return location if ":/" in location else f"{BASE}/{location}"


def bounds(kind: PrimitiveType) -> st.SearchStrategy[Any]:
    """Values that a column of a leaf can hold: a time is one of a day."""
    return st.integers(0, 86_399_999_999) if isinstance(kind, TimeType) else entry_values.bounds(kind)


@st.composite
def column_statistics(draw: st.DrawFn, kind: PrimitiveType) -> FieldStatistics:
    """Of which nothing contradicts itself: a reader takes what does for unknown."""
    low, high = draw(st.none() | bounds(kind)), draw(st.none() | bounds(kind))
    if low is not None and high is not None and low > high:
        low, high = high, low
    return FieldStatistics(low, high, draw(st.none() | st.booleans()), *draw(_counts()))


@st.composite
def partition_statistics(draw: st.DrawFn, kind: PrimitiveType, *, is_void: bool) -> FieldStatistics:
    """A value, or null; its upper bound may be left out."""
    value = draw(st.none() if is_void else st.none() | bounds(kind))
    if isinstance(kind, FloatType | DoubleType) and not is_void and draw(st.booleans()):
        value = float("nan")
    return FieldStatistics(value, value if draw(st.booleans()) else None, None, *draw(_counts()))


@st.composite
def _counts(draw: st.DrawFn) -> tuple[int | None, int | None, int | None]:
    """Values, nulls and NaNs."""
    nulls, nans = draw(st.none() | _COUNT), draw(st.none() | _COUNT)
    others = draw(st.none() | _COUNT)
    return None if others is None else others + (nulls or 0) + (nans or 0), nulls, nans


@st.composite
def entries(draw: st.DrawFn, definition: TableDefinition, spec_id: int, content: LeafContent) -> ContentEntry:
    """An entry of a leaf of `content`, its numbers explicit."""
    data = content is LeafContent.DATA
    number = draw(_COUNT)
    kind = (
        ContentType.DATA if data else draw(st.sampled_from((ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE)))
    )
    is_vector = kind is ContentType.POSITION_DELETE
    return ContentEntry(
        content_type=kind,
        location=draw(_LOCATION),
        file_format=FileFormat.PUFFIN if is_vector else draw(st.sampled_from((FileFormat.PARQUET, FileFormat.ORC))),
        version_info=VersionInfo(draw(st.sampled_from(Status)), draw(_COUNT), number, number + draw(_COUNT)),
        partition_spec_id=spec_id,
        record_count=draw(_COUNT),
        file_size_in_bytes=draw(_COUNT),
        deletion_vector=DeletionVector(draw(_COUNT), draw(_COUNT)) if is_vector else None,
        sort_order_id=draw(st.sampled_from((None, 0, 1))) if data else None,
        referenced_file=draw(_LOCATION) if is_vector else None,
        key_metadata=draw(st.none() | st.binary(max_size=9)),
        split_offsets=draw(st.none() | st.lists(_COUNT, min_size=1, max_size=3).map(sorted).map(tuple)),
        equality_ids=(1, 2) if kind is ContentType.EQUALITY_DELETE else None,
        first_row_id=draw(st.none() | _COUNT) if data else None,
        content_stats=draw(_statistics(definition, spec_id, is_vector=is_vector)),
    )


@st.composite
def _statistics(
    draw: st.DrawFn, definition: TableDefinition, spec_id: int, *, is_vector: bool
) -> dict[int, FieldStatistics]:
    found: dict[int, FieldStatistics] = {}
    members = definition.spec_by_id(spec_id).expr_ids
    columns = [] if is_vector else draw(st.lists(st.sampled_from(definition.tracked_fields), max_size=5))
    for column in columns:
        found[column.tracked_id] = draw(column_statistics(column.type))
    for member in members:
        tracked = definition.tracked_by_id.get(member)
        if tracked is not None:
            expression = definition.expressions_by_id.get(member)
            is_void = expression is not None and expression.transform == "void"
            found[member] = draw(partition_statistics(tracked.type, is_void=is_void))
    return dict(sorted(found.items()))


def read_back(entry: ContentEntry, exported: ExportedDefinition, content: LeafContent) -> ContentEntry:
    """What an export keeps of an entry."""
    is_v3 = exported.format_version is FormatVersion.V3
    members = {field.tracked_id for field in exported.fields(entry.partition_spec_id)}
    unread = set(exported.definition.spec_by_id(entry.partition_spec_id).expr_ids) - members
    kept: dict[int, FieldStatistics] = {}
    for tracked_id, item in entry.content_stats.items():
        is_member = tracked_id in members
        is_column = not exported.definition.tracked_by_id[tracked_id].is_expression
        if tracked_id in unread:
            continue  # our decoder takes a partition value from the tuple alone
        if is_column and entry.content_type is not ContentType.POSITION_DELETE:
            low, high = _no_nan(item.lower_bound), _no_nan(item.upper_bound)
            if isinstance(exported.definition.tracked_by_id[tracked_id].type, UUIDType):
                low = high = None
            plain = replace(item, tight_bounds=None, lower_bound=low, upper_bound=high)
            if plain != FieldStatistics():
                kept[tracked_id] = plain
        if is_member:
            counts = kept.get(tracked_id, FieldStatistics())
            value = item.lower_bound
            kept[tracked_id] = replace(counts, lower_bound=value, upper_bound=value)
    return replace(
        entry,
        location=absolute(entry.location),
        referenced_file=None if entry.referenced_file is None else absolute(entry.referenced_file),
        first_row_id=entry.first_row_id if is_v3 else None,
        content_stats=kept,
    )


def _no_nan(value: Any) -> Any:
    return None if value != value else value


def leaf_row(entries: Sequence[ContentEntry], content: LeafContent, spec_id: int, size: int) -> ContentEntry:
    """The root row of a manifest, as far as reading it back needs one."""
    data = content is LeafContent.DATA
    return ContentEntry(
        content_type=ContentType.DATA_MANIFEST if data else ContentType.DELETE_MANIFEST,
        location="metadata/m.avro",
        file_format=FileFormat.AVRO,
        version_info=VersionInfo(Status.EXISTING, 1, 1, 1),
        partition_spec_id=spec_id,
        record_count=len(entries),
        file_size_in_bytes=size,
        manifest_stats=ManifestStats(0, len(entries), 0, 0, 0, 0, 0),
    )


__all__ = ["BASE", "DELETE_FILE_PATH", "SYNC", "absolute", "entries", "leaf_row", "read_back"]
