"""What a lake's live entries say of rows, to compare with the reference model and with another lake."""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, ContentType
from tests.tree.reference_model import ReferenceTable
from tests.tree.tables import Lake


def ranked(lake: Lake) -> dict[tuple[ContentType, str], int]:
    """Each live entry's rank by data sequence number: rejections take numbers of their own when they are alone.

    Without what rewrites made: that is as old as a version, which may be as old as its last entry, or newer.
    """
    found = {
        (entry.content_type, entry.referenced_file or entry.location): number(entry)
        for entry in lake.live().values()
        if not entry.location.startswith("data/r")
    }
    ranks = {value: rank for rank, value in enumerate(sorted(set(found.values())))}
    return {key: ranks[value] for key, value in found.items()}


def number(entry: ContentEntry) -> int:
    assert entry.version_info.sequence_number is not None
    return entry.version_info.sequence_number


def rows_by_sequence(lake: Lake, model: ReferenceTable) -> dict[str, set[int]]:
    """Live rows as a reader would find them: contents by name, deletes and numbers from the lake."""
    live = lake.live().values()
    deletes = [entry for entry in live if entry.content_type is ContentType.EQUALITY_DELETE]
    deleted = lake.deleted_rows()
    found: dict[str, set[int]] = {}
    for entry in (entry for entry in live if entry.content_type is ContentType.DATA):
        name = entry.location.removeprefix("data/").removesuffix(".parquet")
        values = {
            delete.content_stats[1].lower_bound
            for delete in deletes
            if number(delete) > number(entry)
            and (delete.partition_spec_id == 1 or partition(delete) == partition(entry))
        }
        found[name] = {
            position
            for position, value in enumerate(model.files[name].ids)
            if position not in deleted[entry.location] and value not in values
        }
    return found


def partition(entry: ContentEntry) -> object:
    return None if entry.partition_spec_id == 1 else entry.content_stats[2].lower_bound
