"""What happened to a table between two versions.

Owns: which versions, and the answer's form. Does not own: reading roots (`rootline.storage.metadata.table_loader`),
what a root shows (`rootline.tree.check.root_diff`).
Invariants: the answer is the difference of the two versions' rows; maintenance is no difference; what came and went
again in between is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from rootline.client.read.time_travel import read_addressable, read_head
from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.table_loader import RowsChange, read_difference, read_net_change, read_rows_changes
from rootline.tree.check.net_changes import FileChange, NetChange


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The net change after `from_version` up to and with `to_version`; everything by ascending location.

    `rows` are of data files that stayed; the rows that are deleted in a file that came or went are in its `vectors`.
    `added_deletes` and `removed_deletes` are files of equality deletes (and, in older tables, of position deletes),
    which reach rows of other files.
    """

    table: TableName
    from_version: Version
    to_version: Version
    added_files: tuple[FileChange, ...] = ()
    removed_files: tuple[FileChange, ...] = ()
    rows: tuple[RowsChange, ...] = ()
    added_deletes: tuple[ContentEntry, ...] = ()
    removed_deletes: tuple[ContentEntry, ...] = ()

    def __bool__(self) -> bool:
        return any((self.added_files, self.removed_files, self.rows, self.added_deletes, self.removed_deletes))

    def records(self) -> Iterator[dict[str, Any]]:
        """One flat record for each change; positions are ranges, both ends included."""
        for change, files in (("removed", self.removed_files), ("added", self.added_files)):
            for file in files:
                deleted = sum(vector.record_count for vector in file.vectors)
                yield _record(change, "data", file.location, file.entry.record_count - deleted, deleted_rows=deleted)
        for rows in self.rows:
            for change, positions in (("rows-deleted", rows.deleted), ("rows-restored", rows.restored)):
                if positions:
                    ranges = position_ranges(positions)
                    yield _record(change, "data", rows.data_location, len(positions), positions=ranges)
        for change, entries in (("removed", self.removed_deletes), ("added", self.added_deletes)):
            for entry in entries:
                yield _record(change, _content_of(entry), entry.location, entry.record_count)


async def read_changes(store: ObjectStore, table: TableName, from_version: int, to_version: int | None) -> TableChanges:
    """The net change after `from_version` up to and with `to_version` (`None`: the head).

    Raises:
        Invalid: `table-unknown`; `version-unknown`, a version of the range is not addressable; `setting-invalid`, the
            range is the wrong way round.
        Corrupt: an object is not what was written.

    """
    head = (await read_head(store, table)).header
    last = head.version if to_version is None else Version(to_version)
    known = await read_addressable(store, head, from_version, last)
    for version in (from_version, last):
        known.check(version)
    if from_version > last:
        raise Invalid(
            "setting-invalid", f"{table}: changes go from an older version to a newer, not {from_version} to {last}"
        )
    try:
        net = await _net_change(store, head, Version(from_version), last)
    except Corrupt as error:
        newest = (await read_head(store, table)).header
        if error.code != "object-missing" or newest.oldest_version == head.oldest_version:
            raise
        known = await read_addressable(store, newest, from_version, last)
        for version in (from_version, last):  # it may have expired meanwhile
            known.check(version)
        net = await _net_change(store, newest, Version(from_version), last)
    return await changes_of_net(store, table, Version(from_version), last, net)


async def _net_change(store: ObjectStore, head: RootHeader, after: Version, up_to: Version) -> NetChange:
    if after + 1 < head.oldest_version and after < up_to:  # what came between them may be gone
        return await read_difference(store, head.table, after, up_to)
    return await read_net_change(store, head.table, after, up_to)


async def changes_of_net(
    store: ObjectStore, table: TableName, from_version: Version, to_version: Version, net: NetChange
) -> TableChanges:
    """`net` as the change from one version to another, the changed rows of its vectors read. Raises `Corrupt`."""
    return TableChanges(
        table,
        from_version,
        to_version,
        net.added_files,
        net.removed_files,
        tuple(await read_rows_changes(store, table, net.vectors)),
        net.added_deletes,
        net.removed_deletes,
    )


def position_ranges(positions: BitMap64) -> list[tuple[int, int]]:
    """Ascending ranges of row numbers, both ends included."""
    ranges: list[tuple[int, int]] = []
    for position in positions:
        if ranges and position == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], position
        else:
            ranges.append((position, position))
    return ranges


def _content_of(entry: ContentEntry) -> str:
    return "equality-deletes" if entry.content_type is ContentType.EQUALITY_DELETE else "position-deletes"


def _record(change: str, content: str, location: str, rows: int, **more: Any) -> dict[str, Any]:
    return {"change": change, "content": content, "rows": rows, **more, "location": location}
