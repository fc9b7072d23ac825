"""The encoding of many entries of one leaf as a manifest, column by column.

A *leaf* is Rootline's manifest: a file with the entries of data files or deletes, in columns.

Owns: the conversion of a leaf's columns to manifest rows, and Avro encodings that are made for all rows at once.
Does not own: the form of a row (`manifest_encoder`).
Invariants: the bytes are the same as if the entries were encoded one by one. No entry object is made. Each value has
the bytes that `avro_encoding` makes.

Source: the Iceberg specification, "Manifests", and the Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DecimalType, DoubleType, FloatType

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition, ExportedField
from rootline.catalog.manifest_encoder import (
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
from rootline.catalog.manifest_list_encoder import EntryFacts, PartitionSummary, manifest_record, partition_summary
from rootline.catalog.manifest_schema import (
    LAYOUTS,
    bound_bytes,
    encode_container,
    manifest_metadata,
    partition_encoder,
)
from rootline.schemas.bytes.avro_encoding import NULL, PRESENT, encode_bytes, encode_long, encode_string
from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_schema import physical_column
from rootline.schemas.content_entry import ContentType
from rootline.schemas.field_ids import DELETE_FILE_PATH

__all__ = [
    "Mask",
    "Piece",
    "constant",
    "encode_leaf_chunk",
    "fixed",
    "joined",
    "longs",
    "looked_up",
    "short_decimals",
    "texts",
    "validity",
]

Mask = npt.NDArray[np.bool_]
Piece: TypeAlias = "pa.Array | pa.Scalar"
"""A column of bytes, or the same bytes in every row. Null means no bytes."""

_VARINT_BYTES_MAX: Final = 10
_LONG_BYTES: Final = 8


def constant(data: bytes) -> Piece:
    """The same bytes in every row."""
    found: Piece = pa.scalar(data, pa.binary())
    return found


def validity(column: pa.Array) -> Mask:
    """Flags of the rows that have a value."""
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def longs(column: pa.Array, *, prefix: bytes = b"", null: bytes = b"", where: Mask | None = None) -> pa.Array:
    """Varints of an integer column, each after `prefix`. `null` is written if there is no value or `where` is false."""
    valid = validity(column) if where is None else where
    values = _numbers(column).astype(np.int64, copy=False)
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    for place in range(1, _VARINT_BYTES_MAX):
        longer = zigzag >= np.uint64(1 << (7 * place))
        if not longer.any():
            break
        sizes += longer
    widest = int(sizes.max(initial=1))
    start = len(prefix)
    matrix = np.empty((len(values), max(start + widest, len(null))), np.uint8)
    matrix[:, :start] = np.frombuffer(prefix, np.uint8)
    for place in range(widest):
        low = (zigzag >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
        matrix[:, start + place] = low | ((sizes > place + 1).astype(np.uint8) << 7)
    return _rows_of(matrix, sizes + start, valid, null)


def fixed(values: npt.NDArray[Any], prefix: bytes, where: Mask) -> pa.Array:
    """The little-endian bytes of each number after `prefix`, or no bytes where `where` is false."""
    size = values.dtype.itemsize
    plain = values.view(np.uint8).reshape(len(values), size)
    matrix = np.empty((len(values), len(prefix) + size), np.uint8)
    matrix[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    matrix[:, len(prefix) :] = plain
    return _rows_of(matrix, np.full(len(values), matrix.shape[1], np.int64), where, b"")


def short_decimals(unscaled: npt.NDArray[np.int64], prefix: bytes, where: Mask) -> pa.Array:
    """Length and minimal big-endian bytes of each unscaled value after `prefix`, or no bytes where `where` is false."""
    magnitude = np.where(unscaled < 0, ~unscaled, unscaled)
    sizes = np.ones(len(unscaled), np.int64)
    for place in range(1, _LONG_BYTES):
        sizes += magnitude >= np.int64(1) << np.int64(8 * place - 1)
    start = len(prefix) + 1
    matrix = np.zeros((len(unscaled), start + _LONG_BYTES), np.uint8)
    matrix[:, : start - 1] = np.frombuffer(prefix, np.uint8)
    matrix[:, start - 1] = sizes * 2  # a length below 64 as a varint
    for place in range(_LONG_BYTES):
        matrix[:, start + place] = unscaled >> np.maximum(8 * (sizes - 1 - place), 0) & 0xFF
    return _rows_of(matrix, sizes + start, where, b"")


def texts(column: pa.Array, *, prefix: bytes = b"", null: bytes = b"", where: Mask | None = None) -> list[Piece]:
    """Two consecutive columns for a text or binary column: lengths, each after `prefix`, and bytes."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    plain = column.view(pa.binary()) if pa.types.is_string(column.type) else column
    if where is not None:
        plain = pc.if_else(pa.array(where), plain, pa.scalar(None, pa.binary()))
    return [longs(pc.binary_length(plain), prefix=prefix, null=null), plain]


def looked_up(column: pa.Array, encode: Callable[[Any], bytes | None]) -> pa.Array:
    """The result of `encode` for each value. It is called once for each distinct value, null included."""
    coded = column.dictionary_encode(null_encoding="encode")
    made = [encode(value) for value in coded.dictionary.to_pylist()]
    return pa.array(made, pa.binary()).take(coded.indices)


def joined(pieces: Sequence[Piece]) -> list[bytes]:
    """The encoded rows: the bytes of each row are its values in `pieces`, concatenated in order."""
    rows = pc.binary_join_element_wise(*pieces, constant(b""), null_handling="replace", null_replacement=b"")
    found: list[bytes] = rows.to_pylist()
    return found


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    plain = pc.fill_null(column, 0) if column.null_count else column
    found: npt.NDArray[Any] = plain.to_numpy(zero_copy_only=False)
    return found


def _rows_of(matrix: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64], valid: Mask, null: bytes) -> pa.Array:
    """A column with the first `sizes` bytes of each matrix row, or `null` for rows that are not valid."""
    if not valid.all():
        matrix[~valid, : len(null)] = np.frombuffer(null, np.uint8)
        sizes = np.where(valid, sizes, len(null))
    width = matrix.shape[1]
    if len(sizes) and int(sizes.min()) < width:
        data = matrix[np.arange(width) < sizes[:, np.newaxis]]
    else:
        data = np.ascontiguousarray(matrix).reshape(-1)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


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
    """The manifest of a leaf's entries at ascending `ordinals`. Arguments and errors are as in `encode_manifest`."""
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
    """Some entries of a leaf, as columns.

    `rows`: all columns except statistics. `referenced`: the absolute names of referenced files. `statistics`: by id.
    """

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
        """The column `name`, encoded as Avro's `["null", "long"]` or as an optional int."""
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
    """A member of a struct, null if the struct is null."""
    return statistics.flatten()[statistics.type.get_field_index(name)]


class _Map:
    """One of the five maps from column id to count or bound: the pairs of each row, and their number."""

    def __init__(self, rows: int) -> None:
        self._counts = np.zeros(rows, np.int64)
        self._pairs: list[Piece] = []

    def add(self, pieces: Sequence[Piece], present: Mask) -> None:
        """Add one pair of a map. `pieces` have no bytes in rows without the pair."""
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
    """The encoded maps: value, null and NaN counts, lower and upper bounds."""
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
                high = pc.coalesce(high, low)  # a partition value's upper bound may be omitted
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
