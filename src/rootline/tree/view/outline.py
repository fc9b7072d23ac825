"""The outline of a table's tree in numbers: the rows of its root, and its leaves with their delete leaves.

Owns: the summary for pictures and `rootline tree`. Does not own: drawing it (`picture`, `text`).
Invariants: Counts are taken from the root's rows. No leaf is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.tree.state.table_state import TableState

_FILES: Final = (ContentType.DATA, ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE)


@dataclass(frozen=True, slots=True)
class RootGroup:
    """The root rows of one content type.

    `files`, `rows` and `size_in_bytes` count live entries. `added` and `removed` count the changes of this snapshot.
    """

    content_type: ContentType
    files: int
    rows: int
    added: int
    removed: int
    specs: tuple[int, ...]
    size_in_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LeafOutline:
    """A leaf.

    `dead` counts the entries in its manifest vector, `newly_dead` those that this snapshot added to it. `deletes` are
    the delete leaves that belong to this data leaf.
    """

    location: str
    content_type: ContentType
    status: Status
    spec_id: int
    entries: int
    dead: int
    newly_dead: int
    rows: int
    size_in_bytes: int
    is_inline: bool
    deletes: tuple[LeafOutline, ...] = ()

    @property
    def live(self) -> int:
        """The number of entries that are not dead."""
        return self.entries - self.dead


@dataclass(frozen=True, slots=True)
class TreeOutline:
    """A version of a table: the root's file rows in groups, and its leaves, with delete leaves below data leaves."""

    table: str
    version: int
    snapshot_id: int
    operation: str
    size_in_bytes: int
    blocks: int
    groups: tuple[RootGroup, ...]
    leaves: tuple[LeafOutline, ...]
    data_files: int
    rows: int
    deleted_rows: int


def outline_of(state: TableState) -> TreeOutline:
    """The outline of a version from its state."""
    return outline_of_root(state.root, state.live.dead)


def outline_of_root(root: Root, dead: Mapping[str, Sized]) -> TreeOutline:
    """The outline of a version from its root. `dead` has the dead ordinals by leaf location (`manifest_vectors`)."""
    rows = [row.entry for row in root.rows]
    header = root.header
    return TreeOutline(
        table=header.table,
        version=header.version,
        snapshot_id=header.snapshot.snapshot_id,
        operation=header.snapshot.operation.value,
        size_in_bytes=root.size_in_bytes,
        blocks=len(root.blocks),
        groups=tuple(group for kind in _FILES if (group := _group(kind, rows)) is not None),
        leaves=_leaves(dead, rows),
        data_files=header.totals.data_files,
        rows=header.totals.rows,
        deleted_rows=header.totals.deleted_rows,
    )


def outline_json(outline: TreeOutline) -> dict[str, Any]:
    """The outline as JSON, with types and states as lower-case words."""
    return asdict(outline, dict_factory=_fields)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.name.lower() if isinstance(value, Enum) else value for name, value in pairs}


def _group(kind: ContentType, rows: list[ContentEntry]) -> RootGroup | None:
    members = [entry for entry in rows if entry.content_type is kind]
    live = [entry for entry in members if entry.version_info.status is not Status.DELETED]
    if not members:
        return None
    return RootGroup(
        content_type=kind,
        files=len(live),
        rows=sum(entry.record_count for entry in live),
        added=sum(entry.version_info.status is Status.ADDED for entry in live),
        removed=len(members) - len(live),
        specs=tuple(sorted({entry.partition_spec_id for entry in live})),
        size_in_bytes=sum(entry.file_size_in_bytes or 0 for entry in live),
    )


def _leaves(dead: Mapping[str, Sized], rows: list[ContentEntry]) -> tuple[LeafOutline, ...]:
    vectors: dict[str, list[ContentEntry]] = {}
    for entry in rows:
        if entry.content_type is ContentType.MANIFEST_DV and entry.version_info.status is not Status.DELETED:
            vectors.setdefault(entry.location, []).append(entry)
    affiliated: dict[str, list[LeafOutline]] = {}
    data, loose = list[ContentEntry](), list[LeafOutline]()
    locations = {entry.location for entry in rows if entry.content_type is ContentType.DATA_MANIFEST}
    for entry in rows:
        if entry.version_info.status is Status.DELETED:
            continue
        if entry.content_type is ContentType.DATA_MANIFEST:
            data.append(entry)
        elif entry.content_type is ContentType.DELETE_MANIFEST:
            leaf = _leaf(dead, entry, vectors.get(entry.location, []), ())
            if entry.referenced_file in locations:
                affiliated.setdefault(entry.referenced_file or "", []).append(leaf)
            else:
                loose.append(leaf)
    return (
        *(
            _leaf(dead, entry, vectors.get(entry.location, []), tuple(affiliated.get(entry.location, ())))
            for entry in data
        ),
        *loose,
    )


def _leaf(
    dead: Mapping[str, Sized], entry: ContentEntry, vectors: list[ContentEntry], deletes: tuple[LeafOutline, ...]
) -> LeafOutline:
    stats = entry.manifest_stats
    rows = 0 if stats is None else stats.existing_rows_count + stats.added_rows_count
    return LeafOutline(
        location=entry.location,
        content_type=entry.content_type,
        status=entry.version_info.status,
        spec_id=entry.partition_spec_id,
        entries=entry.record_count,
        dead=len(dead.get(entry.location, ())),
        newly_dead=sum(vector.record_count for vector in vectors if vector.version_info.status is Status.ADDED),
        rows=rows,
        size_in_bytes=entry.file_size_in_bytes or 0,
        is_inline=all(vector.file_size_in_bytes is None for vector in vectors),
        deletes=deletes,
    )
