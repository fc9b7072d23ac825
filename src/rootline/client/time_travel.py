"""A point in a table's history: the head, a version, a snapshot id, a moment, a tag.

Owns: resolving it to a version. Does not own: reading roots (`rootline.storage.metadata.root_reader`), the rules for
addressable versions (`rootline.tree.state.addressable`).
Invariants: a version that the head does not address is never read. A snapshot id is resolved without reading roots,
because it is computed from the table's UUID and the version. A tag is resolved from the head, which lists all tags. A
moment is resolved by bisection, because timestamps strictly increase.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from rootline.client import checks
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName, Version, snapshot_id_of
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.root_reader import read_root, table_root
from rootline.tree.state.addressable import Addressable

_DIGITS_MAX: Final = 19
Moment = dt.datetime | str | int
"""A datetime or an ISO 8601 text, either with its offset from UTC, or whole milliseconds since the epoch.

A time without an offset is refused: it would mean a different moment on each machine.
"""


@dataclass(frozen=True, slots=True)
class PointInTime:
    """A point in a table's history: at most one of the fields is set. With none, it is the newest version."""

    version: int | None = None
    snapshot_id: int | None = None
    timestamp: Moment | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.version, self.snapshot_id, self.timestamp, self.tag)) > 1:
            raise Invalid("setting-invalid", "version, snapshot_id, timestamp and tag exclude each other: give one")
        for name in ("version", "snapshot_id"):
            object.__setattr__(self, name, checks.whole_or_none(getattr(self, name), name))
        if self.tag is not None:
            checks.text(self.tag, "tag")
        if self.timestamp is not None:
            object.__setattr__(self, "timestamp", milliseconds(self.timestamp))

    def __str__(self) -> str:
        given = {"version": self.version, "snapshot": self.snapshot_id, "moment": self.timestamp, "tag": self.tag}
        return next((f"{name} {value}" for name, value in given.items() if value is not None), "newest version")


HEAD = PointInTime()


async def read_head(store: ObjectStore, table: TableName, known: Root | None = None) -> Root:
    """The newest root. Parts that it shares with the verified root `known` are reused without decoding. Raises
    `Invalid` (`table-unknown`, `table-dropped`) if no table has this name.
    """
    return await table_root(store, table, known)


async def read_root_at(store: ObjectStore, table: TableName, point: PointInTime, known: Root | None = None) -> Root:
    """The root of `point`. `known` is as in `read_root`.

    Raises:
        Invalid: `table-unknown`; `version-unknown` or `tag-unknown` if the head addresses no such root.
    """
    head = await read_head(store, table, known)
    while True:
        try:
            wanted = await resolve(store, table, head, point)
            return head if wanted == head.header.version else await read_older_root(store, table, wanted, known=head)
        except Invalid as error:
            if error.code != "version-unknown" or (point.timestamp is None and point.tag is None):
                raise
            # a version has expired meanwhile, and by the newest head another one has the moment or the tag
            before, head = head, await read_head(store, table, head)
            if head.header.versions == before.header.versions and head.header.tags == before.header.tags:
                raise


async def read_older_root(store: ObjectStore, table: TableName, version: int, known: Root | None = None) -> Root:
    """Read the root of a version that was addressable a moment ago. `known` is as in `read_root`.

    Raises:
        Invalid: `version-unknown`, it has expired meanwhile.
        Corrupt: as in `read_root`.
    """
    try:
        return await read_root(store, table, Version(version), known=known)
    except Corrupt as error:
        if error.code == "object-missing":
            newest = (await read_head(store, table)).header
            (await read_addressable(store, newest, version)).check(version)
        raise


async def resolve(store: ObjectStore, table: TableName, head: Root, point: PointInTime) -> Version:
    """The addressable version of `point` for a reader of `head`. Raises the errors of `read_root_at`."""
    header = head.header
    if point.version is not None:
        wanted = Version(point.version)
    elif point.snapshot_id is not None:
        wanted = _version_of_snapshot(await read_addressable(store, header), header, point.snapshot_id)
    elif point.timestamp is not None:
        wanted = await _version_at(store, table, head, milliseconds(point.timestamp))
    elif point.tag is not None:
        wanted = version_of_tag(header, point.tag)
    else:
        return header.version
    (await read_addressable(store, header, wanted)).check(wanted)
    return wanted


async def read_addressable(store: ObjectStore, header: RootHeader, *wanted: int) -> Addressable:
    """The versions that a head addresses. Its list of retained older versions is an object of its own, a page. With
    `wanted`, the page is read only if it may contain one of these versions. Raises `Corrupt` if the page is missing or
    damaged.
    """
    if wanted and all(version < 0 or version >= header.versions.oldest for version in wanted):
        return Addressable.of(header)
    from rootline.storage.metadata.page_reader import read_kept

    return Addressable.of(header, await read_kept(store, header))


def milliseconds(moment: Moment, name: str = "timestamp") -> int:
    """`moment` in milliseconds since the epoch. `name` is its name in errors.

    Raises:
        Invalid: `setting-invalid`, it is not a moment, or has no offset.
    """
    if not isinstance(moment, dt.datetime | str):
        try:
            return checks.whole(moment, name)
        except Invalid as error:
            wanted = "give a datetime, a text such as 2013-01-31T12:00:00Z, or whole milliseconds"
            raise Invalid(error.code, f"{name} is {moment!r:.80}, a {type(moment).__name__}: {wanted}") from None
    shown = str(moment)[:40]
    if isinstance(moment, str):
        text = moment.strip()
        if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            return int(text)
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            moment = dt.datetime.min
    if moment.tzinfo is None:
        raise Invalid(
            "setting-invalid",
            f"{name} is {shown!r}; write it with its offset, as in 2013-01-31T12:00:00Z, or in milliseconds",
        )
    return int(moment.timestamp() * 1000)


def _version_of_snapshot(known: Addressable, header: RootHeader, snapshot_id: int) -> Version:
    for number in (*range(header.version, header.versions.oldest - 1, -1), *reversed(known.older())):
        if snapshot_id_of(header.table_uuid, Version(number)) == snapshot_id:
            return Version(number)
    raise Invalid(
        "version-unknown",
        f"{header.table}: no addressable version has snapshot id {snapshot_id}; `rootline history` lists all",
    )


def version_of_tag(header: RootHeader, tag: str) -> Version:
    """The version that has `tag`. Raises `Invalid` (`tag-unknown`)."""
    found = header.tags.get(tag)
    if found is None:
        known = ", ".join(sorted(header.tags)[:10]) or "none"
        raise Invalid("tag-unknown", f"{header.table} has no tag {tag[:80]!r}; its tags are: {known}")
    return Version(found)


async def _version_at(store: ObjectStore, table: TableName, head: Root, wanted_ms: int) -> Version:
    header = head.header
    if header.snapshot.timestamp_ms <= wanted_ms:
        return header.version
    low, high = int(header.versions.oldest), int(header.version)  # the result is in low..high-1, or there is none
    oldest = await read_older_root(store, table, low) if low < high else head
    if oldest.header.snapshot.timestamp_ms > wanted_ms:
        from rootline.storage.metadata.page_reader import read_kept

        kept = await read_kept(store, header)
        found = None if kept is None else kept.content.newest_at(wanted_ms)
        if found is not None:
            return found.version
        low = low if kept is None else kept.content.versions[0].version
        raise Invalid(
            "version-unknown",
            f"{table}: its oldest addressable version {low} is newer than {wanted_ms} ms; choose a later moment",
        )
    while high - low > 1:
        middle = (low + high) // 2
        root = await read_older_root(store, table, middle)
        if root.header.snapshot.timestamp_ms <= wanted_ms:
            low = middle
        else:
            high = middle
    return Version(low)
