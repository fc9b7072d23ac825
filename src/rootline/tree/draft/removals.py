"""What a table remembers of removals, so that a serializable intent sees them.

Owns: what counts as a removal, how much is remembered, what a filter makes of it. Does not own: the other rules of
isolation (`rootline.tree.rules.isolation_rules`), restores and replaces, which have numbers of their own, bytes
(`header_codec`).
Invariants: one-sided. Every removal after `forgotten` is remembered with the partition it was in; where something is
not known, it may match. Maintenance removes nothing.

Theory. A live entry shows its sequence number for as long as it lives. Of what left, a root shows only what it removed
itself. So the header carries the newest removals: sequence number and partition, one for each partition. There are few
of them, because every root carries them; what does not fit is forgotten, and then a filter of any partition conflicts.

A rewrite takes a vector away along with the file that it deleted from. It changes no rows, but the vector was the one
thing that showed that rows had left: it is remembered under the vector's own number. A conversion leaves a newer
vector where it takes one away, and that shows as much.

Source: protocol page, section 2, "isolation".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.content_entry import Bound, ContentEntry, ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.root_header import Removal, Removals, RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.change import Change
from rootline.tree.filter.prune import PruningFilter, may_match
from rootline.tree.proof.statistics_rules import partition_statistics

REMEMBERED_MAX: Final = 16
"""Partitions: some tens of bytes of every root for each."""
REMEMBERED_BYTES_MAX: Final = 1_024
"""Of their values together."""
_Partition = tuple[int, tuple[tuple[Bound | None, Bound | None], ...]]


def removals_of(parent: RootHeader | None) -> Removals:
    """What is known when a batch begins. A parent that says nothing may have removed anything before."""
    if parent is None:
        return Removals()
    return parent.removals or Removals(parent.snapshot.sequence_number)


def removals_after(
    before: Removals, change: Change, number: SequenceNumber, definition: TableDefinition, codec: StatisticsCodec
) -> Removals:
    """`before` and what an accepted change removed with sequence number `number`."""
    if change.restored is not None or change.new_schema_id is not None:
        return before
    found: dict[_Partition, tuple[SequenceNumber, ContentEntry]] = {}
    for entry, at in _removed(change, number):
        place = _partition_of(entry, definition)
        if place not in found or found[place][0] < at:
            found[place] = at, entry
        if len(found) > REMEMBERED_MAX:
            return Removals(number)
    if not found:
        return before
    fits = codec.fingerprint == before.stats_schema or not before.newest
    known = {item[1:]: item for item in before.newest} if fits else {}
    for at, entry in found.values():
        spec_ids = definition.spec_by_id(entry.partition_spec_id).expr_ids
        partition = codec.encode(partition_statistics(entry.content_stats, spec_ids))
        here = (entry.partition_spec_id, partition)
        if here not in known or known[here].sequence_number < at:
            known[here] = Removal(at, *here)
    forgotten = before.forgotten if fits else max(before.forgotten, before.newest[-1].sequence_number)
    return _bounded(forgotten, known.values(), codec.fingerprint)


def conflicting(removals: Removals, read: int, pruning: PruningFilter, codec: StatisticsCodec) -> SequenceNumber | None:
    """The number of a removal after `read` of rows that may have matched; `None` if there was none."""
    if removals.forgotten > read:
        return removals.forgotten
    for item in reversed(removals.newest):
        if item.sequence_number <= read:
            break
        if removals.stats_schema != codec.fingerprint or _may_match(item, pruning, codec):
            return item.sequence_number
    return None


def _removed(change: Change, number: SequenceNumber) -> Iterator[tuple[ContentEntry, SequenceNumber]]:
    """Entries whose leaving changed rows, and when it did; a vector leaves with its file, or for a newer one."""
    for live in change.removed:
        if live.entry.content_type is not ContentType.POSITION_DELETE:
            yield live.entry, number
    files = {live.entry.location for live in change.replaced if live.entry.content_type is ContentType.DATA}
    for live in change.replaced:
        if live.entry.content_type is ContentType.POSITION_DELETE and live.entry.referenced_file in files:
            yield live.entry, SequenceNumber(live.entry.version_info.sequence_number or number)


def _partition_of(entry: ContentEntry, definition: TableDefinition) -> _Partition:
    spec_ids = definition.spec_by_id(entry.partition_spec_id).expr_ids
    values = [entry.content_stats.get(expr_id) for expr_id in spec_ids]
    bounds = tuple((None, None) if item is None else (item.lower_bound, item.upper_bound) for item in values)
    return entry.partition_spec_id, bounds


def _bounded(forgotten: SequenceNumber, items: Iterable[Removal], stats_schema: bytes) -> Removals:
    newest = sorted(item for item in items if item.sequence_number > forgotten)
    held = sum(len(item.partition) for item in newest)
    while len(newest) > REMEMBERED_MAX or held > REMEMBERED_BYTES_MAX:
        oldest = newest.pop(0)
        held -= len(oldest.partition)
        forgotten = max(forgotten, oldest.sequence_number)
    return Removals(forgotten, tuple(newest), stats_schema if newest else b"")


def _may_match(item: Removal, pruning: PruningFilter, codec: StatisticsCodec) -> bool:
    try:
        partition, _ = codec.decode(item.partition)
    except Invalid:
        return True
    return may_match(pruning, partition, None, item.partition_spec_id)
