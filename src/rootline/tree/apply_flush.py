"""The kind `flush`: leaves that take root rows over.

Owns: which entries of a leaf are live in the very row that they came from, and the leaf's own root row. Does not own:
what is flushed and when (`rootline.maintenance`), the aggregates (`aggregates`).
Invariants: no live set and no row count changes; what was removed, replaced or moved meanwhile is masked, so it can
neither come back nor double; a vector moves only along with its data file when its leaf is affiliated.

Source: protocol page, section 5.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, FileFormat, Status
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.intent import AddedManifest, Intent
from rootline.schemas.leaf_codec import MAX_ENTRIES, Leaf, LeafContent
from rootline.schemas.location_rules import check_location
from rootline.schemas.root_codec import Row
from rootline.tree.aggregates import aggregates_of
from rootline.tree.batch import Library, Needs
from rootline.tree.change import Change, Effect, FlushedLeaf
from rootline.tree.draft import Draft
from rootline.tree.leaf_lookup import LeafLookup

LEAVES_PREFIX: Final = "metadata/leaves/"
_CONTENT_OF: Final = {
    ContentType.DATA_MANIFEST: LeafContent.DATA,
    ContentType.DELETE_MANIFEST: LeafContent.DELETE,
}


def flush(draft: Draft, intent: Intent, library: Library) -> Change | Needs:
    """Raises `Invalid`: `leaf-invalid`, `location-invalid`, `version-unknown`, `flush-stale`."""
    made_from = intent.made_from_version
    if made_from is not None and made_from >= draft.version:
        raise Invalid("version-unknown", f"made_from_version {made_from} is not a version of the table yet")
    for manifest in intent.add_manifests:
        _check_manifest(draft, manifest)
    absent = frozenset(item.location for item in intent.add_manifests if item.location not in library.leaves)
    if absent:
        return Needs(absent, frozenset())
    work = _Flush(draft)
    data_first = sorted(intent.add_manifests, key=lambda manifest: manifest.content_type)
    for manifest in data_first:
        work.take(manifest, _proven(manifest, library.leaves[manifest.location]))
    if not work.flushed:
        names = ", ".join(repr(manifest.location) for manifest in intent.add_manifests[:4])
        raise Invalid("flush-stale", f"nothing of {names} is live any more in the root row that it came from")
    return Change(Effect.MAINTAINS, flushed=tuple(work.flushed.values()), moved=tuple(work.moved.values()))


class _Flush:
    """One flush intent being worked out; the draft is only read."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.moved: dict[EntryPlace, Row] = {}
        self.flushed: dict[str, FlushedLeaf] = {}
        self._seen: set[EntryPlace] = set()

    def take(self, manifest: AddedManifest, leaf: Leaf) -> None:
        """Match a leaf's entries with the root's rows."""
        draft = self.draft
        masked: list[int] = []
        moved: list[Row] = []
        try:
            for ordinal, entry in enumerate(leaf.entries()):
                row = self._source_of(entry, manifest)
                if row is None or not self._target_moves(entry, manifest):
                    masked.append(ordinal)
                else:
                    moved.append(row)
            if not moved:
                return
            leaf_row = Row.of(self._root_row(manifest, leaf), draft.codec)
        except Corrupt as error:
            raise Invalid("leaf-invalid", error.message) from error
        self.moved.update((source.entry.place, source) for source in moved)
        self.flushed[manifest.location] = FlushedLeaf(LeafLookup(leaf), leaf_row, BitMap(masked))

    def _source_of(self, entry: ContentEntry, manifest: AddedManifest) -> Row | None:
        """The root row that the entry came from, if it is still live there."""
        place = entry.place
        if entry.version_info.status is not Status.EXISTING or place in self._seen:
            raise Invalid("leaf-invalid", f"{manifest.location!r}: {entry.location!r} is not EXISTING, or there twice")
        self._seen.add(place)
        row = self.draft.root_row(place)
        if row is None or row.entry.version_info.file_sequence_number != entry.version_info.file_sequence_number:
            return None
        if not _says_the_same(row.entry, entry):
            raise Invalid("leaf-invalid", f"{manifest.location!r}: {entry.location!r} differs from its row in the root")
        return row

    def _target_moves(self, entry: ContentEntry, manifest: AddedManifest) -> bool:
        """Whether an entry of an affiliated delete leaf has its data file in that data leaf, and live."""
        if manifest.referenced_file is None:
            return True
        if entry.content_type is not ContentType.POSITION_DELETE:
            raise Invalid(
                "leaf-invalid",
                f"{manifest.location!r} belongs to one data leaf, yet holds {entry.location!r}, no vector",
            )
        place = EntryPlace(ContentType.DATA, entry.referenced_file or "")
        ours = self.flushed.get(manifest.referenced_file)
        if ours is not None:
            ordinal = ours.lookup.ordinal_of(place)
            return ordinal is not None and ordinal not in ours.masked
        lookup = self.draft.live.lookups.get(manifest.referenced_file)
        if lookup is None:
            return False
        ordinal = lookup.ordinal_of(place)
        return ordinal is not None and not self.draft.is_dead(lookup.location, ordinal)

    def _root_row(self, manifest: AddedManifest, leaf: Leaf) -> ContentEntry:
        spec_ids = self.draft.definition.spec_by_id(manifest.partition_spec_id).expr_ids
        aggregates = aggregates_of(leaf, spec_ids)
        return ContentEntry(
            content_type=manifest.content_type,
            location=manifest.location,
            file_format=FileFormat.PARQUET,
            version_info=self.draft.numbers(Status.EXISTING),
            partition_spec_id=manifest.partition_spec_id,
            record_count=leaf.length,
            file_size_in_bytes=leaf.size_in_bytes,
            manifest_stats=aggregates.manifest_stats,
            referenced_file=manifest.referenced_file,
            content_stats=aggregates.content_stats,
        )


def _check_manifest(draft: Draft, manifest: AddedManifest) -> None:
    check_location(manifest.location)
    if not manifest.location.startswith(LEAVES_PREFIX):
        raise Invalid("location-invalid", f"leaf {manifest.location[:80]!r} is not in {LEAVES_PREFIX}")
    if manifest.content_type not in _CONTENT_OF:
        raise Invalid("leaf-invalid", f"{manifest.location!r}: content type {int(manifest.content_type)} is no leaf's")
    if manifest.file_format is not FileFormat.PARQUET:
        raise Invalid("leaf-invalid", f"{manifest.location!r}: a flushed leaf is Parquet, not {manifest.file_format}")
    if manifest.location in draft.live.leaf_rows or manifest.location in draft.flushed:
        raise Invalid("flush-stale", f"leaf {manifest.location!r} is part of the table already")
    if manifest.referenced_file is not None and manifest.content_type is ContentType.DATA_MANIFEST:
        raise Invalid("leaf-invalid", f"{manifest.location!r}: a data leaf belongs to no other leaf")
    draft.definition.spec_by_id(manifest.partition_spec_id)


def _proven(manifest: AddedManifest, leaf: Leaf | None) -> Leaf:
    """The leaf, if it is what the intent says."""
    name = repr(manifest.location)
    if leaf is None:
        raise Invalid("leaf-invalid", f"{name} is absent or cannot be read")
    if leaf.content is not _CONTENT_OF[manifest.content_type]:
        raise Invalid("leaf-invalid", f"{name} holds {leaf.content} entries, the intent says otherwise")
    if leaf.length != manifest.record_count or leaf.size_in_bytes != manifest.file_size_in_bytes:
        raise Invalid(
            "leaf-invalid",
            f"{name} has {leaf.length} entries in {leaf.size_in_bytes} bytes, the intent says "
            f"{manifest.record_count} in {manifest.file_size_in_bytes}",
        )
    if leaf.length > MAX_ENTRIES:
        raise Invalid("leaf-invalid", f"{name} has {leaf.length} entries, at most {MAX_ENTRIES} can be masked inline")
    specs = set(leaf.columns(["partition_spec_id"]).column(0).to_pylist())
    if specs != {manifest.partition_spec_id}:
        raise Invalid("leaf-invalid", f"{name} has entries of spec {sorted(specs)}, not {manifest.partition_spec_id}")
    return leaf


def _says_the_same(row: ContentEntry, entry: ContentEntry) -> bool:
    """All but status and statistics: comparing those would cost more than the commit."""
    ours, theirs = row.version_info, entry.version_info
    return (
        ours.snapshot_id == theirs.snapshot_id
        and ours.sequence_number == theirs.sequence_number
        and row.record_count == entry.record_count
        and row.file_size_in_bytes == entry.file_size_in_bytes
        and row.file_format is entry.file_format
        and row.partition_spec_id == entry.partition_spec_id
        and row.deletion_vector == entry.deletion_vector
        and row.referenced_file == entry.referenced_file
        and row.first_row_id == entry.first_row_id
        and row.sort_order_id == entry.sort_order_id
        and row.key_metadata == entry.key_metadata
        and row.split_offsets == entry.split_offsets
        and row.equality_ids == entry.equality_ids
    )
