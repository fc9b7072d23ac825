"""The newest removals of a table, recorded so that a serializable intent detects them.

Owns: what counts as a removal, how many are recorded, and matching them against a filter. Does not own: the other rules
of isolation (`rootline.tree.rules.isolation_rules`), restores and replaces, which have their own sequence numbers, the
bytes (`rootline.schemas.parts.removals`).
Invariants: One-sided: every removal after `forgotten` is recorded with its partition, and anything unknown may match.
Maintenance removes no rows.

Theory. A live entry has a sequence number as long as it lives. Of removed entries, a root shows only those that it
removed itself. So the header records the newest removals: the newest sequence number for each partition. Every root
carries them, so they are few. A removal that does not fit is forgotten, and after that a filter on any partition
conflicts.

A rewrite drops a vector together with its data file. The rewrite changes no rows, but the vector was the only evidence
that rows had been deleted, so it is recorded under its own sequence number. A conversion replaces a vector with a newer
one, which is evidence enough.

Source: protocol page, section 2, "isolation".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.content_entry import Bound, ContentEntry, ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.parts.removals import Removal, Removals
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.filter.pruning import PruningFilter, may_match
from rootline.tree.parts.part_rules import PartRules
from rootline.tree.proof.file_proof import partition_statistics
from rootline.tree.state.live_index import Live

REMEMBERED_MAX: Final = 16
"""The most partitions recorded. Each costs some tens of bytes in every root."""
REMEMBERED_BYTES_MAX: Final = 1_024
"""The most bytes of their values together."""
_Partition = tuple[int, tuple[tuple[Bound | None, Bound | None], ...]]


def removals_of(parent: RootHeader | None) -> Removals:
    """The removals known when a batch begins. A parent without the field may have removed anything up to its own
    number.
    """
    if parent is None:
        return Removals()
    return parent.removals or Removals(parent.snapshot.sequence_number)


def removals_after(
    before: Removals,
    removed: Iterable[Live],
    replaced: Sequence[Live],
    number: SequenceNumber,
    definition: TableDefinition,
    codec: StatisticsCodec,
) -> Removals:
    """`before` and the entries that an accepted change with sequence number `number` removed and replaced."""
    found: dict[_Partition, tuple[SequenceNumber, ContentEntry]] = {}
    for entry, at in _removed(removed, replaced, number):
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
    """The number of a removal after `read` whose rows may have matched, or `None`."""
    if removals.forgotten > read:
        return removals.forgotten
    for item in reversed(removals.newest):
        if item.sequence_number <= read:
            break
        if removals.stats_schema != codec.fingerprint or _may_match(item, pruning, codec):
            return item.sequence_number
    return None


def _removed(
    removed: Iterable[Live], replaced: Sequence[Live], number: SequenceNumber
) -> Iterator[tuple[ContentEntry, SequenceNumber]]:
    """The entries whose removal changed rows, and its sequence number. A vector is removed with its file."""
    for live in removed:
        if live.entry.content_type is not ContentType.POSITION_DELETE:
            yield live.entry, number
    files = {live.entry.location for live in replaced if live.entry.content_type is ContentType.DATA}
    for live in replaced:
        if live.entry.content_type is ContentType.POSITION_DELETE and live.entry.referenced_file in files:
            yield live.entry, SequenceNumber(live.entry.version_info.sequence_number or number)


def _partition_of(entry: ContentEntry, definition: TableDefinition) -> _Partition:
    spec_ids = definition.spec_by_id(entry.partition_spec_id).expr_ids
    values = [entry.content_stats.get(expr_id) for expr_id in spec_ids]
    bounds = tuple((None, None) if item is None else (item.lower_bound, item.upper_bound) for item in values)
    return entry.partition_spec_id, bounds


def _bounded(forgotten: SequenceNumber, items: Iterable[Removal], stats_schema: bytes) -> Removals:
    newest = sorted(item for item in items if item.sequence_number > forgotten)
    size = sum(len(item.partition) for item in newest)
    while len(newest) > REMEMBERED_MAX or size > REMEMBERED_BYTES_MAX:
        oldest = newest.pop(0)
        size -= len(oldest.partition)
        forgotten = max(forgotten, oldest.sequence_number)
    return Removals(forgotten, tuple(newest), stats_schema if newest else b"")


def _may_match(item: Removal, pruning: PruningFilter, codec: StatisticsCodec) -> bool:
    try:
        partition, _ = codec.decode(item.partition)
    except Invalid:
        return True
    return may_match(pruning, partition, None, item.partition_spec_id)


def _own_rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now = before.removals, after.removals
    if now is None or (was and now.forgotten < was.forgotten):
        yield f"the recorded removals went back from {was} to {now}"


REMOVALS: Final = PartRules("removals", own_rule=_own_rule)
