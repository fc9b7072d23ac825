"""Versions of a table: their history and trees, their differences, restoring one, and naming them with tags.

Owns: bounded reading of the chain, the display forms of a metadata tree, the form of a difference, the intents that
restore a version or set and delete a tag, the preview of a restore. Does not own: resolving a version (`time_travel`),
reading changes of roots (`table_loader`), the rules of these intents (`rootline.tree.intents`).
Invariants: not many more than `limit` roots are read, a few at the same time, and at most `_HIDDEN_MAX` versions that
only record verdicts are skipped. Versions that the head does not address are not read. A difference compares the rows
of two versions. It does not contain maintenance, or a row that was added and removed in between. A preview publishes
nothing. A tag that another client moved meanwhile is a conflict, and is not moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyroaring import BitMap64

from rootline.client.new_files import commit_intent
from rootline.client.session import Commit, Session, WriterStamp
from rootline.client.time_travel import (
    PointInTime,
    read_addressable,
    read_head,
    read_older_root,
    read_root_at,
    resolve,
    version_of_tag,
)
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.object_reader import read_leaves
from rootline.storage.metadata.page_reader import read_kept, read_pages
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.storage.metadata.table_loader import (
    RowsChange,
    load_state,
    read_difference,
    read_manifest_vectors,
    read_net_change,
    read_rows_changes,
)
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.check.net_changes import FileChange, NetChange, NetChanges
from rootline.tree.check.root_diff import Changes
from rootline.tree.check.verdict_roots import records_verdicts_only
from rootline.tree.draft.batch import FetchedObjects, Need
from rootline.tree.draft.change import Change, RemoveOrdinals, TakeLeaf
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.version_difference import OlderVersion, manifest_vectors_in_files
from rootline.tree.intents.restore import DefinitionNeed, RootNeed, restore
from rootline.tree.intents.versions import check_tag_name
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from rootline.tree.rules.vector_rules import place_of_vector
from rootline.tree.state.addressable import Addressable
from rootline.tree.state.table_state import TableState
from rootline.tree.view import TreeOutline, outline_of, tree_svg, tree_text


@dataclass(frozen=True, slots=True)
class TreeView:
    """A metadata tree. `print` it, or display it in a notebook."""

    state: TableState

    def outline(self) -> TreeOutline:
        """Counts and sizes of the tree."""
        return outline_of(self.state)

    def text(self) -> str:
        """A few lines of text for a terminal."""
        return tree_text(self.state)

    def svg(self) -> str:
        """A picture of the tree, as SVG."""
        return tree_svg(self.state)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        header = self.state.header
        return f"<TreeView {header.table} version {header.version}>"

    def _repr_svg_(self) -> str:
        return self.svg()


_AT_ONCE: Final = 8
_ROOTS_TOGETHER: Final = 64
_HIDDEN_MAX: Final = 1_000


async def read_history(
    store: ObjectStore, table: TableName, limit: int, *, everything: bool = False
) -> list[RootHeader]:
    """The newest `limit` addressable headers, newest first. Versions that only record verdicts are included if
    `everything`.

    Raises:
        Invalid: `table-unknown`; `setting-invalid`, the limit is less than 1.
    """
    if limit < 1:
        raise Invalid("setting-invalid", f"limit is {limit}; give 1 or more")
    newer = await read_head(store, table)
    oldest, found = newer.header.versions.oldest, list[RootHeader]()
    last = max(oldest, newer.header.version - (limit - 1 if everything else limit + _HIDDEN_MAX))

    head = newer.header

    async def root_of(version: int) -> Root | None:
        try:
            return await read_older_root(store, table, version)
        except Invalid as error:
            if error.code == "version-unknown":  # it has expired since the head was read
                return None
            raise

    next_version = newer.header.version - 1
    while len(found) < limit and next_version >= last:
        # the parent of the last wanted version is read too: it shows whether that version changed anything
        count = min(limit - len(found), _ROOTS_TOGETHER)
        versions = range(next_version, max(last, next_version - count + 1) - 1, -1)
        for older in await gather_bounded(versions, root_of, _AT_ONCE):
            if older is None:
                continue
            if everything or not records_verdicts_only(older, newer):
                found.append(newer.header)
            newer = older
        next_version = versions[-1] - 1
    if len(found) < limit and next_version < last:
        found.append(newer.header)
    if len(found) < limit:
        below = Addressable.of(head, await read_kept(store, head)).older()[-(limit - len(found)) :]
        kept = await gather_bounded(reversed(below), root_of, _AT_ONCE)
        found += [root.header for root in kept if root is not None]
    return found[:limit]


async def read_tree(store: ObjectStore, table: TableName, point: PointInTime) -> TreeView:
    """Read the metadata tree of the version that `point` names."""
    return TreeView(await load_state(store, await read_root_at(store, table, point)))


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The net change after `from_version` up to and including `to_version`, ordered by location.

    `rows` are of data files that stayed. Rows deleted in an added or removed file are in its `vectors`. `added_deletes`
    and `removed_deletes` are files of equality deletes (and, in older tables, of position deletes), which apply to rows
    of other files.
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
        """Yield one flat record for each change. Positions are ranges, both ends included."""
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
    """The net change after `from_version` up to and including `to_version` (`None`: the head).

    Raises:
        Invalid: `table-unknown`; `version-unknown`, a version of the range is not addressable; `setting-invalid`,
            `from_version` is newer than `to_version`.
        Corrupt: an object is missing or damaged.
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
        if error.code != "object-missing" or newest.versions.oldest == head.versions.oldest:
            raise
        known = await read_addressable(store, newest, from_version, last)
        for version in (from_version, last):  # one of the two may have expired meanwhile
            known.check(version)
        net = await _net_change(store, newest, Version(from_version), last)
    return await changes_of_net(store, table, Version(from_version), last, net)


async def _net_change(store: ObjectStore, head: RootHeader, after: Version, up_to: Version) -> NetChange:
    if after + 1 < head.versions.oldest and after < up_to:  # the versions in between may have expired
        return await read_difference(store, head.table, after, up_to)
    return await read_net_change(store, head.table, after, up_to)


async def changes_of_net(
    store: ObjectStore, table: TableName, from_version: Version, to_version: Version, net: NetChange
) -> TableChanges:
    """`net` as the change from one version to another, with the rows that its vectors delete. Raises `Corrupt`."""
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
    """`positions` as ascending ranges (first, last) of row numbers. Both ends are included."""
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


async def restore_version(
    session: Session, stamp: WriterStamp, table: TableName, point: PointInTime, *, timeout_s: float
) -> Commit:
    """Restore the version that `point` resolves to now.

    Raises:
        Invalid: `version-unknown`, `tag-unknown`; `restore-impossible` or any other code that rejects the intent.
        OutcomeUnknown: `verdict-timeout`.
    """
    head = await read_head(session.store, table)
    version = await resolve(session.store, table, head, point)
    intent = _restore_intent(head, version, session.environment.fresh_id())
    return await commit_intent(session, stamp, intent, timeout_s=timeout_s)


async def preview_restore(store: ObjectStore, table: TableName, point: PointInTime) -> TableChanges:
    """The change that restoring the version of `point` would make, from the head's version.

    Raises:
        Invalid: `version-unknown`, `tag-unknown`, `restore-impossible`.
        Corrupt: an object is missing or damaged.
    """
    head = await read_head(store, table)
    version = await resolve(store, table, head, point)
    change, leaves = await _change(store, head, version)
    changes = NetChanges()
    changes.take(Changes((), tuple(live.entry for live in change.removed)))
    for removed in change.edits_of(RemoveOrdinals):
        changes.take(Changes((), tuple(leaves[removed.leaf].entries_at(list(removed.ordinals)))))
    changes.take(Changes(tuple(row.entry for row in change.rows), ()))
    for taken in change.edits_of(TakeLeaf):
        changes.take(Changes(tuple(taken.leaf.lookup.leaf.entries()), ()))
    return await changes_of_net(store, table, head.header.version, version, changes.net())


async def _change(store: ObjectStore, head: Root, version: Version) -> tuple[Change, Mapping[str, Leaf]]:
    """The change that the restore would make to the head, and the head's leaves."""
    state = await load_state(store, head)
    state = replace(state, pages=await read_pages(store, head.header))
    older = head if version == head.header.version else await read_root(store, head.header.table, version)
    draft = Draft.on(state)
    stored = await read_manifest_vectors(store, older)
    apart = OlderVersion(older, stored).leaves_apart(draft)
    leaves = await read_leaves(store, head.header.table, apart, state.leaves)
    fetched: dict[Need[object], object] = {RootNeed(version): older}
    fetched |= {LeafNeed(location): ReadLeaf(leaf) for location, leaf in leaves.items()}
    for place in map(place_of_vector, manifest_vectors_in_files(older)):
        fetched[place] = BitMap64(stored[place.location, place.offset])
    named = older.header.definition
    if named != head.header.definition:
        fetched[DefinitionNeed(named, older.header.table_uuid)] = await read_definition(store, older.header)
    found = restore(draft, _restore_intent(head, version, "preview"), FetchedObjects(fetched))
    assert isinstance(found, Change), "all objects that it may need are fetched"
    return found, state.leaves


def _restore_intent(head: Root, version: Version, intent_id: str) -> Intent:
    return Intent(
        intent_id=intent_id,
        table=head.header.table,
        table_uuid=head.header.table_uuid,
        kind=IntentKind.RESTORE,
        read_version=head.header.version,
        ref=VersionReference(version=version),
    )


async def set_tag(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    name: str,
    version: int | None,
    *,
    may_move: bool,
    timeout_s: float,
) -> Commit:
    """Set tag `name` to `version` (`None`: the newest).

    Raises:
        Invalid: `tag-invalid`, `version-unknown`; `tag-conflict`, the tag is at another version and `may_move` is
            false, or another client moved it meanwhile.
        OutcomeUnknown: `verdict-timeout`.
    """
    head = (await read_head(session.store, table)).header
    wanted = int(head.version) if version is None else version
    (await read_addressable(session.store, head, wanted)).check(wanted)
    seen = head.tags.get(check_tag_name(name))
    if seen not in (None, wanted) and not may_move:
        raise Invalid(
            "tag-conflict", f"{table}: tag {name!r} is at version {seen} already; to move it, give move=True (`--move`)"
        )
    reference = VersionReference(version=wanted, tag=name, seen_version=seen)
    return await commit_intent(session, stamp, _tag_intent(session, head, reference), timeout_s=timeout_s)


async def delete_tag(session: Session, stamp: WriterStamp, table: TableName, name: str, *, timeout_s: float) -> Commit:
    """Delete tag `name`. Its version then expires like any untagged version.

    Raises:
        Invalid: `tag-unknown`; `tag-conflict`, another client moved it meanwhile.
        OutcomeUnknown: `verdict-timeout`.
    """
    head = (await read_head(session.store, table)).header
    reference = VersionReference(tag=name, seen_version=version_of_tag(head, name))
    return await commit_intent(session, stamp, _tag_intent(session, head, reference), timeout_s=timeout_s)


def _tag_intent(session: Session, head: RootHeader, reference: VersionReference) -> Intent:
    return Intent(
        intent_id=session.environment.fresh_id(),
        table=head.table,
        table_uuid=head.table_uuid,
        kind=IntentKind.TAG,
        ref=reference,
    )
