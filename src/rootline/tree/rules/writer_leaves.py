"""Leaves that a writer wrote, on their way into the tree.

Owns: what must hold between such a leaf, its intent, the other leaves and the live set; its root row. Does not own:
the leaf's own entries (`leaf_proof`), deletes in it (`writer_deletes`), leaves of workers (`flush`).
Invariants: a leaf is in the tree once; what it adds is not live yet and is in no other place of its intent;
its row's aggregates, counts and numbers are the coordinator's own; the entries of a data leaf are looked at by
columns, one by one only to hash their locations.

Source: format page, "Leaf manifest" and "Row ids"; protocol page, section 2, "Validation".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, FileFormat
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from rootline.schemas.intent_rules import check_location
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import IncomingLeaf
from rootline.tree.draft.draft import LONG_MAX, Draft
from rootline.tree.proof.file_verification import verifies_files
from rootline.tree.proof.leaf_proof import LeafProof, prove_leaf
from rootline.tree.proof.row_limits import check_intent_rows
from rootline.tree.rules.named_leaves import CONTENT_OF, LEAVES_PREFIX, check_stated
from rootline.tree.state.leaf_lookup import LeafLookup

LEAVES_BYTES_MAX: Final = 512 * 1024 * 1024
"""Of the leaves of one intent: they are in memory at once while it is decided. A million files or two."""
_FILES: Final = (ContentType.DATA, ContentType.EQUALITY_DELETE)


def missing_leaves(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Needs | None:
    """What must be fetched before `writer_leaves`; every rule that needs no leaf is checked before.

    Raises:
        Invalid: `location-invalid`, `leaf-invalid`, `spec-unknown`, `file-already-live`.

    """
    for manifest in intent.add_manifests:
        _check_manifest(draft, intent, manifest)
    size = sum(manifest.file_size_in_bytes for manifest in intent.add_manifests)
    if size > LEAVES_BYTES_MAX:
        raise Invalid("intent-too-large", f"the intent names {size} bytes of leaves, of {LEAVES_BYTES_MAX}: split it")
    absent = frozenset(item.location for item in intent.add_manifests if _is_missing(item, draft, fetched))
    return Needs(absent, proving=dict.fromkeys(absent, draft.definition)) if absent else None


def _is_missing(manifest: AddedManifest, draft: Draft, fetched: FetchedObjects) -> bool:
    """Whether the leaf is not there, or its files were not looked at although the table asks for that."""
    location = manifest.location
    if fetched.leaves.get(location) is None or not verifies_files(draft.definition):
        return location not in fetched.leaves
    proof = fetched.proofs.get(location)
    return proof is None or proof.file_faults is None


def writer_leaves(
    draft: Draft, intent: Intent, fetched: FetchedObjects, rows: Sequence[Row]
) -> tuple[IncomingLeaf, ...]:
    """The leaves of an intent, proven, with their root rows; data leaves first.

    Args:
        draft: what they are added to.
        intent: names them.
        fetched: holds every one of them, or why it could not be read.
        rows: the root rows that the intent adds besides, whose row ids come first.

    Raises:
        Invalid: `leaf-missing`, `leaf-invalid` and whatever else an entry can break; the message names leaf and entry.

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
        leaf = _stated(manifest, fetched)
        proof = _proof(leaf, draft, fetched)
        entry = _root_row(draft, manifest, leaf, proof, next_row_id)
        if proof.tally is not None and entry.first_row_id is not None:
            next_row_id += proof.rows
            size += proof.tally.data_bytes
        if next_row_id > LONG_MAX or size > LONG_MAX:
            raise Invalid("intent-malformed", f"leaf {leaf.location!r}: the table's counters would not fit 64 bits")
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
            "leaf-invalid", f"{name}: an intent of kind {intent.kind} adds no content type {int(manifest.content_type)}"
        )
    if manifest.file_format is not FileFormat.PARQUET:
        raise Invalid("leaf-invalid", f"{name}: a writer's leaf is Parquet, not {manifest.file_format}")
    if manifest.referenced_file is not None and manifest.content_type is ContentType.DATA_MANIFEST:
        raise Invalid("leaf-invalid", f"{name}: a data leaf belongs to no other leaf")
    if manifest.location in draft.live.leaf_rows or manifest.location in draft.in_leaves.incoming:
        raise Invalid("file-already-live", f"{name} is part of the table already: a leaf belongs to one intent")
    draft.definition.spec_by_id(manifest.partition_spec_id)


def _stated(manifest: AddedManifest, fetched: FetchedObjects) -> Leaf:
    """The leaf, if it is what the intent says."""
    leaf = fetched.leaves[manifest.location]
    name = f"leaf {manifest.location!r}"
    if leaf is None:
        trouble = fetched.troubles.get(manifest.location)
        if trouble is None:
            raise Invalid(
                "leaf-missing", f"{name} does not exist, or is not a regular file: store it, then publish the intent"
            )
        raise Invalid("leaf-invalid", f"{name}: {trouble}")
    check_stated(manifest, leaf, name)
    return leaf


def _proof(leaf: Leaf, draft: Draft, fetched: FetchedObjects) -> LeafProof:
    known = fetched.proofs.get(leaf.location)
    is_of_this = known is not None and known.is_under(draft.definition)
    proof = known if known is not None and is_of_this else prove_leaf(leaf, draft.definition)
    if proof.fault is not None:
        raise proof.fault
    if known is not None and known.file_faults and verifies_files(draft.definition):
        raise known.file_faults[0]
    return proof


def _root_row(draft: Draft, manifest: AddedManifest, leaf: Leaf, proof: LeafProof, next_row_id: int) -> ContentEntry:
    aggregates = proof.aggregates
    if proof.spec_id != manifest.partition_spec_id or aggregates is None:
        raise Invalid(
            "leaf-invalid",
            f"leaf {leaf.location!r} has entries of spec {proof.spec_id}, the intent says {manifest.partition_spec_id}",
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
    """No location of `leaves` is anywhere else: in another leaf, in the intent, in the table."""
    if not leaves:
        return
    columns = [leaf.columns(["location"]).column(0) for leaf in leaves]
    locations = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    if len(leaves) > 1 and pc.count_distinct(locations).as_py() < len(locations):
        counts = pc.value_counts(locations)
        twice = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))[0]["values"].as_py()
        raise _named_twice(leaves, twice, "in more than one leaf of the intent")
    for location in _among(named_locations(intent), locations):
        raise _named_twice(leaves, location, "in a leaf of the intent and beside it")
    candidates = [*_among(_in_root(draft), locations), *_in_leaves(draft, locations)]
    for location in candidates:
        if draft.is_live(location):
            raise Invalid("file-already-live", f"{_where(leaves, location)}: {location!r} is part of the table already")


def named_locations(intent: Intent) -> list[str]:
    """Locations of the files that an intent names itself, one by one."""
    lists = (intent.add_data_files, intent.add_equality_deletes, intent.remove_files)
    return [item.location for items in lists for item in items]


def _in_root(draft: Draft) -> list[str]:
    places = (*draft.live.rows, *draft.rows.new_rows)
    return [place.location for place in places if place.content_type in _FILES]


def _in_leaves(draft: Draft, locations: pa.ChunkedArray) -> list[str]:
    """Those of `locations` that some leaf of the table may hold, dead or not."""
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
    """Those of `names` that are among `locations`."""
    held = pa.array(list(names), pa.string())
    if not len(held):
        return []
    found: list[str] = locations.filter(pc.is_in(locations, value_set=held)).to_pylist()
    return found


def _named_twice(leaves: Sequence[Leaf], location: str, where: str) -> Invalid:
    return Invalid("file-named-twice", f"{_where(leaves, location)}: {location!r} is named {where}")


def _where(leaves: Sequence[Leaf], location: str) -> str:
    """The leaf and entry of a location that is known to be in one of `leaves`."""
    for leaf in leaves:
        ordinal = pc.index(leaf.columns(["location"]).column(0), location).as_py()
        if ordinal >= 0:
            return f"leaf {leaf.location!r}, entry {ordinal}"
    return "the intent's leaves"
