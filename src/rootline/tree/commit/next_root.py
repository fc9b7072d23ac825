"""Join the next root from the parent's blocks and a new one, with its manifest vectors and the index of live entries.

Owns: which rows go into which block, the rows of manifest vectors, the next version's index. Does not own: the bytes of
rows, blocks and files (`root_codec`), what changed (`draft`), which entries are dead in a new leaf (`flush`).
Invariants:
* A block whose rows do not change is the same object in the next root. Its bytes are reused.
* Rows that show this snapshot's change (ADDED, DELETED) are in the last blocks only. DELETED rows are in one root only.
* When the layout of statistics changes, every row with statistics is encoded in the new layout.
* A leaf has at most one EXISTING and one ADDED vector, and the two are disjoint. Bits are only ever set. Vectors made
  here are inline.
* The index equals one that is built from scratch over the new root. The work is proportional to the change, plus one
  shallow copy.

Layout: settled blocks of EXISTING rows, then the open block. The open block contains the youngest EXISTING rows and
this snapshot's change, and is rebuilt in each root, so it is kept short. When its EXISTING rows become too many, they
settle: they join the last settled block while that has room, or make new ones. A row is compressed only a few times,
however large the root becomes.

Manifest vectors: a vector that an earlier root added is folded into the leaf's EXISTING vector. Entries that this
snapshot removes are a second vector of the leaf, with status ADDED.

Source: format page, "Root manifest", "Status" and "Manifest vectors".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import RootBlock, Row, encode_root, seal, sync_marker
from rootline.schemas.bytes.vector_codec import encode_inline
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    VersionInfo,
    quick,
    unchecked_version_info,
)
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.change import IncomingLeaf, StoreVector, is_added_leaf
from rootline.tree.draft.draft import Draft
from rootline.tree.state.live_index import YOUNG_ROWS_MAX, LiveIndex, StoredAt, unsettled_blocks
from rootline.tree.state.table_state import NO_PAGES, TablePages, TableState

BLOCK_ROWS_MAX: Final = 256
BLOCK_BYTES_MAX: Final = 64 * 1024
"""Bytes of a block before compression."""
_live_index: Final = quick(LiveIndex)
_Value = TypeVar("_Value")


def next_root(draft: Draft, header: RootHeader, pages: TablePages = NO_PAGES) -> tuple[TableState, bytes]:
    """The state after `draft`, and its root's bytes.

    Args:
        draft: with the place of every vector set.
        header: of the new root.
        pages: referenced by the header.
    """
    parent = draft.parent
    sync = sync_marker(header.table_uuid) if parent is None else parent.root.sync
    vectors = manifest_vector_updates(draft)
    blocks = _Blocks(draft, sync)
    rows = _RowGroups.of(draft, vectors, blocks)
    young = [*rows.unchanged, *rows.existing]
    if len(young) > YOUNG_ROWS_MAX:
        blocks.settle(young)
        young = []
    first_shown = len(blocks.settled)
    sealed = [*blocks.settled, *map(blocks.seal, _chunks([*young, *rows.added, *rows.removed]))]
    root, body = encode_root(header, sealed, draft.codec, sync)
    unsettled = unsettled_blocks(root, max(0, min(first_shown, len(sealed) - 1)))
    index = advanced_index(draft, rows.fresh, vectors, unsettled)
    changed = draft.in_leaves
    leaves: Mapping[str, Leaf] = {} if parent is None else parent.leaves
    if changed.incoming or changed.dropped:
        leaves = {location: leaf for location, leaf in leaves.items() if location not in changed.dropped}
        leaves |= {location: incoming.lookup.leaf for location, incoming in changed.incoming.items()}
    return TableState(root, draft.definition, leaves, index, pages), body


@dataclass(frozen=True, slots=True)
class _RowGroups:
    """The rows of the next root, except rows in settled blocks of the parent.

    * `unchanged`: rows of the parent that stay, as EXISTING ones.
    * `existing`: EXISTING rows that the parent does not have. They moved here, or have the content of others.
    * `added`: rows of the entries and leaves that this snapshot adds.
    * `removed`: what this snapshot removes: DELETED rows, and vectors of the entries removed from leaves.
    * `fresh`: the row objects that the parent does not have, except DELETED ones and manifest vectors.
    """

    unchanged: list[Row]
    existing: list[Row]
    added: list[Row]
    removed: list[Row]
    fresh: list[Row]

    @staticmethod
    def of(draft: Draft, vectors: Mapping[str, ManifestVectorUpdate], blocks: _Blocks) -> _RowGroups:
        """The groups after `draft`. Blocks of the parent that do not change are settled in `blocks`."""
        leaves = [*(leaf.row for leaf in draft.in_leaves.incoming.values()), *draft.in_leaves.reaffiliated.values()]
        own_vectors = [row for update in vectors.values() for row in update.fresh]
        unchanged = _unchanged(draft, vectors, blocks)
        rewritten, added = list(draft.rows.rewritten()), list(draft.rows.added())
        return _RowGroups(
            unchanged,
            _existing(leaves, rewritten, own_vectors),
            _added(added, leaves),
            _removed(draft, blocks, own_vectors),
            [*blocks.encoded, *leaves, *rewritten, *added],
        )


def _unchanged(draft: Draft, vectors: Mapping[str, ManifestVectorUpdate], blocks: _Blocks) -> list[Row]:
    if draft.parent is None:
        return []
    return blocks.take(draft.parent.root.blocks, draft.parent.live.unsettled, _replaced_row_ids(draft, vectors))


def _existing(leaves: Sequence[Row], rewritten: Sequence[Row], vectors: Sequence[Row]) -> list[Row]:
    return [row for row in (*leaves, *rewritten, *vectors) if row.entry.version_info.status is Status.EXISTING]


def _added(added: Sequence[Row], leaves: Sequence[Row]) -> list[Row]:
    return [*added, *(row for row in leaves if row.entry.version_info.status is Status.ADDED)]


def _removed(draft: Draft, blocks: _Blocks, vectors: Sequence[Row]) -> list[Row]:
    rows = [*map(blocks.fitting, draft.rows.removed.values()), *draft.rows.rewritten_removed]
    return [
        *(_deleted(draft, row) for row in rows),
        *(row for row in vectors if row.entry.version_info.status is not Status.EXISTING),
    ]


class _Blocks:
    """Blocks of the next root: blocks of the parent that are reused (`settled`), and new ones.

    `encoded`: rows of the parent that had to be encoded again, because their status or their layout changed.
    """

    def __init__(self, draft: Draft, sync: bytes) -> None:
        self.settled: list[RootBlock] = []
        self.encoded: list[Row] = []
        self._draft = draft
        self._sync = sync
        self._open: list[RootBlock] = []
        self._fits = draft.parent is None or draft.parent.root.codec.layout == draft.codec.layout

    def fitting(self, row: Row) -> Row:
        """A row of the parent, in the statistics layout of the next root."""
        return row if self._fits else row.in_layout_of(self._draft.codec)

    def take(self, blocks: Sequence[RootBlock], unsettled: tuple[int, ...], replaced: set[int]) -> list[Row]:
        """Settle the parent's blocks: reused, or rebuilt without the rows in `replaced`. Returns the rows of the
        others.
        """
        young: list[Row] = []
        opened = set(unsettled) if self._fits else set(range(len(blocks)))
        for ordinal, block in enumerate(blocks):
            if ordinal in opened:
                self._open.append(block)
                young += self._settling(block.rows, replaced)
            elif replaced and any(id(row) in replaced for row in block.rows):
                rest = [row for row in block.rows if id(row) not in replaced]
                if len(rest) < len(block.rows) // 2 or _size(rest) < BLOCK_BYTES_MAX // 4:
                    young += rest
                else:
                    self.settled.append(self.seal(rest))
            else:
                self.settled.append(block)
        return young

    def settle(self, young: Sequence[Row]) -> None:
        """Add rows to the last settled block if it has room, and to new ones."""
        rows = [*_rows_of_last(self.settled, _size(young)), *young]
        self.settled += [self.seal(chunk) for chunk in _chunks(rows)]

    def seal(self, rows: Sequence[Row]) -> RootBlock:
        """A block of `rows`: an open block of the parent if it has exactly these rows."""
        for block in self._open:
            if len(block.rows) == len(rows) and all(map(_is, block.rows, rows)):
                return block
        return seal(rows, self._draft.codec, self._sync)

    def _settling(self, rows: Iterable[Row], replaced: set[int]) -> Iterator[Row]:
        for row in rows:
            numbers = row.entry.version_info
            if id(row) in replaced or numbers.status is Status.DELETED:
                continue
            fitting = self.fitting(row)
            if numbers.status is Status.EXISTING:
                if fitting is not row:
                    self.encoded.append(fitting)
                yield fitting
                continue
            existing = fitting.with_version_info(
                unchecked_version_info(
                    Status.EXISTING, numbers.snapshot_id, numbers.sequence_number, numbers.file_sequence_number
                )
            )
            self.encoded.append(existing)
            yield existing


def _replaced_row_ids(draft: Draft, vectors: Mapping[str, ManifestVectorUpdate]) -> set[int]:
    """The identities of the parent's row objects that the next root changes or drops."""
    replaced = {id(row) for rows in (draft.rows.removed, draft.rows.moved) for row in rows.values()}
    replaced.update(id(row) for update in vectors.values() for row in update.replaced)
    replaced.update(id(draft.live.leaf_rows[location]) for location in draft.in_leaves.reaffiliated)
    replaced.update(id(row) for row in draft.live.orphans)
    for location in draft.in_leaves.dropped:
        replaced.add(id(draft.live.leaf_rows[location]))
        replaced.update(id(row) for row in draft.live.manifest_vector_rows.get(location, ()))
    return replaced


def _deleted(draft: Draft, row: Row) -> Row:
    numbers = row.entry.version_info
    return row.with_version_info(
        VersionInfo(Status.DELETED, draft.snapshot_id, numbers.sequence_number, numbers.file_sequence_number)
    )


def _rows_of_last(blocks: list[RootBlock], more_bytes: int) -> tuple[Row, ...]:
    """Remove the last block if it has room for `more_bytes`, and return its rows."""
    if blocks and len(blocks[-1].rows) < BLOCK_ROWS_MAX and _size(blocks[-1].rows) + more_bytes <= BLOCK_BYTES_MAX:
        return blocks.pop().rows
    return ()


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        size += len(row.tail)
        if chunk and (size > BLOCK_BYTES_MAX or len(chunk) >= BLOCK_ROWS_MAX):
            yield chunk
            chunk, size = [], len(row.tail)
        chunk.append(row)
    if chunk:
        yield chunk


def _size(rows: Iterable[Row]) -> int:
    return sum(len(row.tail) for row in rows)


def _is(one: Row, other: Row) -> bool:
    return one is other


@dataclass(frozen=True, slots=True)
class ManifestVectorUpdate:
    """One leaf's vectors: rows of the parent to drop, new rows, all rows of the next root, and their union."""

    replaced: tuple[Row, ...]
    fresh: tuple[Row, ...]
    rows: tuple[Row, ...]
    dead: BitMap


def manifest_vector_updates(draft: Draft) -> dict[str, ManifestVectorUpdate]:
    """The updates of every leaf whose vectors change, by leaf. Dropped leaves are not included."""
    updates: dict[str, ManifestVectorUpdate] = {}
    leaves, stored = draft.in_leaves, draft.stored_vectors()
    changing = {*leaves.removed, *leaves.moved, *stored}
    for location, rows in draft.live.manifest_vector_rows.items():
        folds = any(row.entry.version_info.status is Status.ADDED for row in rows)
        if location not in leaves.dropped and (folds or location in changing):
            updates[location] = _update_of_known(draft, location, rows, stored.get(location), folds=folds)
    for location in (*leaves.removed, *leaves.moved):
        if location not in updates and location not in leaves.incoming and location not in leaves.dropped:
            updates[location] = _update_of_known(draft, location, (), stored.get(location), folds=False)
    for location, incoming in leaves.incoming.items():
        if is_added_leaf(incoming):
            if location in leaves.removed:
                updates[location] = _never_live(draft, location, incoming)
            continue
        existing: tuple[Row, ...] = ()
        if incoming.dead:
            numbers = incoming.row.entry.version_info
            existing = (_row(incoming.row.entry, incoming.dead, numbers, draft.codec),)
        if existing or location in leaves.removed:
            updates[location] = _update(draft, location, (), existing, incoming.dead)
    return updates


def _update_of_known(
    draft: Draft, location: str, rows: tuple[Row, ...], stored: StoreVector | None, *, folds: bool
) -> ManifestVectorUpdate:
    dead = draft.live.dead.get(location, BitMap())
    moved = draft.in_leaves.moved.get(location)
    if moved is not None:
        dead, numbers = dead | moved.ordinals, draft.numbers_at(moved.number)
    elif stored is not None:
        return _update(draft, location, rows, (stored.row,), dead)
    elif not folds:
        return _update(draft, location, (), (), dead, unchanged=rows)
    else:
        newest = max((row.entry.version_info for row in rows), key=lambda info: info.sequence_number or 0)
        numbers = VersionInfo(Status.EXISTING, newest.snapshot_id, newest.sequence_number, newest.file_sequence_number)
    folded = _row(draft.live.leaf_rows[location].entry, dead, numbers, draft.codec)
    return _update(draft, location, rows, (folded,), dead)


def _never_live(draft: Draft, location: str, leaf: IncomingLeaf) -> ManifestVectorUpdate:
    """The vector of entries that one root both adds and removes. They were never live, so no change shows them."""
    removed = draft.in_leaves.removed[location]
    row = _row(leaf.row.entry, removed.ordinals, draft.numbers_at(removed.number), draft.codec)
    return ManifestVectorUpdate((), (row,), (row,), removed.ordinals)


def _update(
    draft: Draft,
    location: str,
    replaced: tuple[Row, ...],
    existing: tuple[Row, ...],
    dead: BitMap,
    unchanged: tuple[Row, ...] = (),
) -> ManifestVectorUpdate:
    """`existing` rows are new, `unchanged` ones the parent's. An ADDED row has the entries removed by this batch."""
    removed = draft.in_leaves.removed.get(location)
    if removed is None:
        return ManifestVectorUpdate(replaced, existing, (*unchanged, *existing), dead)
    incoming = draft.in_leaves.incoming.get(location)
    leaf = draft.live.leaf_rows[location].entry if incoming is None else incoming.row.entry
    added = _row(leaf, removed.ordinals, draft.numbers_at(removed.number, Status.ADDED), draft.codec)
    return ManifestVectorUpdate(replaced, (*existing, added), (*unchanged, *existing, added), dead | removed.ordinals)


def _row(leaf: ContentEntry, ordinals: BitMap, numbers: VersionInfo, codec: EntryCodec) -> Row:
    entry = ContentEntry(
        content_type=ContentType.MANIFEST_DV,
        location=leaf.location,
        file_format=FileFormat.PUFFIN,
        version_info=numbers,
        partition_spec_id=leaf.partition_spec_id,
        record_count=len(ordinals),
        deletion_vector=DeletionVector(inline_content=encode_inline(ordinals)),
        referenced_file=leaf.location,
    )
    return Row.of(entry, codec)


def advanced_index(
    draft: Draft, fresh: Iterable[Row], vectors: Mapping[str, ManifestVectorUpdate], unsettled: tuple[int, ...]
) -> LiveIndex:
    """The live index after the root of `draft`.

    Args:
        draft: of the new root.
        fresh: the row objects of the new root that its parent does not have, except manifest vectors.
        vectors: the manifest vectors that change, by leaf.
        unsettled: ordinals of the new root's blocks that the next root must rewrite.
    """
    before = draft.live
    dropped = draft.in_leaves.dropped
    lookups = _without(before.lookups, dropped)
    lookups.update((location, incoming.lookup) for location, incoming in draft.in_leaves.incoming.items())
    index = _live_index(
        before.rows.copy(),
        before.vectors.copy(),
        before.equality_deletes.copy(),
        _without(before.leaf_rows, dropped),
        _without(before.manifest_vector_rows, dropped),
        _without(before.dead, dropped),
        lookups,
        before.locations.advanced(lookups),
        unsettled,
        _stored(draft, vectors),
    )
    for rows in (draft.rows.removed, draft.rows.moved):
        for place, row in rows.items():
            index.rows.pop(place, None)
            if place.content_type is ContentType.POSITION_DELETE:
                index.vectors.pop(row.entry.referenced_file or "", None)
            elif place.content_type is ContentType.EQUALITY_DELETE:
                index.equality_deletes.pop(place, None)
    for row in fresh:
        index.insert(row)
    for location, update in vectors.items():
        index.manifest_vector_rows[location] = update.rows
        index.dead[location] = update.dead
    return index


def _stored(draft: Draft, vectors: Mapping[str, ManifestVectorUpdate]) -> Mapping[StoredAt, BitMap]:
    """The manifest vectors in Puffin files that the next root still references."""
    before, moving = draft.live.stored, draft.stored_vectors()
    if not before and not moving:
        return before
    rows = {
        location: rows
        for location, rows in draft.live.manifest_vector_rows.items()
        if location not in draft.in_leaves.dropped
    }
    rows |= {location: update.rows for location, update in vectors.items()}
    known = {**before, **{_at(stored.row): stored.ordinals for stored in moving.values()}}
    return {at: known[at] for each in rows.values() for row in each if (at := _at(row)) in known}


def _at(row: Row) -> StoredAt:
    vector = row.entry.deletion_vector
    return row.entry.location, -1 if vector is None or vector.offset is None else vector.offset


def _without(items: dict[str, _Value], keys: Collection[str]) -> dict[str, _Value]:
    copied = items.copy()
    for key in keys:
        copied.pop(key, None)
    return copied
