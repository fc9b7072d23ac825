"""Join the next root from the parent's blocks and one new block.

Owns: which rows go into which block. Does not own: the bytes of rows, blocks and files (`root_codec`), what changed
(`draft`).
Invariants:
* A block whose rows do not change is the same object in the next root. Its bytes are reused.
* Rows that show this snapshot's change (ADDED, DELETED) are in the last blocks only. DELETED rows are in one root only.
* When the layout of statistics changes, every row with statistics is encoded in the new layout.

Layout: settled blocks of EXISTING rows, then the open block. The open block contains the youngest EXISTING rows and
this snapshot's change, and is rebuilt in each root, so it is kept short. When its EXISTING rows become too many, they
settle: they join the last settled block while that has room, or make new ones. A row is compressed only a few times,
however large the root becomes.

Source: format page, "Root manifest" and "Status".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import RootBlock, Row, encode_root, seal, sync_marker
from rootline.schemas.content_entry import Status, VersionInfo, unchecked_version_info
from rootline.schemas.root_header import RootHeader
from rootline.tree.commit.advance_index import advanced_index
from rootline.tree.commit.manifest_vectors import ManifestVectorUpdate, manifest_vector_updates
from rootline.tree.draft.draft import Draft
from rootline.tree.state.live_index import YOUNG_ROWS_MAX, unsettled_blocks
from rootline.tree.state.table_state import NO_PAGES, TablePages, TableState

BLOCK_ROWS_MAX: Final = 256
BLOCK_BYTES_MAX: Final = 64 * 1024
"""Bytes of a block before compression."""


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
