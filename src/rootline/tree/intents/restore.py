"""The kind `restore`: set the table's content to that of an earlier version.

Owns: its rules, the rows of restored entries, and a new leaf for many entries of one older leaf. Does not own: the
difference (`version_difference`), the counters, which never decrease (`draft`).
Invariants:
* Afterwards exactly the entries of that version are live. Each has the data sequence number and row ids it had then, so
  that equality deletes reach the same files as then.
* The root alone shows what was added and removed. In a new leaf every entry is ADDED. Its snapshot id and file sequence
  number, which are known only at the commit, are inherited from the leaf's row.
* Entries of a leaf are copied by columns, without a loop. The same batch on the same root gives the same leaf.
* Offsets, outcomes, ledger and tags continue, and sequence numbers and row ids only increase.

Source: protocol page, section 2, `restore`. Format page, "Leaf manifest". Decision 0026.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, decode_leaf, encode_columns
from rootline.schemas.bytes.root.root_codec import Root, Row
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status, VersionInfo
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, VersionReference
from rootline.schemas.parts.definition import DEFINITION, DefinitionReference
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import Absent, FetchedObjects, Need, Needs
from rootline.tree.draft.change import (
    Add,
    Change,
    Effect,
    IncomingLeaf,
    Remove,
    RemoveOrdinals,
    RestoreVersion,
    TakeLeaf,
)
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.version_difference import Difference, OlderVersion, difference, manifest_vectors_in_files
from rootline.tree.evolution.next_definition import restored_definition
from rootline.tree.intents.create_drop import restored_table
from rootline.tree.intents.definition import Redefinition
from rootline.tree.proof.adoption import is_adopted
from rootline.tree.rules.leaf_rules import LeafNeed
from rootline.tree.rules.vector_rules import VectorNeed, place_of_vector
from rootline.tree.state.aggregates import aggregates_of, tally_of_leaf
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.live_index import Live
from rootline.tree.state.table_state import PendingObject

_VERSION_INFO = "version_info"


@dataclass(frozen=True, slots=True)
class RootNeed(Need[Root | Absent]):
    """The root of an older version."""

    version: Version


@dataclass(frozen=True, slots=True)
class DefinitionNeed(Need[TableDefinition | Absent]):
    """The definition of an older version. `table_uuid`: the table that it must belong to."""

    reference: DefinitionReference
    table_uuid: UUID = field(compare=False)


def restore(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Restore the version that the intent names, or the whole table if it was dropped.

    Raises:
        Invalid: `version-unknown`, it is not addressable; `restore-impossible`, it cannot be read, or the table cannot
            return to its definition; `table-dropped`, it was purged.
    """
    if draft.is_tombstone:
        return restored_table(draft, intent)
    version = Version((intent.ref or VersionReference(version=-1)).version or 0)
    draft.addressable.check(version)
    if RootNeed(version) not in fetched:
        return Needs.of([RootNeed(version)])
    root = fetched.of(RootNeed(version))
    if isinstance(root, Absent):
        raise Invalid("restore-impossible", f"root {version} is absent or cannot be read")
    places = {place_of_vector(entry) for entry in manifest_vectors_in_files(root)}
    missing = fetched.missing(places)
    if missing:
        return missing
    older = _older(root, fetched, places)
    header = older.root.header
    if header.table_uuid != draft.definition.table_uuid:
        raise Invalid("restore-impossible", f"version {version} belongs to another table, {header.table_uuid}")
    if header.is_tombstone:
        raise Invalid("restore-impossible", f"the table was dropped in version {version}: restore an earlier version")
    redefined: Redefinition | None = None
    if header.definition.digest != draft.parts.of(DEFINITION).digest:
        need = DefinitionNeed(header.definition, header.table_uuid)
        if need not in fetched:
            return Needs.of([need])
        redefined = _redefined(draft, intent, header.version, need, fetched)
    change = _restored(draft if redefined is None else redefined.seen(draft), older, fetched)
    return change if redefined is None or isinstance(change, Needs) else redefined.with_change(change)


def _redefined(
    draft: Draft, intent: Intent, version: Version, need: DefinitionNeed, fetched: FetchedObjects
) -> Redefinition | None:
    """The definition that matches the content of `version`, or `None` if the current one does."""
    then = fetched.of(need)
    if isinstance(then, Absent):
        location = need.reference.location
        raise Invalid("restore-impossible", f"version {version}: its definition {location} cannot be read")
    try:
        after = restored_definition(draft.definition, then)
    except Invalid as error:
        raise Invalid(
            "restore-impossible",
            f"the table cannot return to the definition of version {version}: {error.message}",
        ) from error
    return None if after is draft.definition else Redefinition.of(intent, after)


def _restored(draft: Draft, older: OlderVersion, fetched: FetchedObjects) -> Change | Needs:
    """The change that replaces the draft's content with that of `older`."""
    version = older.root.header.version
    apart = older.leaves_apart(draft)
    missing = fetched.missing(
        LeafNeed(row.location, older=(row, draft.definition) if is_adopted(row) else None) for row in apart
    )
    if missing:
        return missing
    leaves = {row.location: _leaf_of(row, version, fetched) for row in apart}
    found = difference(older, draft, leaves)
    fits = older.root.codec.layout == draft.codec.layout
    numbers = draft.numbers().file_sequence_number
    next_row_id = draft.next_row_id
    incoming: list[IncomingLeaf] = []
    written: list[PendingObject] = []
    for old_leaf, ordinals in found.then_in_leaves.values():
        restored, encoded = restored_leaf(draft, old_leaf, ordinals, next_row_id)
        next_row_id += 0 if restored.added_tally is None else restored.added_tally.rows
        incoming.append(restored)
        written.append(PendingObject(encoded.location, encoded.body))
    return Change.of(
        _effect(found),
        Remove(found.now),
        *(RemoveOrdinals(location, ordinals) for location, (_, ordinals) in found.now_in_leaves.items()),
        Add(tuple(_restored_row(draft, live, numbers, fits=fits) for live in found.then)),
        *map(TakeLeaf, incoming),
        RestoreVersion(version),
        objects=tuple(written),
    )


def _leaf_of(row: ContentEntry, version: Version, fetched: FetchedObjects) -> Leaf:
    """The leaf of a root row, if it matches the row."""
    read = fetched.of(LeafNeed(row.location))
    if (
        isinstance(read, Absent)
        or read.leaf.length != row.record_count
        or read.leaf.size_in_bytes != row.file_size_in_bytes
    ):
        raise Invalid("restore-impossible", f"leaf {row.location} of version {version} cannot be read")
    return read.leaf


def _older(root: Root, fetched: FetchedObjects, places: Iterable[VectorNeed]) -> OlderVersion:
    found = {(at.location, at.offset): fetched.of(at) for at in places}
    try:
        return OlderVersion(root, {at: BitMap(vector) for at, vector in found.items() if isinstance(vector, BitMap64)})
    except Corrupt as error:
        raise Invalid("restore-impossible", f"version {root.header.version}: {error.message}") from error


def _restored_row(draft: Draft, live: Live, number: int | None, *, fits: bool) -> Row:
    """The row of a restored entry: added by this snapshot, with the data sequence number it had."""
    numbers = VersionInfo(Status.ADDED, draft.snapshot_id, live.entry.version_info.sequence_number, number)
    if live.row is not None:
        row = live.row.with_version_info(numbers)
        return row if fits else row.in_layout_of(draft.codec)
    return Row.of(live.entry.with_version_info(numbers), draft.codec)


def _effect(found: Difference) -> Effect:
    effect = Effect.NOTHING
    for lives, of_data in ((found.then, Effect.ADDS), (found.now, Effect.REMOVES)):
        for live in lives:
            effect |= of_data if _is_data(live.entry) else Effect.ADDS | Effect.REMOVES
    for leaves, of_data in ((found.then_in_leaves, Effect.ADDS), (found.now_in_leaves, Effect.REMOVES)):
        for leaf, _ in leaves.values():
            effect |= of_data if leaf.content is LeafContent.DATA else Effect.ADDS | Effect.REMOVES
    return effect


def _is_data(entry: ContentEntry) -> bool:
    return entry.content_type is ContentType.DATA


def restored_leaf(draft: Draft, older: Leaf, ordinals: BitMap, next_row_id: int) -> tuple[IncomingLeaf, EncodedLeaf]:
    """A leaf with these entries of `older`, and its object to store. `older` is no longer part of the table.

    Args:
        draft: the draft that the leaf is added to.
        older: a leaf, read with the root row that referenced it.
        ordinals: at least one entry, none DELETED.
        next_row_id: of the table. The entries have row ids already, so the range of ids of the leaf's row stays unused.
    """
    encoded = encode_columns(_columns(older, ordinals), leaf_uuid=_uuid(draft, older), content=older.content)
    leaf = decode_leaf(encoded.body, location=encoded.location)
    is_data = older.content is LeafContent.DATA
    spec_id = older.entries_at([ordinals.min()])[0].partition_spec_id
    aggregates = aggregates_of(leaf, draft.definition.spec_by_id(spec_id).expr_ids)
    entry = ContentEntry(
        content_type=ContentType.DATA_MANIFEST if is_data else ContentType.DELETE_MANIFEST,
        location=leaf.location,
        file_format=FileFormat.PARQUET,
        version_info=draft.numbers(),
        partition_spec_id=spec_id,
        record_count=leaf.length,
        file_size_in_bytes=leaf.size_in_bytes,
        manifest_stats=aggregates.manifest_stats,
        first_row_id=next_row_id if is_data else None,
        content_stats=aggregates.content_stats,
    )
    lookup = LeafLookup(leaf.of_row(entry))
    return IncomingLeaf(lookup, Row.of(entry, draft.codec), BitMap(), tally_of_leaf(leaf)), encoded


def _columns(older: Leaf, ordinals: BitMap) -> pa.Table:
    table = older.table.take(pa.array(ordinals, pa.int64()))
    at = table.column_names.index(_VERSION_INFO)
    info = table.column(at).combine_chunks()
    members = []
    for member, values in zip(info.type, info.flatten(), strict=True):
        if member.name == "status":
            values = pa.array([int(Status.ADDED)] * len(values), member.type)
        elif member.name != "sequence_number":
            values = pa.nulls(len(values), member.type)
        members.append(values)
    return table.set_column(at, table.schema.field(at), pa.StructArray.from_arrays(members, fields=list(info.type)))


def _uuid(draft: Draft, older: Leaf) -> uuid.UUID:
    """A new uuid for each restore, because the same entries may be restored twice."""
    named = f"{draft.definition.table_uuid}/{draft.version}/{draft.sequence_number}/{older.location}"
    return uuid.UUID(bytes=hashlib.sha256(named.encode()).digest()[:16])
