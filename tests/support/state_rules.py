"""The rules of one version of a table, with everything recomputed.

Owns: the predicates on one version. Does not own: those on two (`invariants`), stored bytes (`rootline.storage`).
Invariants: Pure. Reads every leaf. No violations means that counters, aggregates, vectors and indexes agree.

Source: invariants page, numbers 10, 11, 20, 21. Format page.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.content_entry import FILE_TYPES, ContentEntry, ContentType, EntryPlace, Status, same_statistics
from rootline.schemas.entry_rules import ManifestKind, entry_violations
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import snapshot_id_of
from rootline.tree.check.root_diff import diff
from rootline.tree.parts.ledger import LedgerDraft
from rootline.tree.proof.adoption import faults_of_adopted, is_adopted
from rootline.tree.state.aggregates import aggregates_of
from rootline.tree.state.live_index import LiveIndex
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import Tally, totals_of


def state_violations(state: TableState) -> list[str]:
    """The rules that one version breaks, as sentences."""
    return [
        *_header(state),
        *_entries(state),
        *_index(state),
        *_live(state),
        *_leaves(state),
        *_summary(state),
    ]


def _header(state: TableState) -> Iterator[str]:
    header = state.header
    if header.snapshot.snapshot_id != snapshot_id_of(header.table_uuid, header.version):
        yield f"snapshot id {header.snapshot.snapshot_id} does not follow from the version"
    if header.table_uuid != state.definition.table_uuid:
        yield f"the definition is of table {state.definition.table_uuid}, but the root of {header.table_uuid}"
    for writer, record in header.ledger.writers.items():
        last = -1
        for run in record.committed:
            if run.first <= last or run.last < run.first or run.version > header.version:
                yield f"the ledger's runs of {writer} overlap, do not ascend, or have a later version"
            last = run.last
    for outcome in header.outcomes.newest.runs:
        if outcome.version > header.version or outcome.last_offset < outcome.first_offset:
            yield f"outcomes have version {outcome.version}, offsets {outcome.first_offset}-{outcome.last_offset}"
    if state.pages.are_those_of(header):
        yield from _pages(state)


def _pages(state: TableState) -> Iterator[str]:
    """Check that no sequence and no offset is decided in two places."""
    ledger = LedgerDraft(state.header.ledger.writers, state.pages.of(LEDGER_PAGES))
    for writer in {
        *state.header.ledger.writers,
        *(writer for page in state.pages.of(LEDGER_PAGES) for writer in page.content.rows),
    }:
        runs = sorted(run for part in ledger.parts_of(writer) for run in part.committed)
        if any(later.first <= earlier.last for earlier, later in pairwise(runs)):
            yield f"the ledger commits a sequence of {writer} in two places"
    outcomes = [state.header.outcomes.newest, *(page.content.outcomes for page in state.pages.of(OUTCOME_PAGES))]
    places = [item[:3] for each in outcomes for item in each.items]
    if len(set(places)) != len(places):
        yield "an offset has two outcomes"


def _entries(state: TableState) -> Iterator[str]:
    for row in state.root.rows:
        yield from _entry(row.entry, ManifestKind.ROOT, state)
        if row.entry.version_info.status is Status.DELETED and row.entry.content_type not in FILE_TYPES:
            yield f"{row.entry.location}: a leaf or its vector is DELETED, which no commit of Rootline writes"
    for location, leaf in state.leaves.items():
        leaf_row = state.live.leaf_rows.get(location)
        is_old = leaf_row is not None and is_adopted(leaf_row.entry)
        kind = ManifestKind.ADOPTED_LEAF if is_old else ManifestKind.LEAF
        for entry in leaf.entries():
            yield from _entry(entry, kind, state)


def _entry(entry: ContentEntry, kind: ManifestKind, state: TableState) -> Iterator[str]:
    for sentence in entry_violations(entry, kind):
        yield f"{entry.location}: {sentence}"
    newest = state.header.snapshot.sequence_number
    number = entry.version_info.sequence_number
    if number is not None and number > newest:
        yield f"{entry.location}: sequence number {number} is after the snapshot's, {newest}"
    first = entry.first_row_id
    if first is not None and first + entry.record_count > state.header.row_ids.next:
        yield f"{entry.location}: row ids from {first} overlap the next free one, {state.header.row_ids.next}"
    if entry.content_type is ContentType.MANIFEST_DV:
        return
    try:
        spec_ids = state.definition.spec_by_id(entry.partition_spec_id).expr_ids
    except Invalid as error:
        yield f"{entry.location}: {error.message}"
        return
    if entry.content_type <= ContentType.EQUALITY_DELETE:
        missing = [expr_id for expr_id in spec_ids if expr_id not in entry.content_stats]
        if missing:
            yield f"{entry.location}: partition values of {missing} are missing"


def _index(state: TableState) -> Iterator[str]:
    """Check that the index that followed the commits equals one built from scratch."""
    try:
        fresh = LiveIndex.of(state.root, state.leaves, state.live.stored)
    except Corrupt as error:
        yield error.message
        return
    for name in ("rows", "vectors", "equality_deletes", "leaf_rows", "manifest_vector_rows", "dead", "stored"):
        if getattr(fresh, name) != getattr(state.live, name):
            yield f"the index of {name} does not follow from the root"
    if fresh.unsettled != state.live.unsettled:
        yield f"the open blocks are {state.live.unsettled} in the index, but {fresh.unsettled} by the root"
    if fresh.lookups.keys() != state.live.lookups.keys():
        yield "the index of leaves does not follow from the root"


def _live(state: TableState) -> Iterator[str]:
    seen: set[EntryPlace] = set()
    targets: set[str] = set()
    entries = [found.entry for found in state.live.entries()]
    files = {entry.location for entry in entries if entry.content_type is ContentType.DATA}
    for entry in entries:
        place = entry.place
        if place in seen:
            yield f"{entry.location} is live in two places"
        seen.add(place)
        if entry.deletion_vector is not None:
            target = entry.referenced_file or ""
            if target in targets:
                yield f"{target} has two deletion vectors"
            if target not in files:
                yield f"{entry.location}: a vector of {target}, which is not live"
            targets.add(target)
    leaves = [row.entry for row in state.live.leaf_rows.values()]
    found, stated = totals_of([*entries, *leaves]), state.header.totals
    if found != stated:
        yield f"the totals are {stated}, but by the live entries {found}"


def _leaves(state: TableState) -> Iterator[str]:
    for location, row in state.live.leaf_rows.items():
        entry, leaf = row.entry, state.leaves[location]
        if leaf.length != entry.record_count or leaf.size_in_bytes != entry.file_size_in_bytes:
            yield f"{location} has {leaf.length} entries in {leaf.size_in_bytes} bytes, unlike its row"
        if any(item.partition_spec_id != entry.partition_spec_id for item in leaf.entries()):
            yield f"{location} has entries of another spec than its row's, {entry.partition_spec_id}"
        found = aggregates_of(leaf, state.definition.spec_by_id(entry.partition_spec_id).expr_ids)
        if is_adopted(entry):
            yield from (f"{location}: {fault}" for fault in faults_of_adopted(entry, found))
        elif found.manifest_stats != entry.manifest_stats:
            yield f"the counts of {location} are {entry.manifest_stats}, but by its entries {found.manifest_stats}"
        if not is_adopted(entry) and not same_statistics(found.content_stats, entry.content_stats):
            yield f"the statistics of {location} do not follow from its entries"
        owner = entry.referenced_file
        if owner is not None and owner not in state.live.leaf_rows:
            yield f"{location} belongs to {owner}, which is not a leaf of the table"
        elif owner is not None:
            yield from _affinity(state, location, owner)
        dead = state.live.dead.get(location)
        if dead is not None and dead.max() >= leaf.length:
            yield f"the manifest vector of {location} has entry {dead.max()}, which the leaf does not have"
        statuses = [vector.entry.version_info.status for vector in state.live.manifest_vector_rows.get(location, ())]
        if len(set(statuses)) != len(statuses) or Status.DELETED in statuses:
            yield f"{location} has manifest vectors of status {statuses}"


def _affinity(state: TableState, location: str, owner: str) -> Iterator[str]:
    """Check that every live delete in the leaf is for a file of the owner, as a scan that prunes the owner skips the
    leaf.
    """
    live = state.live
    for target, ordinal in live.lookups[location].vectors.items():
        at = live.lookups[owner].ordinal_of(EntryPlace(ContentType.DATA, target))
        if not live.is_dead(location, ordinal) and (at is None or live.is_dead(owner, at)):
            yield f"{location} belongs to {owner}, but has a vector of {target}, which is not live there"
    for ordinal, entry in live.lookups[location].equality_deletes:
        if not live.is_dead(location, ordinal):
            yield f"{location} belongs to {owner}, but contains {entry.location}, which is not a vector"


def _summary(state: TableState) -> Iterator[str]:
    """Check that the summary's counts match the root's changes."""
    changes = diff(state.root, state.leaves, state.live.stored)
    added, removed = Tally(), Tally()
    for entry in changes.added:
        added.count(entry)
    for entry in changes.removed:
        removed.count(entry)
    expected = {
        "added-data-files": added.data_files,
        "added-records": added.rows,
        "added-dvs": added.vectors,
        "deleted-data-files": removed.data_files,
        "deleted-records": removed.rows,
        "removed-dvs": removed.vectors,
        "total-data-files": state.header.totals.data_files,
        "total-records": state.header.totals.rows,
    }
    for key, value in expected.items():
        if state.header.snapshot.summary.get(key, "0") != str(value):
            yield f"summary {key} is {state.header.snapshot.summary.get(key)}, but the root shows {value}"
