"""The kind `convert_equality_deletes`: equality deletes leave, deletion vectors that say the same come.

Owns: its rules, and the vectors that come of it. Does not own: which deletes are worth it (`rootline.maintenance`),
which rows they delete (`rootline.workers.jobs`), which files they may reach (`equality_reach_rules`), merging
(`vector_merge`).
Invariants: no row that a scan shows changes, and no root shows the change; a row that is deleted stays deleted,
whatever came after the worker read; it is applied whole or not at all.

Theory. The worker read the table at sequence number R and looked for the rows of each delete in every file that the
delete may reach. A file that came later, by a rewrite or a restore, has not been looked at, although the delete may
reach it: rows of it would come back. So every live file within reach must be one that the intent lists and that came by
R. A file that is not live any more, or came again under its name, needs nothing. Deletes only add up, so any set of
them may be converted without the others.

A vector may have grown since R. Then the two are merged here, and the one that the worker wrote is left for the
sweep. One that came in the same batch is to be shown as added by the root that is being made, with the rows that its
intent deleted and no others: so the vector that the file had before the batch is shown with the conversion's rows too.

Source: definitions page, section 4; decision 0034.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status, VersionInfo
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedVector, Intent
from rootline.schemas.intent_rules import check_location
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import FetchedObjects, Needs, VectorAt
from rootline.tree.draft.change import Change, Effect, MergedVector
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.merged_puffin import write_merged
from rootline.tree.draft.summary import CONVERTED_DELETES
from rootline.tree.rules.added_vectors import check_added_vector, merged_entry, vector_entry
from rootline.tree.rules.equality_reach_rules import reached_files
from rootline.tree.rules.file_rules import check_own_location
from rootline.tree.rules.read_number import read_number
from rootline.tree.rules.removal_rules import reference_of
from rootline.tree.rules.vector_merge import (
    Settled,
    check_keeps,
    live_positions,
    merge,
    place_of,
    proven,
    vector_to_read,
    wanted,
)
from rootline.tree.scan.delete_index import DeleteIndex
from rootline.tree.state.live_index import Live
from rootline.tree.state.pending_object import PendingObject


def convert_equality_deletes(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Equality deletes that leave, and the vectors that come for them.

    Raises:
        Invalid: `version-unknown`; `stale-source`, a delete, a file within reach or a vector is not what was read;
            `vector-invalid`, `location-invalid`, `file-already-live`; `intent-malformed`, what leaves is no equality
            delete; `equality-delete-unread`.

    """
    read = read_number(draft, intent)
    leaving = [_leaving(draft, item.location, item.content_type, read) for item in intent.remove_files]
    reached = _reached(draft, intent, leaving, read)
    newest = max(_number(live.entry) for live in leaving)
    vectors = [item for vector in intent.add_vectors if (item := _incoming(draft, vector, reached, newest, read))]
    places = {at for item in vectors for at in _wanted(draft, intent, item)}
    missing = frozenset(at for at in places if at not in fetched.vectors)
    if missing:
        return Needs(vectors=missing)
    coming = _Coming(draft, intent, fetched, leaving)
    for item in vectors:
        coming.take(item)
    return coming.change()


def summary_of_conversions(_before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """What a root's summary says of its conversions: no other count knows of them."""
    converted = draft.counts.replaced.equality_deletes
    return {CONVERTED_DELETES: str(converted)} if converted else {}


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A vector to add, its data file, the vector that this one has now, and the entry it is to have.

    `before`: the vector that the next root is to show as removed, where it shows `current` as added.
    """

    vector: AddedVector
    data: ContentEntry
    current: Live | None
    entry: ContentEntry
    before: Live | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the next root shows the vector that is live now as added."""
        return (
            self.current is not None
            and self.current.entry.version_info.snapshot_id == (self.entry.version_info.snapshot_id)
            and self.current.entry.version_info.status is Status.ADDED
        )


def _leaving(draft: Draft, location: str, content_type: ContentType, read: int) -> Live:
    if content_type is not ContentType.EQUALITY_DELETE:
        raise Invalid(
            "intent-malformed", f"{location!r}: kind convert_equality_deletes removes equality deletes, nothing else"
        )
    check_location(location, is_live=draft.is_live)
    live = draft.find(EntryPlace(content_type, location))
    if live is None or _came(live.entry) > read:
        raise _stale(f"equality delete {location!r} is not the one that the worker read at sequence number {read}")
    return live


def _reached(draft: Draft, intent: Intent, leaving: Sequence[Live], read: int) -> Mapping[str, ContentEntry]:
    """The live files that one of the deletes may reach: each of them was read."""
    listed = {*intent.replaces, *(vector.referenced_file for vector in intent.add_vectors)}
    found: dict[str, ContentEntry] = {}
    for entry in reached_files(draft, DeleteIndex.of((live.entry for live in leaving), draft.definition, None)):
        if entry.location not in listed or _came(entry) > read:
            raise _stale(
                f"{entry.location!r}, which came at sequence number {_came(entry)}, may hold rows that the equality "
                f"deletes delete; the worker, which read {read}, does not list it"
            )
        found[entry.location] = entry
    return found


def _incoming(
    draft: Draft, vector: AddedVector, reached: Mapping[str, ContentEntry], newest: int, read: int
) -> _Incoming | None:
    """A vector as it comes; `None`: its file has left the table, or came again without the rows of that time."""
    check_own_location(draft, vector.location)
    check_location(vector.referenced_file, is_live=draft.is_live)
    data = reached.get(vector.referenced_file)
    if data is None:
        live = draft.find(EntryPlace(ContentType.DATA, vector.referenced_file))
        if live is not None and _came(live.entry) <= read:
            raise Invalid(
                "vector-invalid", f"no equality delete that leaves may reach {vector.referenced_file!r}: name no vector"
            )
        return None
    check_added_vector(draft, vector, data)
    current = draft.vector_of(vector.referenced_file)
    if current is None and vector.replaces_vector is not None:
        raise _stale(f"{vector.referenced_file!r} has no deletion vector any more, the worker replaces one")
    number = max(newest, 0 if current is None else _number(current.entry))
    numbers = VersionInfo(Status.EXISTING, draft.snapshot_id, number, draft.sequence_number + 1)
    item = _Incoming(vector, data, current, vector_entry(draft, vector, data, numbers))
    if not item.is_shown:
        return item
    return replace(item, before=draft.removed_vector_of(data.location))


def _wanted(draft: Draft, intent: Intent, item: _Incoming) -> set[VectorAt]:
    places = {place_of(item.vector)}
    if item.current is not None:
        places |= wanted(intent, item.vector, item.current.entry, draft)
    if item.before is not None:
        places |= vector_to_read(item.before.entry, draft)
    return places


class _Coming:
    """What a conversion comes to, vector by vector."""

    def __init__(self, draft: Draft, intent: Intent, fetched: FetchedObjects, leaving: Sequence[Live]) -> None:
        self._draft, self._intent, self._fetched = draft, intent, fetched
        self._replaced, self._removed = list(leaving), list[Live]()
        self._stored: list[ContentEntry] = []
        self._merged: list[MergedVector] = []
        self._before: list[MergedVector] = []

    def take(self, item: _Incoming) -> None:
        """Raises `Invalid`: `vector-invalid`."""
        draft, fetched, current = self._draft, self._fetched, item.current
        positions = proven(item.vector, item.data, fetched)
        outcome: BitMap64 | Settled = Settled.AS_ADDED
        if current is not None:
            if reference_of(current) == item.vector.replaces_vector:
                check_keeps(positions, current.entry, draft, fetched)
            else:
                outcome = merge(positions, self._intent, item.vector, current.entry, draft, fetched)
        if outcome is Settled.AS_IT_WAS:
            return
        after = outcome if isinstance(outcome, BitMap64) else positions
        entry = item.entry
        if current is not None and item.is_shown:
            self._removed.append(current)
            self._show_before(item, after - live_positions(current.entry, draft, fetched))
            entry = replace(entry, version_info=current.entry.version_info)
        elif current is not None:
            self._replaced.append(current)
        if isinstance(outcome, BitMap64):
            self._merged.append(MergedVector(merged_entry(entry, after), after))
        else:
            self._stored.append(entry)

    def change(self) -> Change:
        """All of it, what was merged written."""
        draft = self._draft
        rows = [Row.of(entry, draft.codec) for entry in self._stored]
        before: list[Row] = []
        objects: list[PendingObject] = []
        written: dict[str, dict[str, BitMap64]] = {}
        for merged, found in ((self._merged, rows), (self._before, before)):
            if merged:
                puffin, more = write_merged(merged, draft.codec, draft.salt)
                found += more
                objects.append(puffin)
                written[puffin.location] = {one.entry.referenced_file or "": one.positions for one in merged}
        is_added = [row.entry.version_info.status is Status.ADDED for row in rows]
        return Change(
            Effect.MAINTAINS,
            added=tuple(row for row, added in zip(rows, is_added, strict=True) if added),
            removed=tuple(self._removed),
            replaced=tuple(self._replaced),
            rewritten=tuple(row for row, added in zip(rows, is_added, strict=True) if not added),
            prior_vectors=tuple(before),
            objects=tuple(objects),
            written=written,
        )

    def _show_before(self, item: _Incoming, converted: BitMap64) -> None:
        """`converted`: what the conversion adds to the vector that this batch brought."""
        if not converted:
            return
        positions = converted
        numbers = replace(item.entry.version_info, sequence_number=self._number_before(item))
        if item.before is not None:
            positions = converted | live_positions(item.before.entry, self._draft, self._fetched)
        entry = merged_entry(replace(item.entry, version_info=numbers), positions)
        self._before.append(MergedVector(entry, positions))

    def _number_before(self, item: _Incoming) -> int:
        """As old as what was read: the vector of this batch is newer, and is not in it."""
        return min(_number(item.entry), self._draft.read_number_max)


def _came(entry: ContentEntry) -> int:
    return entry.version_info.file_sequence_number or 0


def _number(entry: ContentEntry) -> int:
    return entry.version_info.sequence_number or 0


def _stale(reason: str) -> Invalid:
    return Invalid("stale-source", f"{reason}: plan the conversion again")
