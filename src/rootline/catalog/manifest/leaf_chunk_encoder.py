"""Many entries of one leaf as a manifest, column by column.

Owns: columns of a leaf → the rows of a manifest. Does not own: what a row looks like (`manifest_encoder`, whose bytes
these are), how a column becomes bytes (`encoded_columns`).
Invariants: the bytes are the same as if the entries were encoded one by one; no entry object is made.

Source: the Iceberg specification, "Manifests".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DecimalType, DoubleType, FloatType

from rootline.catalog.manifest.avro_container import encode_container
from rootline.catalog.manifest.encoded_columns import (
    Mask,
    Piece,
    constant,
    fixed,
    joined,
    longs,
    looked_up,
    short_decimals,
    texts,
    validity,
)
from rootline.catalog.manifest.exported_definition import ExportedDefinition, ExportedField
from rootline.catalog.manifest.format_version import FormatVersion
from rootline.catalog.manifest.manifest_encoder import (
    NO_COLUMN_SIZES,
    Absolute,
    Column,
    EncodedManifest,
    columns_of,
    optional_long,
    optional_longs,
    unexported_vector,
    unknown_partition,
)
from rootline.catalog.manifest.manifest_record import EntryFacts, PartitionSummary, manifest_record, partition_summary
from rootline.catalog.manifest.manifest_schema import manifest_metadata
from rootline.catalog.manifest.manifest_values import LAYOUTS, bound_bytes, partition_encoder
from rootline.schemas.bytes.avro_encoding import NULL, PRESENT, encode_bytes, encode_long, encode_string
from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_schema import physical_column
from rootline.schemas.content_entry import ContentType
from rootline.schemas.field_ids import DELETE_FILE_PATH

_LONG_DIGITS: Final = 18
_PATH_KEY: Final = encode_long(DELETE_FILE_PATH)


def encode_leaf_chunk(
    leaf: Leaf,
    ordinals: Sequence[int],
    exported: ExportedDefinition,
    spec_id: int,
    content: LeafContent,
    *,
    absolute: Absolute,
    sync: bytes,
) -> EncodedManifest:
    """The manifest of a leaf's entries at `ordinals`, which ascend; arguments and `Raises` as `encode_manifest`."""
    chunk = _Chunk.of(leaf, ordinals, absolute)
    partitions, summaries = _partitions(chunk, exported.fields(spec_id))
    is_v3 = exported.format_version is FormatVersion.V3
    if not is_v3:
        chunk.refuse_vectors()
    members = frozenset(field.tracked_id for field in exported.fields(spec_id))
    pieces = [
        longs(chunk.row("status")),
        *(chunk.optional(name) for name in ("snapshot_id", "sequence_number", "file_sequence_number")),
        longs(chunk.row("content_type")),
        pa.array([encode_string(absolute(location)) for location in chunk.locations], pa.binary()),
        looked_up(chunk.row("file_format"), lambda name: encode_string(name.upper())),
        *partitions,
        longs(chunk.row("record_count")),
        longs(chunk.row("file_size_in_bytes"), null=encode_long(0)),
        constant(NO_COLUMN_SIZES),
        *_statistics(chunk, columns_of(exported), members),
        looked_up(chunk.row("key_metadata"), lambda data: NULL if data is None else PRESENT + encode_bytes(data)),
        chunk.optional_lists("split_offsets"),
        chunk.optional_lists("equality_ids"),
        looked_up(chunk.row("sort_order_id"), lambda order_id: optional_long(exported.sort_order_id(order_id))),
        *([chunk.optional("first_row_id")] if is_v3 else []),
        *texts(chunk.referenced, prefix=PRESENT, null=NULL),
        *([chunk.optional("offset"), chunk.optional("size_in_bytes")] if is_v3 else []),
    ]
    rows = joined(pieces) if ordinals else []
    body = encode_container(manifest_metadata(exported, spec_id, content), rows, sync)
    of_spec = exported.exported_spec_id(spec_id)
    record = manifest_record(chunk.facts(), summaries, length=len(body), spec_id=of_spec, content=content)
    return EncodedManifest(body, record)


@dataclass(frozen=True)
class _Chunk:
    """The columns of some entries: all but statistics, the absolute names that deletes reference, statistics by id."""

    rows: pa.Table
    referenced: pa.Array
    statistics: Mapping[int, pa.StructArray]

    @staticmethod
    def of(leaf: Leaf, ordinals: Sequence[int], absolute: Absolute) -> _Chunk:
        rows = leaf.rows.take(pa.array(ordinals, pa.int64())).combine_chunks()
        names = rows.column("referenced_file").to_pylist()
        made = [None if name is None else absolute(name) for name in names]
        return _Chunk(rows, pa.array(made, pa.string()), leaf.statistics_at(ordinals))

    def row(self, name: str) -> pa.Array:
        column = self.rows.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    @property
    def locations(self) -> list[str]:
        found: list[str] = self.row("location").to_pylist()
        return found

    def optional(self, name: str) -> pa.Array:
        """`["null", "long"]`, or an int."""
        return longs(self.row(name), prefix=PRESENT, null=NULL)

    def optional_lists(self, name: str) -> Piece:
        column = self.row(name)
        if column.null_count == len(column):
            return constant(NULL)
        return pa.array([optional_longs(values) for values in column.to_pylist()], pa.binary())

    def refuse_vectors(self) -> None:
        vectors = self.row("deletion_vector").to_numpy(zero_copy_only=False)
        if vectors.any():
            raise unexported_vector(self.locations[int(vectors.argmax())])

    def facts(self) -> Iterator[EntryFacts]:
        names = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "record_count", "first_row_id")
        return map(EntryFacts._make, zip(*(self.row(name).to_pylist() for name in names), strict=True))


def _partitions(chunk: _Chunk, fields: Sequence[ExportedField]) -> tuple[list[Piece], tuple[PartitionSummary, ...]]:
    pieces: list[Piece] = []
    summaries: list[PartitionSummary] = []
    for field in fields:
        known = chunk.statistics.get(field.tracked_id)
        present = np.zeros(chunk.rows.num_rows, np.bool_) if known is None else validity(known)
        if known is None or not present.all():
            if not len(present):
                summaries.append(partition_summary(field.result_type, []))
                continue
            raise unknown_partition(chunk.locations[int(present.argmin())], field)
        values = physical_column(_member(known, "lower_bound"))
        pieces.append(looked_up(values, partition_encoder(field.result_type)))
        summaries.append(partition_summary(field.result_type, values.unique().to_pylist()))
    return pieces, tuple(summaries)


def _member(statistics: pa.StructArray, name: str) -> pa.Array:
    """A member of a struct, null where the struct is null."""
    return statistics.flatten()[statistics.type.get_field_index(name)]


class _Map:
    """One of the five maps from column id to count or bound: the pairs of each row, and how many it has."""

    def __init__(self, rows: int) -> None:
        self._counts = np.zeros(rows, np.int64)
        self._pairs: list[Piece] = []

    def add(self, pieces: Sequence[Piece], present: Mask) -> None:
        """One pair of a map; `pieces` hold no byte in rows that do not have the pair."""
        if present.any():
            self._counts += present
            self._pairs += pieces

    def pieces(self) -> list[Piece]:
        if not self._pairs:
            return [constant(NULL)]
        counts = pa.array(self._counts)
        starts = looked_up(counts, lambda count: PRESENT + encode_long(count) if count else NULL)
        return [starts, *self._pairs, looked_up(counts, lambda count: b"\x00" if count else b"")]


def _statistics(chunk: _Chunk, columns: Sequence[Column], members: frozenset[int]) -> list[Piece]:
    """Value, null and NaN counts, lower and upper bounds."""
    count = chunk.rows.num_rows
    with_columns = chunk.row("content_type").to_numpy() != ContentType.POSITION_DELETE
    maps = [_Map(count) for _ in range(5)]
    *counts, lower, upper = maps
    for column in columns:
        known = chunk.statistics.get(column.tracked_id)
        if known is None:
            continue
        for one, name in zip(counts, ("value_count", "null_value_count", "nan_value_count"), strict=True):
            values = _member(known, name)
            present = validity(values) & with_columns
            one.add([longs(values, prefix=column.key, where=present)], present)
        if column.has_bounds:
            low, high = (physical_column(_member(known, name)) for name in ("lower_bound", "upper_bound"))
            if column.tracked_id in members:
                high = pc.coalesce(high, low)  # a partition value's upper bound may be left out
            _add_bounds(lower, column, low, with_columns, is_upper=False)
            _add_bounds(upper, column, high, with_columns, is_upper=True)
    if chunk.referenced.null_count < count:
        present = validity(chunk.referenced) & ~with_columns
        for one in (lower, upper):
            one.add(texts(chunk.referenced, prefix=_PATH_KEY, where=present), present)
    return [piece for one in maps for piece in one.pieces()]


def _add_bounds(target: _Map, column: Column, values: pa.Array, where: Mask, *, is_upper: bool) -> None:
    present = validity(values) & where
    layout = LAYOUTS.get(type(column.kind))
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        target.add(texts(values, prefix=column.key, where=present), present)
    elif layout is not None:
        plain: Any = values.fill_null(0).to_numpy(zero_copy_only=False).astype(layout)
        if isinstance(column.kind, FloatType | DoubleType):
            present &= ~np.isnan(plain)
            plain = np.where(plain == 0, plain.dtype.type(0.0 if is_upper else -0.0), plain)
        target.add([fixed(plain, column.key + encode_long(plain.dtype.itemsize), present)], present)
    elif isinstance(column.kind, DecimalType) and column.kind.precision <= _LONG_DIGITS:
        words = np.frombuffer(values.buffers()[1], np.int64)[::2]  # the low halves of 128 bits
        words = words[values.offset : values.offset + len(values)]
        target.add([short_decimals(words, column.key, present)], present)
    else:
        encode = bound_bytes(column.kind).upper if is_upper else bound_bytes(column.kind).lower
        shown = values if present.all() else pa.array(values.to_pylist(), values.type, mask=~present)
        target.add(
            [looked_up(shown, lambda value: _pair(column, encode(value)) if value is not None else b"")], present
        )


def _pair(column: Column, bound: bytes | None) -> bytes:
    return b"" if bound is None else column.key + encode_bytes(bound)


__all__ = ["encode_leaf_chunk"]
