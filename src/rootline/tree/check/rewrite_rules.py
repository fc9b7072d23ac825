"""The rules for rewrites of files, conversions of equality deletes to vectors, and vectors joined in one Puffin file. A
root does not show them as changes.

Owns: finding these changes in loaded states, and the rules. Does not own: which rewrites are accepted (`rewrite`), the
same question on stored bytes (`rootline.storage.check.entries`), which rows a vector deletes.
Invariants: Pure. Almost free for a root that states no rewrite. Independent of the values that `apply` computed.

Source: format page, "Rewrites". Decision 0034.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.root_header import Operation, RootHeader
from rootline.tree.check.replaced_files import FILES_AND_DELETES, ReplacedFiles
from rootline.tree.draft.summary import CONVERTED_DELETES, JOINED_VECTORS, REPLACED_FILES, REWRITTEN_FILES
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import Tally


@dataclass(frozen=True, slots=True)
class Rewrites:
    """The entries that a root's rewrites and conversions made, and the entries that these replaced.

    `added`: entries that were made, including those that the root removed again. `removed`: entries that were replaced.

    An added vector was made by a conversion, or was joined with others in one Puffin file. A removed vector belongs to
    a rewrite if its data file was removed too.
    """

    added: tuple[ContentEntry, ...] = ()
    removed: tuple[ContentEntry, ...] = ()
    added_tally: Tally = field(init=False)
    removed_tally: Tally = field(init=False)

    def __post_init__(self) -> None:
        for name, entries in (("added_tally", self.added), ("removed_tally", self.removed)):
            tally = Tally()
            for entry in entries:
                tally.count(entry)
            object.__setattr__(self, name, tally)


NO_REWRITES: Final = Rewrites()


def rewrites_of(old: TableState | None, new: TableState) -> Rewrites:
    """The rewrites between `old` and `new`."""
    added = () if old is None else tuple(_added(old, new))
    if old is None or not (added or states_rewrites(new.header.snapshot.summary)):
        return NO_REWRITES
    return Rewrites(added, _replaced(old, new))


def states_rewrites(summary: Mapping[str, str]) -> bool:
    """Whether a snapshot's summary states that its root rewrote files, converted deletes or joined vectors."""
    return any(key in summary for key in (REPLACED_FILES, REWRITTEN_FILES, CONVERTED_DELETES, JOINED_VECTORS))


def faults_of_operation(operation: Operation, added: Set[ContentType], removed: Set[ContentType]) -> Iterator[str]:
    """The rule that a snapshot's operation breaks, as a sentence. `added` and `removed`: the types of the entries that
    its root adds and removes, rewritten ones excepted. An `overwrite` may do anything.
    """
    is_false = {
        Operation.APPEND: bool(removed or added - {ContentType.DATA}),
        Operation.DELETE: ContentType.DATA in added,
        Operation.REPLACE: bool(added or removed),
        Operation.OVERWRITE: False,
    }
    if is_false[operation]:
        shown = [", ".join(sorted(each.name for each in types)) or "nothing" for types in (added, removed)]
        yield f"its operation is {operation.value}, but it adds {shown[0]} and removes {shown[1]}"


def faults_of_rewrites(
    found: Rewrites, old: RootHeader | None, new: RootHeader, *, is_exact: bool, is_own: bool
) -> Iterator[str]:
    """The rules that a root's rewrites break, as sentences.

    Args:
        found: the rewrites.
        old: the header of the version before.
        new: the root's header.
        is_exact: whether only vectors can have deleted rows of the replaced files.
        is_own: whether this version made the root. Until decision 0132 a rewrite could share its root with changes of
            rows, and such a root is an `overwrite`.
    """
    operation = new.snapshot.operation
    expected = (Operation.REPLACE,) if is_own else (Operation.REPLACE, Operation.OVERWRITE)
    if found.removed_tally.data_files and operation not in expected:
        yield f"it rewrites data files, but its operation is {operation.value}"
    first, last = 0 if old is None else old.snapshot.sequence_number, new.snapshot.sequence_number
    lowest = 0 if old is None else old.row_ids.next
    summary = new.snapshot.summary
    stated = [summary.get(key, "0") for key in (REPLACED_FILES, REWRITTEN_FILES)]
    counted = [str(tally.data_files) for tally in (found.removed_tally, found.added_tally)]
    if stated != counted:
        yield (
            f"its summary states that {' files became '.join(stated)}, "
            f"but its rows show {' that became '.join(counted)}"
        )
    for entry in found.added:
        info = entry.version_info
        number, own = info.sequence_number, info.file_sequence_number
        if number is None or own is None or not number <= first < own <= last:
            yield f"{entry.location} was rewritten with sequence numbers {number} and {own}"
        if entry.content_type is not ContentType.DATA:
            continue
        row_id = entry.first_row_id
        if row_id is None or not lowest <= row_id <= new.row_ids.next - entry.record_count:
            yield f"{entry.location}: row ids from {row_id} are not in {lowest}..{new.row_ids.next - 1}"
    removed_files = {entry.location for entry in found.removed if entry.content_type is ContentType.DATA}
    deleted = sum(entry.record_count for entry in found.removed if entry.referenced_file in removed_files)
    before, after = found.removed_tally.rows - deleted, found.added_tally.rows
    if after > before or (is_exact and after != before):
        yield f"rewrites made {after} rows of {before}"
    yield from _faults_of_conversions(found, removed_files, summary)


def _faults_of_conversions(found: Rewrites, removed_files: Set[str], summary: Mapping[str, str]) -> Iterator[str]:
    """Yield a fault if the summary miscounts removed equality deletes, or if a new vector was made neither by a
    conversion nor by a join. The vector after a conversion has at least the rows of the vector before it, and a joined
    vector exactly as many.
    """
    stated, converted = summary.get(CONVERTED_DELETES, "0"), found.removed_tally.equality_deletes
    if stated != str(converted):
        yield f"its summary states that {stated} equality deletes became vectors, but its rows show {converted}"
    added = {entry.referenced_file: entry for entry in found.added if entry.content_type is not ContentType.DATA}
    removed = {
        entry.referenced_file: entry for entry in found.removed if entry.content_type is ContentType.POSITION_DELETE
    }
    joined = 0
    for entry in added.values():
        before = removed.get(entry.referenced_file)
        is_vector = entry.content_type is ContentType.POSITION_DELETE
        is_joined = is_vector and before is not None and before.record_count == entry.record_count
        joined += is_joined
        if not (is_joined or (is_vector and converted)):
            yield f"{entry.location} was added as EXISTING, but is no data file and no vector of a conversion or a join"
    most = summary.get(JOINED_VECTORS, "0")
    if not converted and not (most.isdecimal() and joined <= int(most[:12])):
        yield f"its summary states that {most[:20]} vectors were joined, but its rows show {joined}"
    for target, entry in removed.items():
        after = added.get(target)
        if target not in removed_files and (after is None or after.record_count < entry.record_count):
            yield f"the vector of {target} was removed, but no larger one was added for it"


def _added(old: TableState, new: TableState) -> Iterator[ContentEntry]:
    """Root rows that this snapshot made but does not show as added, including rows that it also removed."""
    snapshot, first = new.header.snapshot.snapshot_id, old.header.snapshot.sequence_number
    known = {id(block) for block in old.root.blocks}
    for block in new.root.blocks:
        if id(block) in known:
            continue
        for row in block.rows:
            entry, info = row.entry, row.entry.version_info
            if info.snapshot_id != snapshot or entry.content_type > ContentType.EQUALITY_DELETE:
                continue
            is_own = info.status is Status.DELETED and (info.file_sequence_number or 0) > first
            if info.status is Status.EXISTING or is_own:
                yield entry


def _replaced(old: TableState, new: TableState) -> tuple[ContentEntry, ...]:
    """Entries that were live, are no longer live with the same identity, and are not shown as removed."""
    work = ReplacedFiles(old.root, new.root, {**old.live.stored, **new.live.stored}, FILES_AND_DELETES)
    leaves = {**old.leaves, **new.leaves}
    return tuple(work.entries(lambda row: leaves[row.location]))
