"""The changes that a root's rewrites, conversions and joined vectors made without showing them, and the rules for them.

Owns: finding it in loaded states, and the rules. Does not own: which rewrites are accepted (`rewrite`), the same
question on stored bytes (`rootline.storage.check.entries`), which rows a vector deletes.
Invariants: pure; costs next to nothing where the root states that nothing was rewritten; nothing of what applying noted
is believed.

Source: format page, "Rewrites"; decision 0034.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.summary import CONVERTED_DELETES, JOINED_VECTORS, REPLACED_FILES, REWRITTEN_FILES
from rootline.tree.state.live_index import ordinals_of_vector
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import Tally


@dataclass(frozen=True, slots=True)
class Rewrites:
    """The entries that a root's rewrites and conversions made, and the entries that these replaced.

    `came`: the made ones, including those that the root removed again. `went`: the replaced ones.

    A vector that came is of a conversion, or was joined with others in one Puffin file. One that went is of a rewrite
    if its data file went too.
    """

    came: tuple[ContentEntry, ...] = ()
    went: tuple[ContentEntry, ...] = ()
    came_tally: Tally = field(init=False)
    went_tally: Tally = field(init=False)

    def __post_init__(self) -> None:
        for name, entries in (("came_tally", self.came), ("went_tally", self.went)):
            tally = Tally()
            for entry in entries:
                tally.count(entry)
            object.__setattr__(self, name, tally)


NO_REWRITES: Final = Rewrites()


def rewrites_of(old: TableState | None, new: TableState) -> Rewrites:
    """What the step from `old` to `new` rewrote."""
    came = () if old is None else tuple(_came(old, new))
    if old is None or not (came or says_rewrites(new.header.snapshot.summary)):
        return NO_REWRITES
    return Rewrites(came, tuple(_went(old, new)))


def says_rewrites(summary: Mapping[str, str]) -> bool:
    """Whether a snapshot's summary says that its root rewrote files, converted deletes or joined vectors."""
    return any(key in summary for key in (REPLACED_FILES, REWRITTEN_FILES, CONVERTED_DELETES, JOINED_VECTORS))


def faults_of_rewrites(found: Rewrites, old: RootHeader | None, new: RootHeader, *, is_exact: bool) -> Iterator[str]:
    """The rules that a root's rewrites break, in words.

    Args:
        found: what was rewritten.
        old: the header of the version before.
        new: the root's.
        is_exact: whether nothing but vectors can have deleted rows of what went.

    """
    first, last = 0 if old is None else old.snapshot.sequence_number, new.snapshot.sequence_number
    lowest = 0 if old is None else old.next_row_id
    summary = new.snapshot.summary
    said = [summary.get(key, "0") for key in (REPLACED_FILES, REWRITTEN_FILES)]
    counted = [str(tally.data_files) for tally in (found.went_tally, found.came_tally)]
    if said != counted:
        yield f"its summary says that {' files became '.join(said)}, its rows show {' that became '.join(counted)}"
    for entry in found.came:
        info = entry.version_info
        number, own = info.sequence_number, info.file_sequence_number
        if number is None or own is None or not number <= first < own <= last:
            yield f"{entry.location} was rewritten with sequence numbers {number} and {own}"
        if entry.content_type is not ContentType.DATA:
            continue
        row_id = entry.first_row_id
        if row_id is None or not lowest <= row_id <= new.next_row_id - entry.record_count:
            yield f"{entry.location}: row ids from {row_id} are not in {lowest}..{new.next_row_id - 1}"
    gone = {entry.location for entry in found.went if entry.content_type is ContentType.DATA}
    deleted = sum(entry.record_count for entry in found.went if entry.referenced_file in gone)
    before, after = found.went_tally.rows - deleted, found.came_tally.rows
    if after > before or (is_exact and after != before):
        yield f"rewrites made {after} rows of {before}"
    yield from _faults_of_conversions(found, gone, summary)


def _faults_of_conversions(found: Rewrites, gone: Set[str], summary: Mapping[str, str]) -> Iterator[str]:
    """Yield a fault if the summary miscounts removed equality deletes, or a new vector is of no conversion or join.

    A conversion's vector contains the rows of the one before, and more. A joined one has the same number of rows.
    """
    said, converted = summary.get(CONVERTED_DELETES, "0"), found.went_tally.equality_deletes
    if said != str(converted):
        yield f"its summary says that {said} equality deletes became vectors, its rows show {converted}"
    came = {entry.referenced_file: entry for entry in found.came if entry.content_type is not ContentType.DATA}
    went = {entry.referenced_file: entry for entry in found.went if entry.content_type is ContentType.POSITION_DELETE}
    joined = 0
    for entry in came.values():
        before = went.get(entry.referenced_file)
        is_vector = entry.content_type is ContentType.POSITION_DELETE
        is_joined = is_vector and before is not None and before.record_count == entry.record_count
        joined += is_joined
        if not (is_joined or (is_vector and converted)):
            yield f"{entry.location} came as EXISTING, and is no data file and no vector of a conversion or a join"
    most = summary.get(JOINED_VECTORS, "0")
    if not converted and not (most.isdecimal() and joined <= int(most[:12])):
        yield f"its summary says that {most[:20]} vectors were joined, its rows show {joined}"
    for target, entry in went.items():
        after = came.get(target)
        if target not in gone and (after is None or after.record_count < entry.record_count):
            yield f"the vector of {target} went, and no larger one came for it"


def _came(old: TableState, new: TableState) -> Iterator[ContentEntry]:
    """Root rows of this snapshot that are not shown as added; removed ones too."""
    snapshot, first = new.header.snapshot.snapshot_id, old.header.snapshot.sequence_number
    known = {id(block) for block in old.root.blocks}
    for block in new.root.blocks:
        if id(block) in known:
            continue
        for row in block.rows:
            entry, info = row.entry, row.entry.version_info
            if entry.content_type > ContentType.EQUALITY_DELETE or info.snapshot_id != snapshot:
                continue
            is_own = info.status is Status.DELETED and (info.file_sequence_number or 0) > first
            if info.status is Status.EXISTING or is_own:
                yield entry


def _went(old: TableState, new: TableState) -> Iterator[ContentEntry]:
    """What was live, is not any more in the same identity, and is not shown as removed."""
    shown = set(map(_identity, _shown_as_removed(old, new)))
    for row in old.live.rows.values():
        if _identity(row.entry) not in shown and not _is_live(new, row.entry):
            yield row.entry
    for location, lookup in old.live.lookups.items():
        dead = old.live.dead.get(location, BitMap())
        if location in new.live.lookups:
            gone = new.live.dead.get(location, BitMap()) - dead - _removed(new, location)
        else:
            gone = BitMap(range(lookup.leaf.length)) - dead
        for entry in lookup.leaf.entries_at(list(gone)):
            is_settled = entry.version_info.status is Status.DELETED or _identity(entry) in shown
            if not is_settled and not _is_live(new, entry):
                yield entry


def _shown_as_removed(old: TableState, new: TableState) -> Iterator[ContentEntry]:
    """What left the root's rows, and what one of its new leaves took over and lost again in the same root."""
    for row in new.root.rows:
        if row.entry.version_info.status is Status.DELETED:
            yield row.entry
    for location, lookup in new.live.lookups.items():
        if location not in old.live.lookups:
            yield from lookup.leaf.entries_at(list(_removed(new, location)))


def _identity(entry: ContentEntry) -> tuple[EntryPlace, int | None]:
    return entry.place, entry.version_info.file_sequence_number


def _removed(new: TableState, location: str) -> BitMap:
    rows = new.live.manifest_vector_rows.get(location, ())
    added = (row.entry for row in rows if row.entry.version_info.status is Status.ADDED)
    return BitMap.union(BitMap(), *(ordinals_of_vector(entry, new.live.stored) for entry in added))


def _is_live(state: TableState, entry: ContentEntry) -> bool:
    found = state.live.find(entry.place)
    numbers = entry.version_info.file_sequence_number
    return found is not None and found.entry.version_info.file_sequence_number == numbers
