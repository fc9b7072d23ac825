"""A leaf manifest (a leaf) in memory: columns for planning, rows on demand.

Owns: columns to entries, finding an entry by its place, the cache of columns derived from leaves. Does not own: the
proof of the bytes (`leaf_codec`), inheritance (`leaf_columns`), the meaning of a leaf's rows for the table
(`rootline.tree`).
Invariants: an ordinal is the physical record index across row groups, including DELETED rows. Only requested columns
are decoded, and the statistics of a row when they are first read. A leaf that knows its root row (the entry of the root
manifest that names it) returns the inherited values, in rows and in columns alike. The cache is bounded, evicts the
oldest column first, never keeps a leaf alive, and any thread may use it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from copy import copy
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple
from weakref import ref

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rootline.schemas.arrow_values import array_from
from rootline.schemas.bytes.leaf_columns import (
    Inherited,
    inherited_columns,
    inherited_from,
    inherited_rows,
    may_inherit,
    one_chunk,
    picked,
)
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, ROW_FIELDS, physical_column
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    DeletionVector,
    EntryPlace,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt

ENTRIES_MAX: Final = 250_000
"""Limit of cached entries of all leaves together: five leaves of the usual size, about 250 bytes for each entry."""
LEAVES_MAX: Final = 500


class _Held(NamedTuple):
    leaf: ref[Sized]
    entries: int
    total: int
    """Entries of this leaf and of all leaves that were added before it, including evicted ones."""


class KeptColumns:
    """A cache of columns that leaves have computed. `names`: the leaf's cached properties, which are deleted to make
    room for other leaves.
    """

    def __init__(self, names: Sequence[str], entries_max: int = ENTRIES_MAX, leaves_max: int = LEAVES_MAX) -> None:
        self._names, self._entries_max, self._leaves_max = tuple(names), entries_max, leaves_max
        self._held: deque[_Held] = deque()  # a deque, because its operations are atomic

    def add(self, leaf: Sized) -> None:
        """Record that `leaf` is about to compute a property. Delete the properties of the oldest leaves if the cache is
        full.
        """
        entries = len(leaf)
        try:
            total = self._held[-1].total + entries
        except IndexError:
            total = entries
        self._held.append(_Held(ref(leaf), entries, total))
        while len(self._held) > 1:
            try:
                first = self._held[0]
                if total - first.total + first.entries <= self._entries_max and len(self._held) <= self._leaves_max:
                    return
                self._held.remove(first)
            except (IndexError, ValueError):
                continue  # another thread has evicted it
            gone = first.leaf()
            if gone is not None and gone is not leaf:
                for name in self._names:
                    gone.__dict__.pop(name, None)


_CHUNK_ROWS: Final = 1024
_NEAR_ROWS: Final = 16
"""The most neighbouring entries whose statistics are decoded together. They cost no more than a single one."""
_SMALL_BYTES: Final = 64 << 10
"""Limit of leaves whose rows (without statistics) are decoded once and cached, because opening them takes longer."""
_KEPT: Final = KeptColumns(["_ordinals", "_rows", "_written_rows", "_open_group", "_small_rows"])
_ROW_COLUMNS: Final = [field.name for field in ROW_FIELDS]
_MEMBERS: Final = (
    "lower_bound",
    "upper_bound",
    "tight_bounds",
    "value_count",
    "null_value_count",
    "nan_value_count",
    "avg_value_size_in_bytes",
    "max_value_size_in_bytes",
)


class LeafContent(StrEnum):
    """The kind of entries in a leaf: data files, or deletes (vectors and equality deletes)."""

    DATA = "data"
    DELETE = "delete"


TYPES_OF: Final = {
    LeafContent.DATA: [ContentType.DATA],
    LeafContent.DELETE: [ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE],
}
"""The types of the entries that a leaf of each content may have."""


def place_key(place: EntryPlace) -> EntryPlace | str:
    """The key of a place in an index. Data files, which are many, use their location alone."""
    return place[1] if not place[0] and place[2] is None else place


class Leaf:
    """A proven leaf. `location`: as in the root. `size_in_bytes`: of the file. `inherited`: from its root row.

    `body` is Parquet, and `metadata` its parsed footer. Any thread may use a leaf. Each read reopens the bytes, which
    takes a tenth of a millisecond, because Arrow's reader crashes the process when two threads share it.
    """

    _open_group: tuple[int, pa.StructArray] | None = None

    def __init__(
        self,
        location: str,
        content: LeafContent,
        body: bytes | pa.Buffer,
        metadata: pq.FileMetaData,
        size_in_bytes: int,
        inherited: Inherited | None = None,
    ) -> None:
        self.inherited = inherited
        self.location = location
        self.content = content
        self.size_in_bytes = size_in_bytes
        self.length: int = metadata.num_rows
        self._body = body
        self._metadata: pq.FileMetaData | None = metadata
        groups = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        self._group_starts = [sum(groups[:index]) for index in range(len(groups) + 1)]

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"Leaf({self.location!r}, {self.length} entries)"

    def kept_by(self, keep: Callable[[bytes], bytes | pa.Buffer]) -> Leaf:
        """The same leaf with its bytes moved by `keep`, or itself if they were already moved.

        The parsed footer, a megabyte for a large leaf, is dropped, because parsing it again takes a millisecond.
        """
        if not isinstance(self._body, bytes):
            return self
        other = self._copy(self.inherited)
        other._body, other._metadata = keep(self._body), None
        return other

    def of_row(self, row: ContentEntry) -> Leaf:
        """The same leaf under the root row that names it, from which its entries inherit, or itself if it is
        already.
        """
        return self.inheriting(inherited_from(row))

    def inheriting(self, inherited: Inherited) -> Leaf:
        """The same leaf whose entries inherit these values, or itself if they already do."""
        if inherited == self.inherited:
            return self
        return self._copy(inherited)

    def _copy(self, inherited: Inherited | None) -> Leaf:
        other = copy(self)
        other.inherited = inherited
        for name in ("table", "_rows", "_ordinals"):
            other.__dict__.pop(name, None)
        if "_small_rows" in other.__dict__:
            _KEPT.add(other)
        return other

    @cached_property
    def table(self) -> pa.Table:
        """Every column, one row for each entry, in the order of ordinals. Cached, so prefer `columns` for a few."""
        return self._with_inherited(self._read(None))

    def columns(self, names: Sequence[str]) -> pa.Table:
        """The columns of the leaf with these Parquet paths, such as `content_stats._3.lower_bound`."""
        return self._with_inherited(self._read(list(names)))

    @cached_property
    def tracked_ids(self) -> tuple[int, ...]:
        """The ids of the columns and expressions for which some entry of this leaf has statistics."""
        footer = self._metadata or pq.read_metadata(pa.BufferReader(self._body))
        schema: pa.Schema = footer.schema.to_arrow_schema()
        index = schema.get_field_index(CONTENT_STATS)
        return () if index < 0 else tuple(int(field.name[1:]) for field in schema.field(index).type)

    def entry(self, ordinal: int) -> ContentEntry:
        """The entry at `ordinal`. Raises `IndexError` outside 0..length."""
        if not 0 <= ordinal < self.length:
            raise IndexError(f"{self.location} has {self.length} entries, not one at {ordinal}")
        return self._entries_between(ordinal, ordinal + 1)[0]

    def entries_at(self, ordinals: Sequence[int]) -> list[ContentEntry]:
        """The entries at these ordinals, in the given order."""
        rows = self._rows.take(array_from(ordinals))
        columns = (rows.column(name).to_pylist() for name in _FLAT_COLUMNS)
        near: dict[int, _ChunkStatistics] = {}
        for start in sorted({ordinal - ordinal % _NEAR_ROWS for ordinal in ordinals}):
            near[start] = _ChunkStatistics(self, start, min(start + _NEAR_ROWS, self.length))
        return [
            _entry_of(row, RowStatistics(near[ordinal - ordinal % _NEAR_ROWS], ordinal % _NEAR_ROWS))
            for ordinal, row in zip(ordinals, zip(*columns, strict=True), strict=True)
        ]

    def entries(self) -> Iterator[ContentEntry]:
        """Every entry, including DELETED ones, in the order of ordinals."""
        for start in range(0, self.length, _CHUNK_ROWS):
            yield from self._entries_between(start, min(start + _CHUNK_ROWS, self.length))

    def ordinal_of(self, place: EntryPlace) -> int | None:
        """The ordinal of the entry at `place`, or `None` if there is no such entry. DELETED rows are not found."""
        return self._ordinals.get(place_key(place))

    def ordinals_of(self, places: Iterable[EntryPlace]) -> list[int | None]:
        """The results of `ordinal_of` for many places."""
        return list(map(self._ordinals.get, map(place_key, places)))

    @cached_property
    def _ordinals(self) -> Mapping[EntryPlace | str, int]:
        """The index from `place_key` to ordinal, for many lookups. It takes 250 bytes an entry, so a single lookup uses
        `rootline.tree.state.leaf_lookup`.
        """
        _KEPT.add(self)
        columns = [self._rows.column(name).to_pylist() for name in ("content_type", "location", "status", "offset")]
        return {
            (location if not content_type and offset is None else EntryPlace(content_type, location, offset)): ordinal
            for ordinal, (content_type, location, status, offset) in enumerate(zip(*columns, strict=True))
            if status != Status.DELETED
        }

    @property
    def rows(self) -> pa.Table:
        """All columns except the statistics, in the order of ordinals, with flattened structs. Use it to compare many
        entries without decoding them to objects.
        """
        return self._rows

    @cached_property
    def _rows(self) -> pa.Table:
        """All columns except the statistics, with flattened structs and one chunk for each column."""
        _KEPT.add(self)
        written = self._written_rows
        return written if self.inherited is None else inherited_rows(written, self.inherited)

    def _with_inherited(self, table: pa.Table) -> pa.Table:
        return inherited_columns(table, self._rows) if self.inherited is not None and may_inherit(table) else table

    @cached_property
    def _written_rows(self) -> pa.Table:
        """The columns of `_rows` without inherited values."""
        flat: dict[str, pa.Array] = {}
        table = self._read(_ROW_COLUMNS)
        for name in table.column_names:
            column = one_chunk(table.column(name))
            if pa.types.is_struct(column.type):
                flat[name] = column.is_valid()
                flat |= {field.name: child for field, child in zip(column.type, column.flatten(), strict=True)}
            else:
                flat[name] = column
        return pa.table(flat)

    def _entries_between(self, start: int, stop: int) -> list[ContentEntry]:
        rows = self._rows.slice(start, stop - start)
        source = _ChunkStatistics(self, start, stop)
        columns = (rows.column(name).to_pylist() for name in _FLAT_COLUMNS)
        return [_entry_of(row, RowStatistics(source, index)) for index, row in enumerate(zip(*columns, strict=True))]

    def statistics_between(self, start: int, stop: int) -> list[dict[int, FieldStatistics]]:
        """The statistics of the entries from `start` up to `stop`."""
        found: list[dict[int, FieldStatistics]] = []
        if not self.tracked_ids:
            return [{} for _ in range(start, stop)]
        for group, group_start in enumerate(self._group_starts[:-1]):
            low, high = max(start, group_start), min(stop, self._group_starts[group + 1])
            if low < high:
                found.extend(_statistics_of(self._group(group).slice(low - group_start, high - low)))
        return found

    def statistics_at(self, ordinals: Sequence[int]) -> dict[int, pa.StructArray]:
        """Column or expression id → a struct array of the statistics at these ordinals, which must ascend."""
        if not self.tracked_ids or not ordinals:
            return {}
        places = array_from(ordinals)
        parts: list[pa.StructArray] = []
        for group, start in enumerate(self._group_starts[:-1]):
            stop = self._group_starts[group + 1]
            low, high = (bisect_left(ordinals, bound) for bound in (start, stop))
            if low < high:
                rows, first = self._group(group), ordinals[low] - start
                is_run = ordinals[high - 1] - ordinals[low] == high - low - 1
                wanted = None if is_run else pc.subtract(places.slice(low, high - low), start)
                parts.append(rows.slice(first, high - low) if wanted is None else rows.take(wanted))
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return {int(field.name[1:]): column for field, column in zip(whole.type, whole.flatten(), strict=True)}

    def _read(self, columns: list[str] | None, group: int | None = None) -> pa.Table:
        """Read columns of the whole leaf, or of one row group. Raises `Corrupt` if a column of another writer's leaf
        cannot be decoded.
        """
        try:
            table = self._opened(columns, group)
            table.validate(full=True)  # checks that text is UTF-8 and decimals are in range
            return table
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corrupt("leaf-corrupt", f"{self.location}: a column cannot be read: {error!s:.200}") from error

    def _opened(self, columns: list[str] | None, group: int | None) -> pa.Table:
        if self.is_small and columns is not None and not any(name.startswith(CONTENT_STATS) for name in columns):
            return picked(self._small_rows, columns)
        file = pq.ParquetFile(pa.BufferReader(self._body), metadata=self._metadata)
        if group is None:
            return file.read(columns=columns, use_threads=False)
        return file.read_row_group(group, columns=columns, use_threads=False)

    @property
    def is_small(self) -> bool:
        """Whether the leaf is so small that all of it except its statistics is decoded once and cached."""
        return self.length <= _CHUNK_ROWS and len(self._body) <= _SMALL_BYTES

    @cached_property
    def _small_rows(self) -> pa.Table:
        _KEPT.add(self)
        file = pq.ParquetFile(pa.BufferReader(self._body), metadata=self._metadata)
        return file.read(columns=_ROW_COLUMNS, use_threads=False)

    def _group(self, group: int) -> pa.StructArray:
        opened = self._open_group
        if opened is None or opened[0] != group:
            _KEPT.add(self)
            opened = self._open_group = group, one_chunk(self._read([CONTENT_STATS], group).column(0))
        return opened[1]


class _ChunkStatistics:
    """The statistics of some consecutive rows, decoded together at the first access."""

    __slots__ = ("_leaf", "_rows", "_start", "_stop")

    def __init__(self, leaf: Leaf, start: int, stop: int) -> None:
        self._leaf, self._start, self._stop = leaf, start, stop
        self._rows: list[dict[int, FieldStatistics]] | None = None

    def row(self, index: int) -> dict[int, FieldStatistics]:
        if self._rows is None:
            self._rows = self._leaf.statistics_between(self._start, self._stop)
        return self._rows[index]


class RowStatistics(ContentStats):
    """The statistics of one row, decoded at the first access. Equal to a dict of the same items."""

    __slots__ = ("_chunk", "_index")

    def __init__(self, chunk: _ChunkStatistics, index: int) -> None:
        self._chunk, self._index = chunk, index

    def __getitem__(self, tracked_id: int) -> FieldStatistics:
        return self._chunk.row(self._index)[tracked_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._chunk.row(self._index))

    def __len__(self) -> int:
        return len(self._chunk.row(self._index))

    def __repr__(self) -> str:
        return repr(self._chunk.row(self._index))


_FLAT_COLUMNS: Final = (
    "content_type",
    "location",
    "file_format",
    "status",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "partition_spec_id",
    "record_count",
    "file_size_in_bytes",
    "deletion_vector",
    "offset",
    "size_in_bytes",
    "inline_content",
    "sort_order_id",
    "referenced_file",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "first_row_id",
)
_CONTENT_TYPES: Final = tuple(ContentType)
_STATUSES: Final = tuple(Status)
_FORMATS: Final = {item.value: item for item in FileFormat}


def _entry_of(row: tuple[Any, ...], statistics: ContentStats) -> ContentEntry:
    (content_type, location, file_format, status, snapshot_id, sequence_number, file_sequence_number, spec_id,
     record_count, size, has_vector, offset, vector_size, inline, sort_order_id, referenced_file, key_metadata,
     split_offsets, equality_ids, first_row_id) = row  # fmt: skip
    return ContentEntry(
        content_type=_CONTENT_TYPES[content_type],
        location=location,
        file_format=_FORMATS[file_format],
        version_info=VersionInfo(_STATUSES[status], snapshot_id, sequence_number, file_sequence_number),
        partition_spec_id=spec_id,
        record_count=record_count,
        file_size_in_bytes=size,
        deletion_vector=DeletionVector(offset, vector_size, inline) if has_vector else None,
        sort_order_id=sort_order_id,
        referenced_file=referenced_file,
        key_metadata=key_metadata,
        split_offsets=None if split_offsets is None else tuple(split_offsets),
        equality_ids=None if equality_ids is None else tuple(equality_ids),
        first_row_id=first_row_id,
        content_stats=statistics,
    )


def _statistics_of(rows: pa.StructArray) -> list[dict[int, FieldStatistics]]:
    found: list[dict[int, FieldStatistics]] = [{} for _ in range(len(rows))]
    for field, column in zip(rows.type, rows.flatten(), strict=True):
        tracked_id = int(field.name[1:])
        members = {child.name: array for child, array in zip(column.type, column.flatten(), strict=True)}
        nothing = [None] * len(rows)
        values = [physical_column(members[name]).to_pylist() if name in members else nothing for name in _MEMBERS]
        present = column.is_valid().to_pylist()
        for target, is_present, *row in zip(found, present, *values, strict=True):
            if is_present:
                target[tracked_id] = FieldStatistics(*row)
    return found
