"""What one version did to rows, file by file, for a stream to read on executors.

Owns: from a version's root to the files whose rows came or went with it. Does not own: what a root shows
(`rootline.storage.metadata.table_loader`), reading the rows (`change_rows`), offsets (`change_stream`).
Invariants: a row that is live after the version and not before came with it, one that was live before and is not after
went, and no other row is shown; so maintenance shows nothing. A version that cannot be read whole is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.session import Session
from rootline.client.time_travel import PointInTime, read_head, read_older_root
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.table_loader import changes_of
from rootline.tree.check.net_changes import NetChange, NetChanges
from rootline.tree.filter.prune import PruningFilter
from rootline.tree.scan.delete_index import NO_DELETES, FileDeletes
from rootline.tree.scan.file_task import FileTask

EXPIRED: Final = "stream-version-expired"


@dataclass(frozen=True, slots=True)
class DeadRows:
    """What deletes rows of one file at one moment."""

    vectors: tuple[ContentEntry, ...] = ()
    deletes: FileDeletes = NO_DELETES


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A data file, and what deleted its rows before and after; `None`: it was, or is, not there at all."""

    data: ContentEntry
    before: DeadRows | None
    after: DeadRows | None

    def task(self, dead: DeadRows) -> FileTask:
        """What reads the rows that `dead` leaves."""
        return FileTask(self.data, dead.vectors, None, dead.deletes)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.data.file_size_in_bytes or 0

    @property
    def is_new(self) -> bool:
        """Whether all that it has to show came with it."""
        return self.before is None


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The changed files of one version, which was committed at `timestamp_ms` and has the columns `column_ids`."""

    version: int
    timestamp_ms: int
    column_ids: frozenset[int]
    files: tuple[ChangedFile, ...]

    @property
    def takes_rows_away(self) -> bool:
        """Whether rows may have been deleted."""
        return not all(file.is_new for file in self.files)


def check_unread(head: Root, first: int, last: int) -> None:
    """Check that each of the versions `first` to `last` can be read.

    Raises:
        Invalid: `stream-version-expired`.

    """
    oldest = head.header.oldest_version
    if first < oldest and first <= last:
        raise Invalid(
            EXPIRED,
            f"{head.header.table}: version {first} has expired before the stream read it; the oldest that is left is "
            f"{oldest}. What came in between cannot be told any more: start a new query with a checkpoint of its own, "
            "and keep versions for longer than the stream may stand still (`rootline.expire.all-seconds`, "
            "`rootline.expire.all-versions`)",
        )


async def version_change(session: Session, table: TableName, version: int) -> VersionChange:
    """What `version` changed.

    Raises:
        Invalid: `stream-version-expired`; `equality-delete-unread`.
        Corrupt: an object is missing, or not what was written.

    """
    try:
        root = await read_older_root(session.store, table, version)
        changes = NetChanges()
        async for part in changes_of(session.store, root):
            changes.take(part)
        definition = await read_definition(session.store, root.header)
        files = await _changed_files(session, root, definition, changes.net())
    except (Invalid, Corrupt) as error:
        if error.code in ("version-unknown", "object-missing"):
            check_unread(await read_head(session.store, table), version, version)
        raise
    return VersionChange(version, root.header.snapshot.timestamp_ms, _columns(definition), tuple(files))


async def content_of(session: Session, table: TableName, version: int) -> VersionChange:
    """All rows of `version`, as if they had come with it. Raises as `version_change`."""
    try:
        plan = await plan_files(session, table, None, PointInTime(version=version))
    except Invalid as error:
        if error.code == "version-unknown":
            check_unread(await read_head(session.store, table), version, version)
        raise
    trim = _Trim(plan.pruning)
    files = (ChangedFile(trim.data(task.data), None, trim.dead(task)) for task in plan.scan.tasks())
    return VersionChange(version, plan.root.header.snapshot.timestamp_ms, _columns(plan.definition), tuple(files))


def _columns(definition: TableDefinition) -> frozenset[int]:
    return frozenset(field.field_id for field in definition.schema.fields)


async def _changed_files(
    session: Session, root: Root, definition: TableDefinition, net: NetChange
) -> list[ChangedFile]:
    trim = _Trim(PruningFilter.of(None, definition))
    if not (net.removed_files or net.vectors or net.added_deletes or net.removed_deletes):
        return [
            ChangedFile(trim.data(file.entry), None, DeadRows(trim.plain(file.vectors))) for file in net.added_files
        ]
    version, table = int(root.header.version), root.header.table
    now = _by_location(await plan_files(session, table, None, PointInTime(version=version)))
    before = _by_location(await plan_files(session, table, None, PointInTime(version=version - 1)))
    came, gone = ([file.location for file in files] for files in (net.added_files, net.removed_files))
    found = [ChangedFile(trim.data(now[name].data), None, trim.dead(now[name])) for name in came]
    found += [ChangedFile(trim.data(before[name].data), trim.dead(before[name]), None) for name in gone]
    vectors = {change.data_location: change.before for change in net.vectors}
    turned = {entry.location for entry in (*net.added_deletes, *net.removed_deletes)}
    new, added = {entry.location for entry in net.added_deletes}, set(came)
    for name, task in now.items():
        was = before.get(name)
        old = _without(task.deletes, new) if was is None else was.deletes
        is_reached = bool(turned & _locations(task.deletes, old))
        if name in added or not (name in vectors or is_reached):
            continue
        marked = vectors.get(name, task.vectors)
        found.append(
            ChangedFile(trim.data(task.data), DeadRows(trim.plain(marked), trim.deletes(old)), trim.dead(task))
        )
    return found


def _by_location(plan: FilePlan) -> dict[str, FileTask]:
    return {task.location: task for task in plan.scan.tasks()}


def _without(deletes: FileDeletes, new: set[str]) -> FileDeletes:
    return FileDeletes(
        tuple(entry for entry in deletes.equality if entry.location not in new),
        tuple(entry for entry in deletes.positions if entry.location not in new),
    )


def _locations(*deletes: FileDeletes) -> set[str]:
    return {entry.location for some in deletes for entry in (*some.equality, *some.positions)}


@dataclass(frozen=True, slots=True)
class _Trim:
    """Entries without the statistics that executors have no use for."""

    pruning: PruningFilter

    def data(self, entry: ContentEntry) -> ContentEntry:
        known: Mapping[int, object] = entry.content_stats
        members = [member for member in self.pruning.members_of(entry.partition_spec_id) if member in known]
        return replace(entry, content_stats={member: entry.content_stats[member] for member in members})

    def plain(self, entries: Sequence[ContentEntry]) -> tuple[ContentEntry, ...]:
        return tuple(replace(entry, content_stats={}) for entry in entries)

    def deletes(self, deletes: FileDeletes) -> FileDeletes:
        return FileDeletes(self.plain(deletes.equality), self.plain(deletes.positions)) if deletes else NO_DELETES

    def dead(self, task: FileTask) -> DeadRows:
        return DeadRows(self.plain(task.vectors), self.deletes(task.deletes))
