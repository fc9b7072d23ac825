"""Rules for the leaves that an intent names, and the checks of a writer's leaf before it is added to the tree.

Owns: where leaves are stored, the need for a leaf, the rules between a writer's leaf, its intent, the other leaves and
the live set, and its root row. Does not own: the leaf's own entries (`leaf_proof`), deletes in it (`delete_rules`), the
rules of workers' leaves (`flush`).
Invariants:
* A checked leaf has the content type, number of entries and size that its intent states.
* A leaf is in the tree at most once.
* Its entries are not live yet, and are nowhere else in its intent.
* The aggregates, counts and numbers of its row are computed by the coordinator.
* The entries of a data leaf are checked by columns. One by one, only their locations are hashed.

Source: format page, "Leaf manifest" and "Row ids". Protocol page, section 2, "Validation".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap
from typing_extensions import override

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, FileFormat
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from rootline.schemas.intent_rules import check_location
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import Absent, FetchedObjects, Need, Needs
from rootline.tree.draft.change import IncomingLeaf
from rootline.tree.draft.draft import LONG_MAX, Draft
from rootline.tree.proof.file_proof import check_intent_rows, verifies_files
from rootline.tree.proof.leaf_proof import LeafProof, prove_leaf
from rootline.tree.state.leaf_lookup import LeafLookup

LEAVES_PREFIX: Final = "metadata/leaves/"
CONTENT_OF: Final = {
    ContentType.DATA_MANIFEST: LeafContent.DATA,
    ContentType.DELETE_MANIFEST: LeafContent.DELETE,
}
LEAVES_BYTES_MAX: Final = 512 * 1024 * 1024
"""The most bytes of one intent's leaves, which are in memory together: about one or two million files."""
_FILES: Final = (ContentType.DATA, ContentType.EQUALITY_DELETE)


@dataclass(frozen=True, slots=True)
class ReadLeaf:
    """A leaf that was read, with its proof if one was demanded."""

    leaf: Leaf
    proof: LeafProof | None = None


@dataclass(frozen=True, slots=True)
class LeafNeed(Need[ReadLeaf | Absent]):
    """The leaf at a location.

    * `proving`: the definition to prove it under. Leaves of maintenance need no proof.
    * `prefixes`: absolute locations below which its data files may be.
    * `older`: its root row and the definition, needed to read a manifest of an older format.
    """

    location: str
    proving: TableDefinition | None = field(default=None, compare=False)
    older: tuple[ContentEntry, TableDefinition] | None = field(default=None, compare=False)
    prefixes: Sequence[str] = field(default=(), compare=False)

    @override
    def joined(self, later: LeafNeed) -> LeafNeed:
        proving, older = later.proving or self.proving, later.older or self.older
        return LeafNeed(self.location, proving, older, later.prefixes or self.prefixes)


def check_stated(manifest: AddedManifest, leaf: Leaf, name: str) -> None:
    """Raises `Invalid` (`leaf-invalid`) unless `leaf` matches `manifest`. `name`: for error messages."""
    if leaf.content is not CONTENT_OF[manifest.content_type]:
        raise Invalid("leaf-invalid", f"{name} contains {leaf.content} entries, unlike the content type in the intent")
    if leaf.length != manifest.record_count or leaf.size_in_bytes != manifest.file_size_in_bytes:
        raise Invalid(
            "leaf-invalid",
            f"{name} has {leaf.length} entries in {leaf.size_in_bytes} bytes, the intent states "
            f"{manifest.record_count} in {manifest.file_size_in_bytes}",
        )


def missing_leaves(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Needs | None:
    """The leaves to fetch before `writer_leaves`, after every check that does not need them.

    Raises:
        Invalid: `location-invalid`, `leaf-invalid`, `spec-unknown`, `file-already-live`.
    """
    for manifest in intent.add_manifests:
        _check_manifest(draft, intent, manifest)
    size = sum(manifest.file_size_in_bytes for manifest in intent.add_manifests)
    if size > LEAVES_BYTES_MAX:
        raise Invalid(
            "intent-too-large", f"the intent lists {size} bytes of leaves, at most {LEAVES_BYTES_MAX}: split it"
        )
    missing = [item.location for item in intent.add_manifests if _is_missing(item, draft, fetched)]
    needs = Needs.of(LeafNeed(each, draft.definition, prefixes=draft.file_prefixes) for each in missing)
    return needs or None


def _is_missing(manifest: AddedManifest, draft: Draft, fetched: FetchedObjects) -> bool:
    """Whether the leaf was not fetched, or its files were not verified although the table requires it."""
    need = LeafNeed(manifest.location)
    if need not in fetched:
        return True
    found = fetched.of(need)
    if isinstance(found, Absent) or not verifies_files(draft.definition):
        return False
    return found.proof is None or found.proof.file_faults is None


def writer_leaves(
    draft: Draft, intent: Intent, fetched: FetchedObjects, rows: Sequence[Row]
) -> tuple[IncomingLeaf, ...]:
    """The leaves of an intent, proven, with their root rows. Data leaves are first.

    Args:
        draft: the draft that they are added to.
        intent: lists the leaves.
        fetched: each of the leaves, or the reason why it could not be read.
        rows: the other root rows that the intent adds. Their row ids are first.

    Raises:
        Invalid: `leaf-missing`, `leaf-invalid` and every code that an entry can cause. The message names leaf and
            entry.
    """
    if not intent.add_manifests:
        return ()
    next_row_id, size = draft.next_row_id, draft.counts.data_bytes
    for row in rows:
        if row.entry.first_row_id is not None:
            next_row_id = row.entry.first_row_id + row.entry.record_count
            size += row.entry.file_size_in_bytes or 0
    limits = draft.row_limits
    found: list[IncomingLeaf] = []
    for manifest in sorted(intent.add_manifests, key=lambda item: item.content_type):
        read = _stated(manifest, fetched)
        leaf, proof = read.leaf, _proof(read, draft)
        entry = _root_row(draft, manifest, leaf, proof, next_row_id)
        if proof.tally is not None and entry.first_row_id is not None:
            next_row_id += proof.rows
            size += proof.tally.data_bytes
        if next_row_id > LONG_MAX or size > LONG_MAX:
            raise Invalid("intent-malformed", f"leaf {leaf.location!r}: the table's counters would exceed 64 bits")
        check_intent_rows(next_row_id - draft.next_row_id, limits)
        lookup = LeafLookup(leaf.of_row(entry))
        found.append(IncomingLeaf(lookup, Row.of(entry, draft.codec), BitMap(), proof.tally))
    _check_places(draft, intent, [item.lookup.leaf for item in found if item.lookup.leaf.content is LeafContent.DATA])
    return tuple(found)


def _check_manifest(draft: Draft, intent: Intent, manifest: AddedManifest) -> None:
    name = f"leaf {manifest.location[:120]!r}"
    check_location(manifest.location)
    if not manifest.location.startswith(LEAVES_PREFIX):
        raise Invalid("location-invalid", f"{name} is not in {LEAVES_PREFIX}: write it there")
    allowed = list(CONTENT_OF) if intent.kind is IntentKind.ROW_DELTA else [ContentType.DATA_MANIFEST]
    if manifest.content_type not in allowed:
        raise Invalid(
            "leaf-invalid",
            f"{name}: an intent of kind {intent.kind} cannot add content type {int(manifest.content_type)}",
        )
    if manifest.file_format is not FileFormat.PARQUET:
        raise Invalid("leaf-invalid", f"{name}: a writer's leaf is Parquet, not {manifest.file_format}")
    if manifest.referenced_file is not None and manifest.content_type is ContentType.DATA_MANIFEST:
        raise Invalid("leaf-invalid", f"{name}: a data leaf must not have referenced_file")
    if manifest.location in draft.live.leaf_rows or manifest.location in draft.in_leaves.incoming:
        raise Invalid("file-already-live", f"{name} is already part of the table: write a new leaf for each intent")
    draft.definition.spec_by_id(manifest.partition_spec_id)


def _stated(manifest: AddedManifest, fetched: FetchedObjects) -> ReadLeaf:
    """The leaf, if it matches the intent."""
    found = fetched.of(LeafNeed(manifest.location))
    name = f"leaf {manifest.location!r}"
    if isinstance(found, Absent):
        if found.fault is None:
            raise Invalid(
                "leaf-missing", f"{name} does not exist, or is not a regular file: store it, then publish again"
            )
        raise Invalid("leaf-invalid", f"{name}: {found.fault}")
    check_stated(manifest, found.leaf, name)
    return found


def _proof(read: ReadLeaf, draft: Draft) -> LeafProof:
    """The proof of a leaf, computed unless the known one is under the draft's definition."""
    known, definition, prefixes = read.proof, draft.definition, draft.file_prefixes
    is_of_this = known is not None and known.is_under(definition, prefixes)
    proof = known if known is not None and is_of_this else prove_leaf(read.leaf, definition, prefixes)
    if proof.fault is not None:
        raise proof.fault
    if known is not None and known.file_faults and verifies_files(definition):
        raise known.file_faults[0]
    return proof


def _root_row(draft: Draft, manifest: AddedManifest, leaf: Leaf, proof: LeafProof, next_row_id: int) -> ContentEntry:
    aggregates = proof.aggregates
    if proof.spec_id != manifest.partition_spec_id or aggregates is None:
        raise Invalid(
            "leaf-invalid",
            f"leaf {leaf.location!r} has entries of spec {proof.spec_id}, the intent states "
            f"{manifest.partition_spec_id}",
        )
    numbers = draft.numbers()
    return ContentEntry(
        content_type=manifest.content_type,
        location=manifest.location,
        file_format=FileFormat.PARQUET,
        version_info=numbers,
        partition_spec_id=manifest.partition_spec_id,
        record_count=leaf.length,
        file_size_in_bytes=leaf.size_in_bytes,
        manifest_stats=replace(aggregates.manifest_stats, min_sequence_number=numbers.sequence_number or 0),
        referenced_file=manifest.referenced_file,
        first_row_id=next_row_id if leaf.content is LeafContent.DATA else None,
        content_stats=aggregates.content_stats,
    )


def _check_places(draft: Draft, intent: Intent, leaves: Sequence[Leaf]) -> None:
    """Check that no location of `leaves` is in another leaf, elsewhere in the intent, or live in the table."""
    if not leaves:
        return
    columns = [leaf.columns(["location"]).column(0) for leaf in leaves]
    locations = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    if len(leaves) > 1 and pc.count_distinct(locations).as_py() < len(locations):
        counts = pc.value_counts(locations)
        twice = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))[0]["values"].as_py()
        raise _named_twice(leaves, twice, "in more than one leaf of the intent")
    for location in _among(named_locations(intent), locations):
        raise _named_twice(leaves, location, "both in a leaf of the intent and outside it")
    candidates = [*_among(_in_root(draft), locations), *_in_leaves(draft, locations)]
    for location in candidates:
        if draft.is_live(location):
            raise Invalid("file-already-live", f"{_where(leaves, location)}: {location!r} is already part of the table")


def named_locations(intent: Intent) -> list[str]:
    """Locations of the files that an intent lists itself, outside leaves."""
    lists = (intent.add_data_files, intent.add_equality_deletes, intent.remove_files)
    return [item.location for items in lists for item in items]


def _in_root(draft: Draft) -> list[str]:
    places = (*draft.live.rows, *draft.rows.new_rows)
    return [place.location for place in places if place.content_type in _FILES]


def _in_leaves(draft: Draft, locations: pa.ChunkedArray) -> list[str]:
    """The locations that may be in a leaf of the table, dead or not."""
    if not draft.live.lookups and not draft.in_leaves.incoming:
        return []
    names: list[str] = locations.to_pylist()
    index = draft.live.locations
    found = {names[at] for at in index.among(names)}
    if any(lookup.holds(ContentType.EQUALITY_DELETE) for lookup in draft.live.lookups.values()):
        places = [EntryPlace(ContentType.EQUALITY_DELETE, name) for name in names]
        found.update(names[at] for at in index.among(places))
    for incoming in draft.in_leaves.incoming.values():
        found.update(_among(incoming.lookup.leaf.columns(["location"]).column(0).to_pylist(), locations))
    return sorted(found)


def _among(names: Iterable[str], locations: pa.ChunkedArray) -> list[str]:
    """The names that are among `locations`."""
    wanted = pa.array(list(names), pa.string())
    if not len(wanted):
        return []
    found: list[str] = locations.filter(pc.is_in(locations, value_set=wanted)).to_pylist()
    return found


def _named_twice(leaves: Sequence[Leaf], location: str, where: str) -> Invalid:
    return Invalid("file-named-twice", f"{_where(leaves, location)}: {location!r} is listed {where}")


def _where(leaves: Sequence[Leaf], location: str) -> str:
    """The leaf and entry of a location in `leaves`."""
    for leaf in leaves:
        ordinal = pc.index(leaf.columns(["location"]).column(0), location).as_py()
        if ordinal >= 0:
            return f"leaf {leaf.location!r}, entry {ordinal}"
    return "the intent's leaves"
