"""Chooses the rows to move from a root into leaves, in a worker's flush and in the coordinator's own.

Owns: the choice of rows, the leaf of each vector, the commit rate of a table, the limits at which a coordinator
flushes a table itself, encoding a large leaf in steps. Does not own: the division of entries into leaves
(`rootline.maintenance.plan`), thresholds (`rootline.maintenance.limits`), the reads of a plan (`metadata_jobs`), the
application of leaves to a root (`rootline.tree.intents.flush`).
Words: a *vector* is the deletion vector of a data file. A delete leaf has an *affinity* to the data leaf that lists all
data files of its vectors. A scan that prunes the data leaf need not read it.
Invariants: pure. A leaf has one spec, and data or deletes. Every entry is EXISTING with the explicit snapshot id,
sequence numbers and first row id of its root row. Rows that changed after the plan was made are dead in the new leaf. A
vector moves to a delete leaf with an affinity to the data leaf of its data file, or, if there are many such data
leaves, to a delete leaf without one. A vector stays in the root as long as its data file does. Data leaves are first.
In the coordinator's own flush the same head yields the same leaves under the same names, byte by byte those of
`encode_leaf`. A root that cannot become shorter is not flushed. A thread may yield between two steps, and no call into
Arrow blocks the interpreter for more than a millisecond or two. The commit rate uses only the roots' own timestamps,
and is 0 for the first head.

Source: architecture page, "The way of a flush"; protocol page, section 5; decision 0025.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap

from rootline.maintenance.limits import FlushLimits
from rootline.maintenance.plan import (
    InPlan,
    InRoot,
    IntentStamp,
    PlannedLeaf,
    WrittenPlan,
    manifest_of,
    planned_leaves,
    write_leaves,
)
from rootline.schemas.bytes.leaf_codec import (
    MAX_ENTRIES,
    EncodedLeaf,
    Leaf,
    LeafContent,
    check_entries,
    decode_leaf,
    encoded_rows,
    table_of,
    tracked_in,
)
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, ROW_FIELDS, leaf_schema
from rootline.schemas.bytes.root.root_codec import Root, Row
from rootline.schemas.bytes.root.statistics_codec import LazyStats
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import AddedManifest, IntentKind
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.tree.state.table_state import TableState

_SPAN_MS: Final = 1_000
"""Minimum time between two compared heads. If they are closer, the earlier one is compared with a later head."""


@dataclass(frozen=True, slots=True)
class _Seen:
    version: Version
    timestamp_ms: int
    per_s: float


@dataclass(slots=True)
class CommitPace:
    """Measures the commit rates of tables, each from one noted head to the next."""

    _seen: dict[TableName, _Seen] = field(default_factory=dict)

    def see(self, header: RootHeader) -> float:
        """Note a head. Returns the table's commits per second since the last noted head, 0.0 for the first one."""
        now = header.snapshot.timestamp_ms
        before = self._seen.get(header.table)
        if before is None or header.version < before.version:
            self._seen[header.table] = _Seen(header.version, now, 0.0)
            return 0.0
        elapsed_ms = now - before.timestamp_ms
        if elapsed_ms < _SPAN_MS:
            return before.per_s
        per_s = (header.version - before.version) * 1_000 / elapsed_ms
        self._seen[header.table] = _Seen(header.version, now, per_s)
        return per_s


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Leaves to write, data leaves first. Empty when nothing is due, or no due row can move."""

    made_from_version: Version
    leaves: tuple[PlannedLeaf, ...] = ()

    @property
    def entries(self) -> int:
        """The number of root rows that move."""
        return sum(len(leaf.entries) for leaf in self.leaves)

    @property
    def leaf_count(self) -> int:
        """The number of new leaves."""
        return len(self.leaves)

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Encode the new leaves, and make the intent that names them."""
        written = write_leaves(self.leaves, definition, stamp.object_uuid)
        intent = stamp.intent(IntentKind.FLUSH, self.made_from_version, add_manifests=written.manifests)
        return WrittenPlan(written.objects, intent)


@dataclass(frozen=True, slots=True)
class RootLoad:
    """The rows of a root that could move to leaves, and their bytes: encoded, before compression.

    * `vector_bytes`: of vectors whose data files are rows of the root.
    * `delete_bytes`: of equality deletes, and of vectors whose data files are in leaves.
    """

    data_files: tuple[ContentEntry, ...]
    vectors_of_root: tuple[ContentEntry, ...]  # their data file is a row of the root
    vectors_of_leaves: tuple[ContentEntry, ...]
    equality_deletes: tuple[ContentEntry, ...]
    data_leaves: tuple[str, ...]
    data_bytes: int
    vector_bytes: int
    delete_bytes: int

    @staticmethod
    def of(root: Root) -> RootLoad:
        """The live rows of `root`, by content type."""
        found: dict[ContentType, list[Row]] = defaultdict(list)
        for row in root.rows:
            if row.entry.version_info.status is not Status.DELETED:
                found[row.entry.content_type].append(row)
        data, equality = found[ContentType.DATA], found[ContentType.EQUALITY_DELETE]
        here = {row.entry.location for row in data}
        of_root: list[Row] = []
        of_leaves: list[Row] = []
        for row in found[ContentType.POSITION_DELETE]:
            (of_root if row.entry.referenced_file in here else of_leaves).append(row)
        return RootLoad(
            data_files=_entries(data),
            vectors_of_root=_entries(of_root),
            vectors_of_leaves=_entries(of_leaves),
            equality_deletes=_entries(equality),
            data_leaves=tuple(row.entry.location for row in found[ContentType.DATA_MANIFEST]),
            data_bytes=_bytes(data),
            vector_bytes=_bytes(of_root),
            delete_bytes=_bytes(of_leaves) + _bytes(equality),
        )

    def data_is_due(self, limits: FlushLimits) -> bool:
        """Whether the data files in the root, with their vectors, must move to leaves."""
        return bool(self.data_files) and (
            len(self.data_files) >= limits.data_files
            or len(self.vectors_of_root) >= limits.vectors
            or self.data_bytes >= limits.bytes_max
            or self.vector_bytes >= limits.vector_bytes_max
        )

    def deletes_are_due(self, limits: FlushLimits) -> bool:
        """Whether equality deletes, and vectors whose data files are in leaves, must move to leaves."""
        count = len(self.vectors_of_leaves) + len(self.equality_deletes)
        is_much = count >= limits.vectors or self.delete_bytes >= limits.vector_bytes_max
        return count > 0 and (is_much or self.data_is_due(limits))

    def leaves_to_read(self, limits: FlushLimits) -> tuple[str, ...]:
        """The data leaves in which `plan_flush` must find the data files of vectors. Empty when no vectors move."""
        return self.data_leaves if self.vectors_of_leaves and self.deletes_are_due(limits) else ()


def plan_flush(
    root: Root,
    definition: TableDefinition,
    limits: FlushLimits,
    *,
    load: RootLoad | None = None,
    leaves: Mapping[str, Leaf] | None = None,
    dead: Mapping[str, BitMap] | None = None,
) -> FlushPlan:
    """Plan a flush of `root`.

    * `leaves`: the leaves that `RootLoad.leaves_to_read` names. Vectors whose data file is in another leaf do not move.
    * `dead`: leaf → positions of its dead entries. `None`: read from the root, if it contains all manifest vectors.

    Raises:
        Corrupt: `vector-corrupt`, a manifest vector in the root.
    """
    load = RootLoad.of(root) if load is None else load
    planned: list[PlannedLeaf] = []
    affiliated: dict[InPlan | InRoot, list[ContentEntry]] = defaultdict(list)
    if load.data_is_due(limits):
        planned = _data_leaves(load.data_files, definition, limits)
        for vector, index in _vectors_of_plan(planned, load.vectors_of_root):
            affiliated[InPlan(index)].append(vector)
    loose: list[ContentEntry] = []
    if load.deletes_are_due(limits):
        loose.extend(load.equality_deletes)
        of_leaf: dict[str, list[ContentEntry]] = defaultdict(list)
        for vector, location in _vectors_of_leaves(root, load.vectors_of_leaves, leaves or {}, dead):
            of_leaf[location].append(vector)
        most_first = sorted(of_leaf, key=lambda location: -len(of_leaf[location]))
        affiliated |= {InRoot(location): of_leaf[location] for location in most_first[: limits.delete_leaves]}
        loose += [vector for location in most_first[limits.delete_leaves :] for vector in of_leaf[location]]
    for affinity, vectors in affiliated.items():
        planned.extend(planned_leaves(LeafContent.DELETE, vectors, definition, MAX_ENTRIES, affinity))
    planned.extend(planned_leaves(LeafContent.DELETE, loose, definition, limits.leaf_entries, None))
    return FlushPlan(root.header.version, tuple(planned))


def _entries(rows: Iterable[Row]) -> tuple[ContentEntry, ...]:
    return tuple(row.entry for row in rows)


def _bytes(rows: Iterable[Row]) -> int:
    return sum(len(row.tail) for row in rows)


def _data_leaves(
    entries: Iterable[ContentEntry], definition: TableDefinition, limits: FlushLimits
) -> list[PlannedLeaf]:
    return planned_leaves(LeafContent.DATA, entries, definition, limits.leaf_entries, None)


def _vectors_of_plan(planned: list[PlannedLeaf], vectors: Iterable[ContentEntry]) -> Iterable[tuple[ContentEntry, int]]:
    """(vector, index of the planned leaf that lists its data file)."""
    index_of = {entry.location: index for index, leaf in enumerate(planned) for entry in leaf.entries}
    for vector in vectors:
        index = index_of.get(vector.referenced_file or "")
        # a leaf has one spec, so a vector whose spec differs from its data file's cannot move
        if index is not None and planned[index].spec_id == vector.partition_spec_id:
            yield vector, index


def _vectors_of_leaves(
    root: Root, vectors: Iterable[ContentEntry], leaves: Mapping[str, Leaf], dead: Mapping[str, BitMap] | None
) -> Iterable[tuple[ContentEntry, str]]:
    """(vector, location of the leaf in which its data file is live)."""
    rows = {row.entry.location: row.entry for row in root.rows if row.entry.content_type is ContentType.DATA_MANIFEST}
    dead = manifest_vectors(root) if dead is None else dead
    for vector in vectors:
        if vector.referenced_file is None:
            continue
        place = EntryPlace(ContentType.DATA, vector.referenced_file)
        for location, leaf in leaves.items():
            row, gone = rows.get(location), dead.get(location, _NONE_DEAD)
            if row is None or row.partition_spec_id != vector.partition_spec_id:
                continue
            ordinal = leaf.ordinal_of(place)
            if ordinal is not None and ordinal not in gone:
                yield vector, location
                break


_NONE_DEAD = BitMap()


STEP_ENTRIES: Final = 1_024


def encode_in_steps(
    entries: Sequence[ContentEntry], definition: TableDefinition, *, leaf_uuid: UUID, content: LeafContent
) -> Generator[None, None, EncodedLeaf]:
    """Encode the same leaf as `encode_leaf`, byte by byte, yielding after every thousand entries.

    Statistics that are still bytes are decoded for the leaf only. Kept for all entries of a large leaf, they would take
    hundreds of megabytes, and half a second to free. Raises the errors of `encode_leaf`.
    """
    check_entries(entries, content)
    tables: list[pa.Table] = []
    for start in range(0, len(entries), STEP_ENTRIES):
        some = [_read_once(entry) for entry in entries[start : start + STEP_ENTRIES]]
        tables.append(table_of(some, tracked_in(some, definition)))
        del some
        yield
    table = _joined(tables, definition)
    yield
    return encoded_rows(entries, table, leaf_uuid, content)


def _read_once(entry: ContentEntry) -> ContentEntry:
    stats = entry.content_stats
    return replace(entry, content_stats=stats.read_once()) if isinstance(stats, LazyStats) else entry


def _joined(tables: Sequence[pa.Table], definition: TableDefinition) -> pa.Table:
    """One table of all rows. A column of statistics is null in the rows of tables that lack it."""
    statistics = [_statistics_in(table) for table in tables]
    used = sorted({int(name[1:]) for found in statistics for name in found})
    tracked = [definition.tracked_by_id[tracked_id] for tracked_id in used]
    schema = leaf_schema(tracked)
    arrays = [pa.concat_arrays([_whole(table, field.name) for table in tables]) for field in ROW_FIELDS]
    if tracked:
        kind = schema.field(CONTENT_STATS).type
        children = [
            pa.concat_arrays(
                [
                    found[field.name] if field.name in found else pa.nulls(table.num_rows, field.type)
                    for table, found in zip(tables, statistics, strict=True)
                ]
            )
            for field in kind
        ]
        arrays.append(pa.StructArray.from_arrays(children, fields=list(kind)))
    return pa.Table.from_arrays(arrays, schema=schema)


def _statistics_in(table: pa.Table) -> dict[str, pa.Array]:
    if CONTENT_STATS not in table.column_names:
        return {}
    column = _whole(table, CONTENT_STATS)
    return dict(zip((field.name for field in column.type), column.flatten(), strict=True))


def _whole(table: pa.Table, name: str) -> pa.Array:
    return pa.concat_arrays(table.column(name).chunks)


DELETE_LEAVES: Final = 4
"""Delete leaves for single data leaves. Each leaf is a PUT before the root's."""
FAR_PAST: Final = 2
"""Multiple of a hard limit at which commits wait for the leaves."""
_FEW: Final = 10
"""A large root with less than a tenth of the entry limit is large for another reason."""


class RootLength(Enum):
    """The classes of a root's length, by the hard limits of its table (`FlushLimits`)."""

    SHORT = "short"
    PAST_LIMIT = "past its limit"  # the coordinator flushes
    FAR_PAST_LIMIT = "far past its limit"  # commits wait for the flush


def root_length(state: TableState) -> RootLength:
    """The class of the length of the root of `state`."""
    limits = _limits(state)
    if _is_past(state, limits, FAR_PAST):
        return RootLength.FAR_PAST_LIMIT
    return RootLength.PAST_LIMIT if _is_past(state, limits, 1) else RootLength.SHORT


def flush_in_steps(state: TableState) -> Generator[None, None, OwnFlush]:
    """Encode the leaves for the rows of `state`. Yields before each leaf and after every thousand entries.

    The result has no leaves if the root is short enough.

    Raises:
        Corrupt: a manifest vector or a leaf of the table cannot be read.
    """
    limits = _limits(state)
    if not _is_past(state, limits, 1):
        return OwnFlush()
    now = replace(limits, data_files=1, vectors=1, delete_leaves=DELETE_LEAVES)
    plan = plan_flush(state.root, state.definition, now, leaves=state.leaves, dead=state.live.dead)
    manifests: list[AddedManifest] = []
    encoded: list[EncodedLeaf] = []
    leaves: dict[str, Leaf] = {}
    for planned in plan.leaves:
        yield
        name = f"self-flush/{state.root.digest.hex()}/{len(manifests)}"
        leaf_uuid = uuid.uuid5(state.header.table_uuid, name)
        leaf = yield from encode_in_steps(
            planned.entries, state.definition, leaf_uuid=leaf_uuid, content=planned.content
        )
        manifests.append(manifest_of(planned, leaf, manifests))
        encoded.append(leaf)
        yield
        leaves[leaf.location] = decode_leaf(leaf.body, location=leaf.location)
    return OwnFlush(tuple(manifests), tuple(encoded), leaves)


def _is_past(state: TableState, limits: FlushLimits, times: int) -> bool:
    rows = len(state.live.rows)
    is_large = state.root.size_in_bytes >= times * limits.hard_bytes and rows * _FEW >= limits.hard_entries
    return rows >= times * limits.hard_entries or is_large


def _limits(state: TableState) -> FlushLimits:
    return _limits_of(tuple(state.definition.properties.items()))


@lru_cache(maxsize=256)
def _limits_of(properties: tuple[tuple[str, str], ...]) -> FlushLimits:
    return FlushLimits.of_properties(dict(properties))
