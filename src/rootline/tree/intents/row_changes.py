"""The kinds by which writers change rows: `remove`, `overwrite`, `row_delta` and `replace`.

Owns: the rules that relate removed and added files, when vectors are merged, which entries a replace removes, and
rejecting intents that were meant for the content before it. Does not own: the rules of files (`file_rules`) and vectors
(`vector_rules`), where merged vectors are written, the definition after a replace (`redefinition`), new files alone
(`append`).
Invariants:
* A row deleted by an equality delete that the writer had not read does not become live again.
* A data file has at most one live vector. No vector becomes live before it was read and compared with its entry. A
  deleted row stays deleted. Of two concurrent updates of one row, at most one is committed.
* A replace removes everything that is live when it is applied, without writing a leaf. Uuid, history and ledger
  continue. The definition gets a new schema, so that an intent made for an earlier one can be recognized.

Theory of `replace`. The root shows it like any removal: its own rows as removed, and for each leaf a vector of all
ordinals, which takes a few bytes. So changes, exports and restores need no code for this kind. If a writer names no
schema, the table cannot know which content its rows are meant for. The same is true of a writer without a uuid after a
drop.

Source: protocol page, section 2, "Validation", `row_delta`. Decision 0074.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Final

import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedVector, Intent
from rootline.schemas.intent_rules import MAINTENANCE_KINDS, IntentKind, check_location
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import (
    Add,
    Change,
    Effect,
    Merge,
    MergedVector,
    Remove,
    RemoveOrdinals,
    ReplaceTable,
    TakeLeaf,
)
from rootline.tree.draft.draft import Draft
from rootline.tree.proof.file_proof import vector_entry
from rootline.tree.rules.delete_rules import DeletesOfLeaves
from rootline.tree.rules.file_rules import added_rows, check_own_location, removals
from rootline.tree.rules.isolation_rules import check_no_unseen_deletes
from rootline.tree.rules.leaf_rules import missing_leaves, writer_leaves
from rootline.tree.rules.vector_rules import (
    Settled,
    adds_files,
    check_added_vector,
    check_keeps,
    merge,
    merged_entry,
    place_of,
    proven,
    reference_of,
    vectors_to_merge,
)
from rootline.tree.state.leaf_lookup import live_mask
from rootline.tree.state.live_index import Live

_ADDED: Final = ("add_data_files", "add_equality_deletes", "add_manifests")
"""The fields of an intent whose files could be added to any table, whatever is live there."""


def remove(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Remove files with their vectors. Raises `Invalid`."""
    removed = removals(draft, intent, fetched)
    return removed if isinstance(removed, Needs) else Change.of(Effect.REMOVES, Remove(tuple(removed)))


def overwrite(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Remove files and add others. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    removed = removals(draft, intent, fetched)
    if isinstance(removed, Needs):
        return removed
    data = (live.entry for live in removed if live.entry.content_type is ContentType.DATA)
    check_no_unseen_deletes(draft, intent, data, "stale-source")
    added = added_rows(draft, intent)
    leaves = writer_leaves(draft, intent, fetched, added)
    effect = (Effect.ADDS if added or leaves else Effect.NOTHING) | (Effect.REMOVES if removed else Effect.NOTHING)
    return Change.of(effect, Remove(tuple(removed)), Add(tuple(added)), *map(TakeLeaf, leaves))


def row_delta(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Add data files, vectors and equality deletes. Raises `Invalid`: a rule is broken, or `row-conflict`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    _check_deletes(intent)
    rows = added_rows(draft, intent)
    leaves = writer_leaves(draft, intent, fetched, rows)
    in_leaves = DeletesOfLeaves(draft, intent, leaves)
    own = {row.entry.location: row.entry for row in rows if row.entry.content_type is ContentType.DATA}
    vectors = [_incoming(draft, vector, own, in_leaves) for vector in intent.add_vectors]
    named = len(vectors)
    vectors += [_incoming(draft, vector, own, in_leaves) for vector in in_leaves.vectors()]
    _check_updates(draft, intent, vectors)
    places = {place_of(item.vector) for item in vectors}
    for item in vectors:
        if item.is_overtaken or item.current is not None:
            places |= vectors_to_merge(intent, item.vector, item.replaced, draft)
    missing = fetched.missing(places)
    if missing:
        return missing
    removed: list[Live] = []
    merged: list[MergedVector] = []
    for index, item in enumerate(vectors):
        positions = proven(item.vector, item.data, fetched)
        outcome: BitMap64 | Settled = Settled.AS_ADDED
        if item.is_overtaken:
            outcome = merge(positions, intent, item.vector, item.replaced, draft, fetched)
        elif item.current is not None:
            check_keeps(positions, item.replaced, draft, fetched)
        if outcome is Settled.AS_LIVE:
            continue
        if isinstance(outcome, BitMap64):
            merged.append(MergedVector(merged_entry(item.entry, outcome), outcome))
        elif index < named:
            rows.append(Row.of(item.entry, draft.codec))
        if item.current is not None:
            removed.append(item.current)
    effect = Effect.REMOVES | (Effect.ADDS if adds_files(intent) else Effect.NOTHING)
    return Change.of(effect, Remove(tuple(removed)), Add(tuple(rows)), Merge(tuple(merged)), *map(TakeLeaf, leaves))


def _check_deletes(intent: Intent) -> None:
    leaves = (manifest.content_type for manifest in intent.add_manifests)
    if not (intent.add_vectors or intent.add_equality_deletes or ContentType.DELETE_MANIFEST in leaves):
        raise Invalid("intent-malformed", "kind row_delta must have a delete: use append to add files only")


def _check_updates(draft: Draft, intent: Intent, vectors: list[_Incoming]) -> None:
    """Reject an update of files with equality deletes that the writer had not read: they would miss the new rows."""
    if not vectors or not adds_files(intent) or intent.read_sequence_number is None:
        return
    of_table = (item.data for item in vectors if item.data.version_info.sequence_number is not None)
    check_no_unseen_deletes(draft, intent, of_table, "row-conflict")


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A vector to add, its data file, and the live vector of that file."""

    vector: AddedVector
    data: ContentEntry
    current: Live | None
    entry: ContentEntry

    @property
    def is_overtaken(self) -> bool:
        """Whether the live vector is not the one that the writer started from."""
        return reference_of(self.current) != self.vector.replaces_vector

    @property
    def replaced(self) -> ContentEntry:
        """The live vector: the one that the writer started from, or a newer one."""
        if self.current is None:
            raise Invalid(
                "row-conflict",
                f"{self.vector.referenced_file!r} no longer has the deletion vector that the writer replaces: read the "
                "table again",
            )
        return self.current.entry


def _incoming(
    draft: Draft, vector: AddedVector, own: Mapping[str, ContentEntry], in_leaves: DeletesOfLeaves
) -> _Incoming:
    """The vector to add, after every check that does not need its bytes."""
    data = _target(draft, vector, own, in_leaves)
    current = draft.vector_of(vector.referenced_file)
    return _Incoming(vector, data, current, vector_entry(draft.definition, vector, data, draft.numbers()))


def _target(
    draft: Draft, vector: AddedVector, own: Mapping[str, ContentEntry], in_leaves: DeletesOfLeaves
) -> ContentEntry:
    check_own_location(draft, vector.location)
    check_location(vector.referenced_file, is_live=draft.is_live)
    data = own.get(vector.referenced_file) or in_leaves.data_file(vector.referenced_file)
    if data is None:
        live = draft.find(EntryPlace(ContentType.DATA, vector.referenced_file))
        if live is None:
            raise Invalid("file-not-live", f"{vector.referenced_file!r} is not part of the table")
        data = live.entry
    check_added_vector(draft, vector, data)
    return data


def replace(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Remove everything, and add the intent's files. `draft` has the new definition already. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    removed = tuple(draft.live_rows())
    removed_in_leaves = dict(_live_in_leaves(draft))
    added = added_rows(draft, intent)
    leaves = writer_leaves(draft, intent, fetched, added)
    effect = Effect.REMOVES if removed or removed_in_leaves else Effect.NOTHING
    return Change.of(
        effect | (Effect.ADDS if added or leaves else Effect.NOTHING),
        Remove(removed),
        *starmap(RemoveOrdinals, removed_in_leaves.items()),
        Add(tuple(added)),
        *map(TakeLeaf, leaves),
        ReplaceTable(draft.definition.oldest_schema_id),
    )


def check_made_for_schema(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid` (`table-replaced`, `schema-id-missing`) for rows that may be meant for the table before a
    replace.

    A replace itself names the definition it was made for, and maintenance names the root.
    """
    first = draft.definition.oldest_schema_id
    if not first or intent.kind is IntentKind.REPLACE or intent.kind in MAINTENANCE_KINDS:
        return
    if intent.schema_id is None:
        if any(getattr(intent, name) for name in _ADDED):
            raise Invalid(
                "schema-id-missing",
                f"{draft.table}: the table was replaced, with schema {first}, and the intent does not name the schema "
                "it was made for: set its schema_id",
            )
    elif intent.schema_id < first:
        raise Invalid(
            "table-replaced",
            f"{draft.table}: the intent was made for schema {intent.schema_id}, but the table has been replaced since, "
            f"with schema {first}: open the table again",
        )


def _live_in_leaves(draft: Draft) -> Iterator[tuple[str, BitMap]]:
    """The leaves with live entries, and the live ordinals of each."""
    for location in draft.in_leaves.locations():
        lookup = draft.in_leaves.lookup(location)
        if lookup is None:
            continue
        mask = live_mask(lookup.leaf.columns(["version_info"]), draft.in_leaves.dead_in(location))
        live = BitMap(pc.indices_nonzero(mask).to_numpy())
        if live:
            yield location, live
