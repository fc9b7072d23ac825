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
from typing import Final

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import RootBlock, Row, encode_root, seal, sync_marker
from rootline.schemas.content_entry import Status, VersionInfo, unchecked_version_info
from rootline.schemas.root_header import RootHeader
from rootline.tree.commit.advance_index import advanced_index
from rootline.tree.commit.manifest_vectors import ManifestVectorUpdate, manifest_vector_updates
from rootline.tree.draft.draft import Draft
from rootline.tree.state.live_index import YOUNG_ROWS_MAX, unsettled_blocks
from rootline.tree.state.table_pages import NO_PAGES, TablePages
from rootline.tree.state.table_state import TableState

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
    replaced = _replaced_row_ids(draft, vectors)
    carried = _Carried(draft, sync)
    if parent is not None:
        carried.take(parent.root.blocks, parent.live.unsettled, replaced)
    changed = draft.in_leaves
    leaf_rows = [*(incoming.row for incoming in changed.incoming.values()), *changed.reaffiliated.values()]
    carried.fresh += leaf_rows
    manifest_vector_rows = [row for update in vectors.values() for row in update.fresh]
    rewritten = list(draft.rows.rewritten())
    carried.fresh += rewritten
    young = [
        *carried.young,
        *(row for row in leaf_rows if row.entry.version_info.status is Status.EXISTING),
        *rewritten,
    ]
    young += [row for row in manifest_vector_rows if row.entry.version_info.status is Status.EXISTING]
    added = list(draft.rows.added())
    shown = [
        *added,
        *(row for row in leaf_rows if row.entry.version_info.status is Status.ADDED),
        *(_deleted(draft, carried.fitting(row)) for row in draft.rows.removed.values()),
        *(_deleted(draft, row) for row in draft.rows.rewritten_removed),
        *(row for row in manifest_vector_rows if row.entry.version_info.status is not Status.EXISTING),
    ]
    blocks = carried.settled
    if len(young) > YOUNG_ROWS_MAX:
        settling = [*_rows_of_last(blocks, _size(young)), *young]
        young = []
        blocks += [carried.seal(rows) for rows in _chunks(settling)]
    first_shown = len(blocks)
    blocks += [carried.seal(rows) for rows in _chunks([*young, *shown])]
    root, body = encode_root(header, blocks, draft.codec, sync)
    unsettled = unsettled_blocks(root, max(0, min(first_shown, len(blocks) - 1)))
    index = advanced_index(draft, [*carried.fresh, *added], vectors, unsettled)
    leaves: Mapping[str, Leaf] = {} if parent is None else parent.leaves
    if changed.incoming or changed.dropped:
        leaves = {location: leaf for location, leaf in leaves.items() if location not in changed.dropped}
        leaves |= {location: incoming.lookup.leaf for location, incoming in changed.incoming.items()}
    return TableState(root, draft.definition, leaves, index, pages), body


class _Carried:
    """The parent's rows, sorted into blocks that are reused and rows that are encoded again."""

    def __init__(self, draft: Draft, sync: bytes) -> None:
        self.settled: list[RootBlock] = []
        self.young: list[Row] = []
        self.fresh: list[Row] = []
        self._draft = draft
        self._sync = sync
        self._open: list[RootBlock] = []
        self._fits = draft.parent is None or draft.parent.root.codec.layout == draft.codec.layout

    def fitting(self, row: Row) -> Row:
        """A row of the parent, in the statistics layout of the next root."""
        return row if self._fits else row.in_layout_of(self._draft.codec)

    def take(self, blocks: Sequence[RootBlock], unsettled: tuple[int, ...], replaced: set[int]) -> None:
        """Sort the parent's blocks: reused, rebuilt without the rows in `replaced`, or dissolved into `young`."""
        opened = set(unsettled) if self._fits else set(range(len(blocks)))
        for ordinal, block in enumerate(blocks):
            if ordinal in opened:
                self._open.append(block)
                self.young += self._settling(block.rows, replaced)
            elif replaced and any(id(row) in replaced for row in block.rows):
                rest = [row for row in block.rows if id(row) not in replaced]
                if len(rest) < len(block.rows) // 2 or _size(rest) < BLOCK_BYTES_MAX // 4:
                    self.young += rest
                else:
                    self.settled.append(self.seal(rest))
            else:
                self.settled.append(block)

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
                    self.fresh.append(fitting)
                yield fitting
                continue
            existing = fitting.with_version_info(
                unchecked_version_info(
                    Status.EXISTING, numbers.snapshot_id, numbers.sequence_number, numbers.file_sequence_number
                )
            )
            self.fresh.append(existing)
            yield existing


def _replaced_row_ids(draft: Draft, vectors: dict[str, ManifestVectorUpdate]) -> set[int]:
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
