"""Which version of a table is meant: the head, a version, a snapshot id, a moment.

Owns: resolving them. Does not own: reading roots (`rootline.storage.root_reader`).
Invariants: a version that the head does not address is never read; a snapshot id is resolved without reading roots,
because it follows from (uuid, version); a moment by bisection, because timestamps strictly increase.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, Version, snapshot_id_of
from rootline.schemas.root_codec import Root
from rootline.storage.head_finder import find_head
from rootline.storage.root_reader import read_root

Moment = dt.datetime | str | int
"""A datetime (naive: local time), an ISO 8601 text, or milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PointInTime:
    """At most one of them; none means the head."""

    version: int | None = None
    snapshot_id: int | None = None
    timestamp: Moment | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.version, self.snapshot_id, self.timestamp)) > 1:
            raise Invalid("setting-invalid", "version, snapshot_id and timestamp exclude each other: give one")


HEAD = PointInTime()


async def read_head(store: ObjectStore, table: TableName) -> Root:
    """The newest root. Raises `Invalid` (`table-unknown`) when there is none."""
    head = await find_head(store, table)
    if head is None:
        raise Invalid("table-unknown", f"{table}: no table has this name in this warehouse")
    return await read_root(store, table, head.version)


async def read_root_at(store: ObjectStore, table: TableName, point: PointInTime) -> Root:
    """The root that `point` means.

    Raises:
        Invalid: `table-unknown`, or `version-unknown` when the head addresses no such root.

    """
    head = await read_head(store, table)
    header = head.header
    if point.version is not None:
        wanted = Version(point.version)
    elif point.snapshot_id is not None:
        wanted = _version_of_snapshot(head, point.snapshot_id)
    elif point.timestamp is not None:
        wanted = await _version_at(store, table, head, milliseconds(point.timestamp))
    else:
        return head
    if wanted == header.version:
        return head
    if not header.oldest_version <= wanted < header.version:
        raise Invalid(
            "version-unknown",
            f"{table}: version {wanted} is outside {header.oldest_version}..{header.version}",
        )
    return await read_root(store, table, wanted)


def milliseconds(moment: Moment) -> int:
    """`moment` since the epoch. Raises `Invalid` (`setting-invalid`) for a text that is no ISO 8601 moment."""
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        if moment.strip().isdigit():
            return int(moment)
        try:
            moment = dt.datetime.fromisoformat(moment)
        except ValueError as error:
            raise Invalid("setting-invalid", f"timestamp {moment!r}: write it as in 2013-01-31T12:00:00Z") from error
    return int(moment.timestamp() * 1000)


def _version_of_snapshot(head: Root, snapshot_id: int) -> Version:
    header = head.header
    for number in range(header.version, header.oldest_version - 1, -1):
        if snapshot_id_of(header.table_uuid, Version(number)) == snapshot_id:
            return Version(number)
    raise Invalid("version-unknown", f"{header.table}: no addressable version has snapshot id {snapshot_id}")


async def _version_at(store: ObjectStore, table: TableName, head: Root, wanted_ms: int) -> Version:
    header = head.header
    if header.snapshot.timestamp_ms <= wanted_ms:
        return header.version
    low, high = int(header.oldest_version), int(header.version)  # the answer is in low..high-1, or there is none
    oldest = await read_root(store, table, Version(low)) if low < high else head
    if oldest.header.snapshot.timestamp_ms > wanted_ms:
        raise Invalid("version-unknown", f"{table}: its oldest addressable version {low} is newer than that moment")
    while high - low > 1:
        middle = (low + high) // 2
        root = await read_root(store, table, Version(middle))
        if root.header.snapshot.timestamp_ms <= wanted_ms:
            low = middle
        else:
            high = middle
    return Version(low)
