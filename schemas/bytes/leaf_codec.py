"""Leaf manifests: Parquet, one row for each entry.

Owns: bytes to `Leaf` and back, the digests that cover every byte of a leaf, the rows that a leaf may have at all. Does
not own: columns and types (`leaf_schema`), rows (`leaf`), the choice of entries for a leaf (`rootline.maintenance`).
Invariants: the leaf's name contains a digest of the footer, the footer a digest of all bytes before it, and both are
checked before Parquet is parsed. A leaf by Rootline has one spec, and only rows whose fields are those of their type
(`leaf_columns`).

Source: format page, "Leaf manifest" and "Integrity".
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rootline.schemas import field_ids
from rootline.schemas.bytes.leaf import TYPES_OF, Leaf, LeafContent
from rootline.schemas.bytes.leaf_columns import RULED_COLUMNS, column_violation
from rootline.schemas.bytes.leaf_cost import check_leaf_cost
from rootline.schemas.bytes.leaf_schema import (
    CONTENT_STATS,
    ROW_FIELDS,
    column_of_physical,
    id_of,
    is_statistics_field,
    leaf_schema,
)
from rootline.schemas.content_entry import ContentEntry, FieldStatistics, FileFormat, Status
from rootline.schemas.entry_rules import ManifestKind, shape_rules
from rootline.schemas.errors import Corrupt, Internal, Invalid
from rootline.schemas.identifiers import Location
from rootline.schemas.object_keys import leaf_location
from rootline.schemas.table_definition import TableDefinition, TrackedField

__all__ = ["MAX_ENTRIES", "EncodedLeaf", "Leaf", "LeafContent", "decode_leaf", "encode_columns", "encode_leaf"]

MAX_ENTRIES: Final = 65_536
"""The most entries of a leaf in this format, so that its manifest vector stays small enough to be inline."""
ROW_GROUP_ENTRIES: Final = 16_384
SMALL_BYTES: Final = 64 << 10
_SMALL_ENTRIES: Final = 1_024
PAGES_DIGEST_KEY: Final = b"rootline.pages-digest"

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8  # footer length, magic
_NAME: Final = re.compile(r"(?:\A|/)[0-9a-f-]{36}-(data|delete)-([0-9a-f]{16})\.parquet\Z")
_ALL_DIFFERENT: Final = frozenset({"location", "lower_bound", "upper_bound", "referenced_file"})


@dataclass(frozen=True, slots=True)
class EncodedLeaf:
    """A leaf to store at `location` (relative to the table's prefix). The name contains 8 bytes of `footer_digest`."""

    location: Location
    body: bytes
    footer_digest: bytes


def encode_leaf(
    entries: Sequence[ContentEntry], definition: TableDefinition, *, leaf_uuid: UUID, content: LeafContent
) -> EncodedLeaf:
    """The leaf of `entries`, in order.

    Args:
        entries: 1 to 65,536 of them, of one partition spec.
        definition: has the type of every column and expression with statistics.
        leaf_uuid: a new UUID, for the name of the leaf.
        content: data files, or deletes.

    Raises:
        Invalid: `leaf-invalid`, a leaf cannot contain these entries; `statistics-invalid`, a bound is of another type.
    """
    check_entries(entries, content)
    tracked = tracked_in(entries, definition)
    return encoded_rows(entries, table_of(entries, tracked), leaf_uuid, content)


def encoded_rows(
    entries: Sequence[ContentEntry], table: pa.Table, leaf_uuid: UUID, content: LeafContent
) -> EncodedLeaf:
    """The leaf of `entries`, with `table` as their columns. Raises as `encode_leaf`."""
    violations = column_violation(table)
    if violations is not None:
        raise Invalid("leaf-invalid", _named(entries, violations))
    return _encoded(table, leaf_uuid, content)


def encode_columns(table: pa.Table, *, leaf_uuid: UUID, content: LeafContent) -> EncodedLeaf:
    """The leaf of a table of `leaf_schema`, with its rows in order. Rows are checked by columns, not one by one.

    Raises:
        Invalid: `leaf-invalid`, a leaf cannot contain these rows.
    """
    if not 0 < table.num_rows <= MAX_ENTRIES:
        raise Invalid("leaf-invalid", f"a leaf has 1 to {MAX_ENTRIES} entries, not {table.num_rows}")
    types = pc.unique(table.column("content_type")).to_pylist()
    violations = column_violation(table)
    if violations is None and any(kind not in TYPES_OF[content] for kind in types):
        violations = f"a {content} leaf cannot contain content types {sorted(types)}"
    if violations is not None:
        raise Invalid("leaf-invalid", f"an entry cannot be in a leaf: {violations}")
    return _encoded(table, leaf_uuid, content)


def _encoded(table: pa.Table, leaf_uuid: UUID, content: LeafContent) -> EncodedLeaf:
    sink = io.BytesIO()
    writer = pq.ParquetWriter(
        sink,
        table.schema,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
        **_storage_of(table.schema),
    )
    writer.write_table(table, row_group_size=ROW_GROUP_ENTRIES)
    pages_digest, pages_end = hashlib.sha256(sink.getbuffer()).hexdigest(), sink.tell()
    writer.add_key_value_metadata(
        {
            "format-version": "4",
            "content": content.value,
            "rootline.profile": field_ids.PROFILE,
            PAGES_DIGEST_KEY.decode(): pages_digest,
        }
    )
    writer.close()
    body = sink.getvalue()
    footer_start = len(body) - _TAIL_BYTES - int.from_bytes(body[-8:-4], "little")
    if footer_start != pages_end:
        raise Internal("invariant-broken", f"leaf {leaf_uuid}: the writer put bytes between the pages and the footer")
    digest = hashlib.sha256(body[footer_start:-_TAIL_BYTES]).digest()
    return EncodedLeaf(leaf_location(leaf_uuid, content.value, digest.hex()), body, digest)


def leaf_of_entries(
    entries: Sequence[ContentEntry],
    definition: TableDefinition,
    *,
    location: str,
    content: LeafContent,
    size_in_bytes: int,
) -> Leaf:
    """The leaf of entries that were read from another format. The rules of entries are not checked, because the other
    format has its own.

    Raises:
        Invalid: `leaf-invalid`, `statistics-invalid`, a value is not of its column's type.
    """
    table = table_of(entries, tracked_in(entries, definition))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROW_GROUP_ENTRIES, compression="lz4", write_statistics=False)
    held = sink.getvalue()
    return Leaf(location, content, held, pq.read_metadata(pa.BufferReader(held)), size_in_bytes)


def _storage_of(schema: pa.Schema) -> dict[str, Any]:
    """Arrow's options for the encoding and compression of each Parquet column.

    Numbers are small once encoded. A zstd frame of them costs more time than it saves bytes, and so does a dictionary
    of text that all differs.
    """
    encodings: dict[str, str] = {}
    compression: dict[str, str] = {}
    repeating: list[str] = []
    for path, field in _primitive(schema):
        kind = field.type
        compression[path] = "lz4"
        if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
            encodings[path] = "DELTA_BINARY_PACKED"
        elif pa.types.is_floating(kind):
            encodings[path] = "BYTE_STREAM_SPLIT"
        elif not pa.types.is_boolean(kind):
            compression[path] = "zstd"
            if field.name not in _ALL_DIFFERENT:
                repeating.append(path)
    return {"compression": compression, "use_dictionary": repeating, "column_encoding": encodings}


def _primitive(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[str, pa.Field]]:
    """The Parquet path and the field of each column that has values."""
    for field in fields:
        path = f"{above}{field.name}"
        if pa.types.is_struct(field.type):
            yield from _primitive(field.type, f"{path}.")
        elif pa.types.is_list(field.type):
            yield f"{path}.list.element", field.type.value_field
        else:
            yield path, field


def check_entries(entries: Sequence[ContentEntry], content: LeafContent) -> None:
    if not 0 < len(entries) <= MAX_ENTRIES:
        raise Invalid("leaf-invalid", f"a leaf has 1 to {MAX_ENTRIES} entries, not {len(entries)}")
    if len({entry.partition_spec_id for entry in entries}) > 1:
        raise Invalid("leaf-invalid", "the entries of a leaf must have one partition spec")
    for entry in entries:
        if entry.content_type not in TYPES_OF[content]:
            raise Invalid(
                "leaf-invalid", f"{entry.location}: a {content} leaf cannot contain {entry.content_type.name}"
            )
        if not entry.location:
            raise Invalid("leaf-invalid", "location is empty")


def _named(entries: Sequence[ContentEntry], violations: str) -> str:
    """The message about a broken rule, with the location of the entry that breaks it."""
    for entry in entries:
        for sentence in shape_rules(entry, ManifestKind.LEAF):
            return f"{entry.location} cannot be in a leaf: {sentence}"
    return f"an entry cannot be in a leaf: {violations}"


def tracked_in(entries: Sequence[ContentEntry], definition: TableDefinition) -> list[TrackedField]:
    """The columns and expressions for which some entry has statistics. Raises as `encode_leaf`."""
    used = sorted(set().union(*(entry.content_stats for entry in entries)))
    unknown = [tracked_id for tracked_id in used if tracked_id not in definition.tracked_by_id]
    if unknown:
        raise Invalid("statistics-invalid", f"statistics of {unknown[:10]}, which the table definition does not know")
    return [definition.tracked_by_id[tracked_id] for tracked_id in used]


def table_of(entries: Sequence[ContentEntry], tracked: Sequence[TrackedField]) -> pa.Table:
    """The entries as columns of `leaf_schema`. Raises as `encode_leaf`."""
    schema = leaf_schema(tracked)
    arrays = [_row_column(entries, field) for field in ROW_FIELDS]
    if tracked:
        kind = schema.field(CONTENT_STATS).type
        children = [_statistics_column(entries, field, kind.field(index)) for index, field in enumerate(tracked)]
        arrays.append(pa.StructArray.from_arrays(children, fields=list(kind)))
    return pa.Table.from_arrays(arrays, schema=schema)


def _row_column(entries: Sequence[ContentEntry], field: pa.Field) -> pa.Array:
    values: list[Any] = [getattr(entry, field.name) for entry in entries]
    try:
        if not pa.types.is_struct(field.type):
            return pa.array(values, field.type)
        children = [
            pa.array([None if value is None else getattr(value, child.name) for value in values], child.type)
            for child in field.type
        ]
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise Invalid("leaf-invalid", f"{field.name} of an entry cannot be stored: {error!s:.200}") from error
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=absent)


def _statistics_column(entries: Sequence[ContentEntry], tracked: TrackedField, field: pa.Field) -> pa.Array:
    found = [entry.content_stats.get(tracked.tracked_id) for entry in entries]
    unknown = FieldStatistics()
    members = attrgetter(*(child.name for child in field.type))
    values = zip(*(members(unknown if item is None else item) for item in found), strict=True)
    try:
        children = [column_of_physical(list(each), child.type) for each, child in zip(values, field.type, strict=True)]
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise Invalid("statistics-invalid", f"{tracked.name} (id {tracked.tracked_id}): {error!s:.200}") from error
    absent = pa.array([item is None for item in found], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=absent)


def decode_leaf(body: bytes, *, location: str, is_new: bool = False) -> Leaf:
    """The leaf in `body`, with every byte proven by the name in `location`.

    `location`: also the name of the leaf in errors. `is_new`: no root names it yet, so its memory is limited
    (`leaf_cost`).

    Raises:
        Corrupt: `leaf-corrupt`, the bytes differ from those that were written, or are not a leaf; `profile-unknown`.
    """
    content, named_digest = _name_of(location)
    footer_start = _prove_footer(body, named_digest, location)
    try:
        file = pq.ParquetFile(pa.BufferReader(body))
        metadata = dict(file.metadata.metadata or {})
        if metadata.get(b"rootline.profile", b"") != field_ids.PROFILE.encode():
            profile = metadata.get(b"rootline.profile", b"").decode("utf-8", "replace")
            raise Corrupt(
                "profile-unknown",
                f"{location}: format profile {profile[:80]!r} is unknown, this version reads {field_ids.PROFILE!r}",
            )
        if metadata.get(PAGES_DIGEST_KEY) != hashlib.sha256(memoryview(body)[:footer_start]).hexdigest().encode():
            raise _corrupt(location, "the bytes before the footer do not match the digest in the footer")
        if metadata.get(b"format-version") != b"4" or metadata.get(b"content") != content.value.encode():
            raise _corrupt(location, "format version or content in the footer do not agree with the name")
        if not 0 < file.metadata.num_rows <= MAX_ENTRIES:
            raise _corrupt(location, f"it has {file.metadata.num_rows} entries, 1 to {MAX_ENTRIES} are allowed")
        _prove_schema(file.schema_arrow, location)
        if is_new:
            check_leaf_cost(body, body[footer_start:-_TAIL_BYTES], file.schema_arrow, file.metadata.num_rows)
        leaf = Leaf(location, content, body, file.metadata, len(body))
        names = list(RULED_COLUMNS)
        ruled = leaf.columns(names) if leaf.is_small else file.read(columns=names, use_threads=False)
        _prove_rows(ruled, content, location)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise _corrupt(location, f"not a readable leaf: {error!s:.200}") from error
    return leaf


def is_quickly_decoded(body: bytes) -> bool:
    """Whether a new leaf is small enough to be decoded and checked on the event loop. Few bytes may contain many
    entries, so bytes and entries are both limited.
    """
    if len(body) > SMALL_BYTES:
        return False
    try:
        entries: int = pq.read_metadata(pa.BufferReader(body)).num_rows
    except (pa.ArrowException, OSError):
        return True  # not a leaf, which is detected quickly
    return entries <= _SMALL_ENTRIES


def _name_of(location: str) -> tuple[LeafContent, str]:
    named = _NAME.search(location)
    if named is None:
        raise _corrupt(location, "its name is not <uuid>-<data|delete>-<digest of the footer>.parquet")
    return LeafContent(named[1]), named[2]


def _prove_footer(body: bytes, named_digest: str, location: str) -> int:
    if not (body.startswith(_MAGIC) and body.endswith(_MAGIC)) or len(body) < len(_MAGIC) + _TAIL_BYTES:
        raise _corrupt(location, f"not a Parquet file, or truncated: {len(body)} bytes, a magic number is missing")
    footer_start = len(body) - _TAIL_BYTES - int.from_bytes(body[-8:-4], "little")
    if footer_start < len(_MAGIC):
        raise _corrupt(location, "the footer's length is more than the file's")
    found = hashlib.sha256(memoryview(body)[footer_start:-_TAIL_BYTES]).hexdigest()[: len(named_digest)]
    if found != named_digest:
        raise _corrupt(location, f"the footer has digest {found}, its name has {named_digest}")
    return footer_start


def _prove_schema(schema: pa.Schema, location: str) -> None:
    if len(set(schema.names)) != len(schema.names):
        raise _corrupt(location, "a column occurs twice")
    for expected in ROW_FIELDS:
        index = schema.get_field_index(expected.name)
        found = None if index < 0 else schema.field(index)
        if found is None or (found.type, found.nullable, id_of(found)) != _shape_of(expected):
            raise _corrupt(location, f"column {expected.name} is absent, or of another type or field id")
    index = schema.get_field_index(CONTENT_STATS)
    if index >= 0 and not pa.types.is_struct(schema.field(index).type):
        raise _corrupt(location, f"column {CONTENT_STATS} is not a struct")
    for field in schema.field(index).type if index >= 0 else ():
        if not is_statistics_field(field):
            raise _corrupt(location, f"statistics {field.name[:80]!r} are not of the shape and ids of this format")


def _shape_of(field: pa.Field) -> tuple[pa.DataType, bool, int | None]:
    return field.type, field.nullable, id_of(field)


def _prove_rows(table: pa.Table, content: LeafContent, location: str) -> None:
    status = pc.struct_field(table.column("version_info"), "status")
    allowed = (
        ("content_type", table.column("content_type"), [int(item) for item in TYPES_OF[content]]),
        ("status", status, [int(item) for item in Status]),
        ("file_format", table.column("file_format"), [item.value for item in FileFormat]),
    )
    for name, column, values in allowed:
        strange = pc.unique(column).to_pylist()
        if any(item not in values for item in strange):
            raise _corrupt(location, f"{name} {str(strange)[:80]} in a {content} leaf")
    if len(pc.unique(table.column("partition_spec_id"))) != 1:
        raise _corrupt(location, "its entries are not all of one partition spec")
    violations = column_violation(table)
    if violations is not None:
        raise _corrupt(location, violations)


def _corrupt(location: str, reason: str) -> Corrupt:
    return Corrupt("leaf-corrupt", f"{location}: {reason}")
