"""Roots without new rows: those that only record verdicts, because every intent of the batch was rejected or a
duplicate, and those that keep all entries and change the definition, a tag or the name.

Owns: distinguishing them by comparison with their parents. Does not own: their omission from history
(`rootline.client.version_history`) and exports.
Invariants: Pure. A root of maintenance that moves entries, or with any unknown change of entries, is not such a root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pyroaring import BitMap

from rootline.schemas.bytes.root.root_codec import Root, Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.root_header import Operation, RootHeader
from rootline.tree.state.live_index import ordinals_of_vector

_TOTALS = "total-"
_OF_ENTRIES = ("added-", "deleted-", "removed-")


def may_record_verdicts_only(header: RootHeader) -> bool:
    """Whether the parent must be read to decide. `False` for every root whose summary states a change."""
    snapshot = header.snapshot
    return (
        header.version > 0
        and snapshot.operation is Operation.REPLACE
        and all(key.startswith(_TOTALS) for key in snapshot.summary)
    )


def records_verdicts_only(before: Root, after: Root) -> bool:
    """Whether `after`, the root that follows `before`, has the same table and only adds verdicts."""
    old, new = before.header, after.header
    if not may_record_verdicts_only(new) or before.codec != after.codec:
        return False
    same = (
        old.table_uuid == new.table_uuid
        and old.definition == new.definition
        and old.totals == new.totals
        and dict(old.tags) == dict(new.tags)
        and (old.row_ids.next, old.restores.restored_at, old.versions.oldest)
        == (new.row_ids.next, new.restores.restored_at, new.versions.oldest)
    )
    return same and _live_rows(before, after) == _live_rows(after, before) and _dead(before) == _dead(after)


def may_keep_entries(header: RootHeader) -> bool:
    """Whether the parent must be read to decide. `False` for every root whose summary counts changed entries."""
    return not any(key.startswith(_OF_ENTRIES) for key in header.snapshot.summary)


def begins_empty(root: Root) -> bool:
    """Whether `root` is the first of its table and has no entries. An adopted table continues another one."""
    return root.header.snapshot.parent_id is None and not any(map(_is_live, root.rows))


def keeps_entries(before: Root, after: Root) -> bool:
    """Whether `after`, the root that follows `before`, has the same entries in the same places.

    Entries of another definition may be encoded otherwise, so places and sequence numbers are compared.
    """
    if before.header.table_uuid != after.header.table_uuid or not may_keep_entries(after.header):
        return False
    shared = {block.digest for block in before.blocks} & {block.digest for block in after.blocks}
    return _places(before, shared) == _places(after, shared) and _dead(before) == _dead(after)


def _places(root: Root, shared: Collection[bytes]) -> Counter[tuple[EntryPlace, int | None]]:
    rows = (row for block in root.blocks if block.digest not in shared for row in block.rows if _is_live(row))
    return Counter((row.entry.place, row.entry.version_info.file_sequence_number) for row in rows)


def _is_live(row: Row) -> bool:
    return row.entry.version_info.status is not Status.DELETED and not _is_inline_vector(row.entry)


def _live_rows(root: Root, other: Root) -> Counter[bytes]:
    """The live rows of `root` in blocks that `other` does not have. They are compared without their status, which every
    commit updates.
    """
    shared = {block.digest for block in other.blocks}
    return Counter(
        row.tail for block in root.blocks if block.digest not in shared for row in block.rows if _is_live(row)
    )


def _dead(root: Root) -> dict[str, BitMap]:
    """Leaf → the ordinals of its removed entries. All vectors of a leaf are joined here, because a root adds a vector
    in a row of its own, and the next root merges it with the leaf's earlier one.
    """
    dead: dict[str, BitMap] = {}
    for entry in (row.entry for row in root.rows):
        if _is_inline_vector(entry) and entry.version_info.status is not Status.DELETED:
            leaf = entry.referenced_file or entry.location
            dead[leaf] = dead.get(leaf, BitMap()) | ordinals_of_vector(entry)
    return dead


def _is_inline_vector(entry: ContentEntry) -> bool:
    vector = entry.deletion_vector
    is_inline = vector is not None and vector.inline_content is not None
    return is_inline and entry.content_type is ContentType.MANIFEST_DV
