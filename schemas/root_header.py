"""The root's file metadata: all that must change atomically with the table, except its entries.

Owns: the header, its snapshot and totals, the table of its parts. Does not own: the parts (`rootline.schemas.parts`),
the bytes (`rootline.schemas.bytes.root.header_codec`), their changes (`rootline.tree`).
Invariants: A root that maintenance makes copies the whole header. Offsets only grow. A rewrite never loses a ledger
entry.

Source: protocol page, section 1 (table "in the root's file metadata").
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from rootline.schemas.identifiers import CommitId, SequenceNumber, SnapshotId, TableName, Version
from rootline.schemas.parts.definition import DEFINITION, DefinitionReference
from rootline.schemas.parts.header_part import HeaderPart
from rootline.schemas.parts.ledger import LEDGER, WriterLedger
from rootline.schemas.parts.locations import LOCATIONS, Locations
from rootline.schemas.parts.log import LOG, LogProgress
from rootline.schemas.parts.name import NAME, NameRecord, NameState
from rootline.schemas.parts.outcomes import OUTCOMES, RecordedOutcomes
from rootline.schemas.parts.progress import PROGRESS, Progress
from rootline.schemas.parts.removals import REMOVALS, Removals
from rootline.schemas.parts.restores import RESTORES, Restores
from rootline.schemas.parts.row_ids import ROW_IDS, RowIds
from rootline.schemas.parts.tags import TAGS
from rootline.schemas.parts.versions import VERSIONS, ReadableVersions


class Operation(StrEnum):
    """The operation of a snapshot, in Iceberg's words."""

    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The snapshot that a root is. `timestamp_ms` is since the epoch, and strictly greater than the parent's."""

    snapshot_id: SnapshotId
    parent_id: SnapshotId | None
    sequence_number: SequenceNumber
    timestamp_ms: int
    operation: Operation
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Totals:
    """The table's exact live totals. `rows` includes deleted rows. `deleted_rows` counts the rows that live vectors
    delete.
    """

    data_files: int = 0
    vectors: int = 0
    equality_deletes: int = 0
    data_manifests: int = 0
    delete_manifests: int = 0
    rows: int = 0
    deleted_rows: int = 0
    data_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RootHeader:
    """One root's header: the root's own fields, and a field for each of `PARTS`.

    `parent_digest` is the digest of root N-1 (`None` for root 0). `earlier_bytes` is the total size of all roots before
    this one, expired or not.
    """

    table: TableName
    table_uuid: uuid.UUID
    version: Version
    parent_digest: bytes | None
    snapshot: Snapshot
    definition: DefinitionReference
    commit_id: CommitId
    coordinator_id: str
    totals: Totals = Totals()
    earlier_bytes: int = 0
    log: LogProgress = LogProgress()
    outcomes: RecordedOutcomes = RecordedOutcomes()
    ledger: WriterLedger = WriterLedger()
    versions: ReadableVersions = ReadableVersions()
    tags: Mapping[str, int] = field(default_factory=dict)
    restores: Restores = Restores()
    locations: Locations = Locations()
    removals: Removals | None = None
    """`None` in a root by a coordinator that does not know this field."""
    name: NameRecord = NameRecord()
    row_ids: RowIds = RowIds()
    progress: Progress = ()

    def __repr__(self) -> str:
        """A short form for notebooks: `table.history()` is a list of headers."""
        made, totals = self.snapshot.operation.value, self.totals
        counts = f"{totals.rows - totals.deleted_rows} rows in {totals.data_files} data files"
        return f"<RootHeader {self.table} version {self.version}: {made}, {counts}>"

    @property
    def is_tombstone(self) -> bool:
        """Whether the table was dropped, and no other one was created since."""
        return self.name.state is NameState.TOMBSTONE

    @property
    def kept_bytes(self) -> int:
        """The total size of earlier roots that can still be read."""
        return self.earlier_bytes - self.versions.expired_bytes


PARTS: Final[tuple[HeaderPart[Any], ...]] = (
    LOG,
    OUTCOMES,
    LEDGER,
    VERSIONS,
    TAGS,
    RESTORES,
    LOCATIONS,
    REMOVALS,
    NAME,
    DEFINITION,
    ROW_IDS,
    PROGRESS,
)
"""The parts of a header. Each is a field of its name."""
