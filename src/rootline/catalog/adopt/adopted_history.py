"""The history of an adopted table before its adoption, from its own metadata.

Owns: which of its snapshots an export names. Does not own: reading that metadata (`adoption_plan`), our snapshots
(`table_metadata`).
Invariants: a snapshot is taken unchanged, or left out; nothing is taken that an engine reading the export's format
could not follow; when the metadata is gone, the history is missing, never the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rootline.catalog.adopt.adopted_definition import ADOPTED_FROM
from rootline.catalog.adopt.adoption_plan import read_metadata
from rootline.catalog.manifest.format_version import FormatVersion
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition

SnapshotJson = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AdoptedHistory:
    """Snapshots and their log, the oldest first. `next_row_id`: the next free row id at adoption; 0 before V3."""

    snapshots: tuple[SnapshotJson, ...] = ()
    log: tuple[Mapping[str, int], ...] = ()
    next_row_id: int = 0


NO_HISTORY: Final = AdoptedHistory()


async def read_history(
    store: ObjectStore, table: TableName, definition: TableDefinition, format_version: FormatVersion
) -> AdoptedHistory:
    """The history of a table before it was adopted; empty for a table that was not adopted.

    Raises:
        Invalid: `file-unreadable`, this store does not read absolute locations.
        Unavailable: `store-unavailable`.

    """
    location = definition.properties.get(ADOPTED_FROM)
    if location is None:
        return NO_HISTORY
    try:
        return history_of(await read_metadata(store, table, location), format_version)
    except Invalid as error:
        if error.code != "metadata-unreadable":
            raise
        return NO_HISTORY  # engines remove old metadata files; the table does not depend on them


def history_of(metadata: Mapping[str, Any], format_version: FormatVersion) -> AdoptedHistory:
    """The history in another engine's table metadata, as far as an export of `format_version` may repeat it.

    Snapshots of a newer format are left out, and those of V1 that list their manifests themselves.
    """
    try:
        next_row_id = int(metadata.get("next-row-id") or 0)
        if int(metadata["format-version"]) > format_version:
            return AdoptedHistory(next_row_id=next_row_id)
        found = [snapshot for snapshot in metadata.get("snapshots") or () if snapshot.get("manifest-list")]
        found.sort(key=lambda snapshot: (snapshot.get("sequence-number", 0), snapshot["timestamp-ms"]))
        ids = {snapshot["snapshot-id"] for snapshot in found}
        log = [entry for entry in metadata.get("snapshot-log") or () if entry["snapshot-id"] in ids]
        return AdoptedHistory(tuple(found), tuple(log), next_row_id)
    except (KeyError, TypeError, ValueError, AttributeError):
        return NO_HISTORY


__all__ = ["NO_HISTORY", "AdoptedHistory", "history_of", "read_history"]
