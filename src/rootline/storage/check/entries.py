"""Rules about the change from one root to the next (a *step*): rows, leaves, vectors, and the change that it states.

A root *shows* an entry as added or removed by the status ADDED or DELETED of its row, or by a new manifest vector,
which marks entries of a leaf as removed. An entry really was added if it is live now and was not live in the root
before.

Owns: these rules. Does not own: the live set (`live_set`), the form of single entries (`entry_rules`).
Invariants: only added and removed entries are checked. A rule that needs an unreadable leaf is skipped, never guessed.

Source: invariants page, numbers 4, 5, 10, 11, 20, 21. Format page, "Status", "Sequence numbers", "Aggregates".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import (
    LEAF_TYPES,
    ContentEntry,
    ContentType,
    EntryPlace,
    Status,
    same_field,
    same_statistics,
)
from rootline.schemas.entry_rules import ManifestKind, entry_violations
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.check.data_files import NamedFile
from rootline.storage.check.findings import DataFiles, FindingBook, lost_files
from rootline.storage.check.live_set import LiveSet, Step
from rootline.storage.check.objects import LiveKey, ObjectCheck, aggregates_under, key_of
from rootline.tree.check.rewrite_rules import Rewrites, faults_of_operation, faults_of_rewrites, states_rewrites
from rootline.tree.check.root_diff import RootDiff, diff
from rootline.tree.parts.restores import RESTORED_VERSIONS
from rootline.tree.proof.adoption import faults_of_adopted, has_older_deletes, is_adopted

_FILES_MAX = ContentType.EQUALITY_DELETE


class EntryCheck:
    """The check of one table's steps. Findings are added to the book."""

    def __init__(self, live: LiveSet, objects: ObjectCheck, book: FindingBook, closely: DataFiles) -> None:
        self._live, self._objects, self._book = live, objects, book
        self._proven_vectors: set[EntryPlace] = set()
        self._closely = closely
        self.data_files: dict[str, NamedFile] = {}
        """Data files and delete files that some version names."""
        self.lost: set[str] = set()
        """Those that an intent removed as lost."""

    async def check(self, old: Root | None, step: Step, definition: TableDefinition | None) -> None:
        """Check one step. `old` is the root before, `None` if it cannot be read."""
        for entry in step.rows:
            for rule in entry_violations(entry, ManifestKind.ROOT):
                self._add(step, "entry-invalid", f"{entry.content_type.name} {entry.location}: {rule}")
            if entry.content_type is ContentType.DATA and entry.first_row_id is None:
                self._add(step, "entry-invalid", f"DATA {entry.location}: first_row_id is absent")
        for row in step.new_leaves:
            self._check_leaf(step, row, definition)
        self._check_affinity(step)
        added = step.added
        if definition is not None:
            self._check_against_definition(step, added, definition)
        await self._check_vectors(step, added)
        if self._live.is_whole:
            self._check_single_places(step)
            self._check_orphans(step, added)
            if self._live.totals != step.root.header.totals:
                reason = f"the header states {step.root.header.totals}, its live entries give {self._live.totals}"
                self._add(step, "totals-wrong", reason)
        self._check_numbers(old, step)
        if old is not None and step.is_whole:
            self._check_moved(step)
            shown = await self._shown(step)
            if shown is not None:
                self._check_shown(old, step, added, *shown)
        self.lost |= lost_files(step.root.header.snapshot.summary, (entry.location for entry in step.removed.values()))
        for entry in added.values():
            if entry.content_type in (ContentType.DATA, ContentType.EQUALITY_DELETE):
                self.data_files[entry.location] = NamedFile.of(entry, self._closely)
                self.lost.discard(entry.location)

    def _add(self, step: Step, code: str, reason: str) -> None:
        self._book.add(step.key, code, reason)

    def _check_leaf(self, step: Step, row: ContentEntry, definition: TableDefinition | None) -> None:
        facts = self._live.facts.get(row.location)
        if facts is None:
            return
        expected = LeafContent.DATA if row.content_type is ContentType.DATA_MANIFEST else LeafContent.DELETE
        if facts.leaf.content is not expected:
            self._add(
                step, "leaf-mismatch", f"{row.location} lists {facts.leaf.content} files, its row states {expected}"
            )
        if len(facts.leaf) != row.record_count:
            reason = f"{row.location} has {len(facts.leaf)} entries, its row states {row.record_count}"
            self._add(step, "leaf-mismatch", reason)
        if not facts.specs <= {row.partition_spec_id}:
            reason = f"{row.location} has entries of specs {sorted(facts.specs)}, its row is of {row.partition_spec_id}"
            self._add(step, "leaf-mismatch", reason)
        if definition is None:
            return
        try:
            recomputed = aggregates_under(facts, definition.spec_by_id(row.partition_spec_id).expr_ids)
        except Invalid as error:
            self._add(step, "definition-mismatch", f"{row.location}: {error.message}")
            return
        if is_adopted(row):
            for fault in faults_of_adopted(row, recomputed):
                self._add(step, "aggregate-wrong", f"{row.location}: {fault}")
            return
        if recomputed.manifest_stats != row.manifest_stats:
            reason = (
                f"{row.location}: its row states {row.manifest_stats}, its entries give {recomputed.manifest_stats}"
            )
            self._add(step, "aggregate-wrong", reason)
        try:
            known = {tracked_id: row.content_stats[tracked_id] for tracked_id in row.content_stats}
        except Corrupt:  # already reported as an invalid row
            return
        for tracked_id in sorted(recomputed.content_stats.keys() | known.keys()):
            stated, found = known.get(tracked_id), recomputed.content_stats.get(tracked_id)
            if not same_field(stated, found):
                reason = f"{row.location}: its row states {stated} for column {tracked_id}, its entries give {found}"
                self._add(step, "aggregate-wrong", reason)

    def _check_affinity(self, step: Step) -> None:
        if not step.new_leaves and not step.is_first:
            return
        changed = {row.referenced_file for row in step.rows if row.content_type is ContentType.MANIFEST_DV}
        for row in self._live.leaf_rows.values():
            if row.content_type is not ContentType.DELETE_MANIFEST or row.referenced_file is None:
                continue
            target = self._live.leaf_rows.get(row.referenced_file)
            if target is None or target.content_type is not ContentType.DATA_MANIFEST:
                reason = f"{row.location} belongs to {row.referenced_file}, which is not a live data leaf"
                self._add(step, "leaf-mismatch", reason)
                continue
            facts = self._live.facts.get(row.location)
            if facts is None or target.location not in self._live.facts:
                continue
            if row not in step.new_leaves and target.location not in changed:
                continue
            for data_location, ordinals in facts.targets.items():
                alive = any(ordinal not in self._live.dead.get(row.location, ()) for ordinal in ordinals)
                place = EntryPlace(ContentType.DATA, data_location)
                if alive and not self._live.is_live_in(target.location, place):
                    reason = f"{row.location} has a vector of {data_location}, which is not live in {target.location}"
                    self._add(step, "leaf-mismatch", reason)

    def _check_against_definition(
        self, step: Step, added: dict[LiveKey, ContentEntry], definition: TableDefinition
    ) -> None:
        specs = {spec.spec_id: spec.expr_ids for spec in definition.partition_specs}
        for entry in added.values():
            expr_ids = specs.get(entry.partition_spec_id)
            if expr_ids is None:
                reason = f"{entry.location} is of spec {entry.partition_spec_id}, which the definition does not have"
                self._add(step, "definition-mismatch", reason)
                continue
            lacking = [expr_id for expr_id in expr_ids if expr_id not in entry.content_stats]
            if lacking:
                self._add(step, "entry-invalid", f"{entry.location} has no partition value of id {lacking[0]}")

    async def _check_vectors(self, step: Step, added: dict[LiveKey, ContentEntry]) -> None:
        for key, entry in added.items():
            if entry.deletion_vector is None or key.place in self._proven_vectors:
                continue
            self._proven_vectors.add(key.place)
            blob = await self._objects.vector(entry)
            data = self._live.find_data(entry.referenced_file or "")
            if blob is not None and data is not None and blob.last_position >= data.record_count:
                reason = f"{entry.location} deletes row {blob.last_position} of {data.record_count} of {data.location}"
                self._add(step, "vector-mismatch", reason)

    def _check_single_places(self, step: Step) -> None:
        for key, entry in step.inserted.items():
            places = self._live.places_of(key.place)
            if len(places) != 1:
                where = " and ".join(places) or "no place"
                self._add(step, "entry-doubled", f"{entry.content_type.name} {entry.location} is live in {where}")

    def _check_orphans(self, step: Step, added: dict[LiveKey, ContentEntry]) -> None:
        for entry in added.values():
            if entry.deletion_vector is None:
                continue
            target = entry.referenced_file or ""
            if self._live.find_data(target) is None:
                self._add(step, "vector-mismatch", f"{entry.location}: its data file {target} is not live")
            if len(self._live.vectors_of(target)) > 1:
                self._add(step, "vector-mismatch", f"data file {target} has more than one live vector")
        for entry in step.removed.values():
            if entry.content_type is not ContentType.DATA or self._live.find_data(entry.location) is not None:
                continue
            if self._live.vectors_of(entry.location):
                self._add(step, "vector-mismatch", f"data file {entry.location} was removed, its vector is still live")

    def _check_numbers(self, old: Root | None, step: Step) -> None:
        header = step.root.header
        after = -1 if old is None else old.header.snapshot.sequence_number
        row_ids: list[tuple[int, int, str]] = []
        for entry in step.changing:
            info, name = entry.version_info, f"{entry.content_type.name} {entry.location}"
            if info.snapshot_id != header.snapshot.snapshot_id:
                self._add(
                    step, "snapshot-wrong", f"{name} is {info.status.name} by another snapshot, {info.snapshot_id}"
                )
            number, own = info.sequence_number or 0, info.file_sequence_number or 0
            if info.status is not Status.ADDED or entry.content_type is ContentType.MANIFEST_DV:
                continue
            is_older = number < own if old is None else number <= after < own
            is_restored = is_older and RESTORED_VERSIONS in header.snapshot.summary
            outside = own > header.snapshot.sequence_number or (old is not None and own <= after)
            if outside or not (number == own or is_restored):
                reason = f"{name} is ADDED with sequence number {number}, which this root did not assign"
                self._add(step, "snapshot-wrong", reason)
            last_row_id = 0 if entry.first_row_id is None else entry.first_row_id + _rows_of(entry)
            if is_restored and last_row_id > header.row_ids.next:
                self._add(step, "snapshot-wrong", f"the row ids of {name} are not below {header.row_ids.next}")
            if entry.first_row_id is not None and not is_restored:
                row_ids.append((entry.first_row_id, entry.first_row_id + _rows_of(entry), name))
        row_ids.sort()
        for (_, end, _), (start, _, name) in pairwise(row_ids):
            if start < end:
                self._add(step, "snapshot-wrong", f"the row ids of {name} are assigned to another file too")
        lowest = 0 if old is None else old.header.row_ids.next
        for start, end, name in row_ids:
            if start < lowest or end > header.row_ids.next:
                reason = f"the row ids of {name}, {start}..{end - 1}, are outside {lowest}..{header.row_ids.next - 1}"
                self._add(step, "snapshot-wrong", reason)

    def _check_moved(self, step: Step) -> None:
        for key, before in step.deleted.items():
            now = step.inserted.get(key)
            if now is not None and not _is_same(before, now):
                self._add(
                    step, "entry-changed", f"{now.content_type.name} {now.location} differs from the version before"
                )

    def _check_shown(
        self,
        old: Root,
        step: Step,
        added: dict[LiveKey, ContentEntry],
        shown_added: set[LiveKey],
        removed_keys: set[LiveKey],
    ) -> None:
        really_added, gone = set(added), set(step.removed)
        if states_rewrites(step.root.header.snapshot.summary):
            really_added, gone, removed_keys = self._check_rewrites(old, step, added, shown_added, removed_keys)
        shown_removed, really_removed = {key.place for key in removed_keys}, {key.place for key in gone}
        for key in sorted(shown_added ^ really_added)[:3]:
            what = "shown as added, but was already live" if key in shown_added else "new, but not shown as added"
            self._add(step, "live-set-wrong", f"{key.place.content_type.name} {key.place.location} is {what}")
        for place in sorted(shown_removed ^ really_removed, key=str)[:3]:
            what = "shown as removed, but was not" if place in shown_removed else "removed, but not shown as removed"
            self._add(step, "live-set-wrong", f"{place.content_type.name} {place.location} is {what}")
        types = [{key.place.content_type for key in keys} for keys in (really_added, gone)]
        for fault in faults_of_operation(step.root.header.snapshot.operation, *types):
            self._add(step, "live-set-wrong", fault)

    def _check_rewrites(
        self,
        old: Root,
        step: Step,
        added: dict[LiveKey, ContentEntry],
        shown_added: set[LiveKey],
        shown_removed: set[LiveKey],
    ) -> tuple[set[LiveKey], set[LiveKey], set[LiveKey]]:
        """Check the rewrites (compactions) in this step, which a root does not show.

        Returns the keys that were added, that were removed, and that are shown as removed, each without those rewrites.
        """
        first = old.header.snapshot.sequence_number
        added_and_removed = {
            key_of(entry): entry
            for entry in step.changing
            if entry.version_info.status is Status.DELETED and (entry.version_info.file_sequence_number or 0) > first
        }
        inserted = {key: entry for key, entry in added.items() if key not in shown_added}
        deleted = {key: entry for key, entry in step.removed.items() if key not in shown_removed}
        found = Rewrites((*inserted.values(), *added_and_removed.values()), tuple(deleted.values()))
        older = (row.entry for row in old.rows)
        is_exact = not (old.header.totals.equality_deletes or has_older_deletes(older))
        for fault in faults_of_rewrites(found, old.header, step.root.header, is_exact=is_exact, is_own=False):
            self._add(step, "live-set-wrong", fault)
        return (
            set(added) - inserted.keys(),
            step.removed.keys() - deleted.keys(),
            shown_removed - added_and_removed.keys(),
        )

    async def _shown(self, step: Step) -> tuple[set[LiveKey], set[LiveKey]] | None:
        """The entries that the root shows as added and as removed, or `None` if one of its changed leaves cannot be
        read.

        Other writers may show changes in other forms (decision 0053). Those are read entry by entry.
        """
        if not any(_is_of_others(self._live, entry) for entry in step.changing):
            return set(self._shown_added(step)), set(self._shown_removed(step))
        stored = self._live.stored_vectors
        form = RootDiff(step.root, stored)
        leaves: dict[str, Leaf] = {}
        for manifest in (*form.changed, *form.carriers):
            facts = self._live.facts.get(manifest.location) or await self._objects.leaf(manifest)
            if facts is None:
                return None
            leaves[manifest.location] = facts.leaf.of_row(manifest)
        changes = diff(step.root, leaves, stored)
        return set(map(key_of, changes.added)), set(map(key_of, changes.removed))

    def _shown_added(self, step: Step) -> Iterator[LiveKey]:
        for entry in step.changing:
            if entry.version_info.status is not Status.ADDED:
                continue
            if entry.content_type <= _FILES_MAX:
                yield key_of(entry)
            elif entry.content_type is not ContentType.MANIFEST_DV and entry.location in self._live.facts:
                facts = self._live.facts[entry.location]
                yield from (facts.keys[ordinal] for ordinal in self._live.live_ordinals(entry.location))

    def _shown_removed(self, step: Step) -> Iterator[LiveKey]:
        for entry in step.changing:
            if entry.version_info.status is Status.DELETED and entry.content_type <= _FILES_MAX:
                yield key_of(entry)
            elif entry.content_type is ContentType.MANIFEST_DV and entry.version_info.status is Status.ADDED:
                facts = self._live.facts.get(entry.referenced_file or entry.location)
                for ordinal in self._live.bits_of(step, entry) if facts is not None else ():
                    if facts is not None and ordinal < len(facts.leaf):
                        yield facts.keys[ordinal]


def _is_of_others(live: LiveSet, entry: ContentEntry) -> bool:
    """Whether the row of a leaf shows changes in a form that Rootline never writes."""
    if entry.content_type not in LEAF_TYPES:
        return False
    if entry.version_info.status is Status.DELETED:
        return True
    facts = live.facts.get(entry.location)
    return facts is not None and (not facts.is_all_added or live.shows_removals_of(entry.location))


def _rows_of(entry: ContentEntry) -> int:
    """The number of row ids of a file, or of all files of a leaf."""
    stats = entry.manifest_stats
    return entry.record_count if stats is None else stats.added_rows_count + stats.existing_rows_count


def _is_same(before: ContentEntry, now: ContentEntry) -> bool:
    """Whether an entry is unchanged except for its status."""
    return _settled(before) == _settled(now) and same_statistics(before.content_stats, now.content_stats)


def _settled(entry: ContentEntry) -> ContentEntry:
    return replace(entry, version_info=replace(entry.version_info, status=Status.EXISTING), content_stats={})
