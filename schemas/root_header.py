"""The root's file metadata: all that must change atomically with the table, except its entries.

Owns: the value types of the header. Does not own: their bytes (`header_codec`), their changes (`rootline.tree`).
Invariants: maintenance roots copy all of it. Offsets only grow. A rewrite never loses a ledger entry.

Source: protocol page, section 1 (table "in the root's file metadata").
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from rootline.schemas.identifiers import (
    CommitId,
    Location,
    LogId,
    SequenceNumber,
    SnapshotId,
    TableName,
    Version,
    WriterId,
)


class Operation(StrEnum):
    """The operation of a snapshot, in Iceberg's words."""

    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    REPLACE = "replace"


class NameState(StrEnum):
    """The state of a name from a root on. The value is the `content` of the root's file metadata."""

    TABLE = "root"
    TOMBSTONE = "tombstone"
    """A dropped table. Its entries, definition and ledger are still in the root, unless it was purged."""
    VIEW = "view"
    """No entries: the view's metadata is in the header, and its definition has no columns."""


class Drop(NamedTuple):
    """A dropped table of this name: its uuid, the version of the drop, and the time of that root.

    `is_purged`: its files may be deleted immediately, and it cannot be restored.
    """

    table_uuid: uuid.UUID
    version: Version
    dropped_ms: int
    is_purged: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The snapshot of a root. The root *is* the snapshot. `timestamp_ms` since the epoch, strictly greater than the
    parent's.
    """

    snapshot_id: SnapshotId
    parent_id: SnapshotId | None
    sequence_number: SequenceNumber
    timestamp_ms: int
    operation: Operation
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Totals:
    """The table's exact live totals. `rows` includes vectors' rows. `deleted_rows` counts the rows that live vectors
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


class PartitionOffset(NamedTuple):
    """The *next* offset to apply of one partition of one log."""

    log: LogId
    partition: int
    next_offset: int


class OutcomeRun(NamedTuple):
    """Consecutive offsets whose intents were committed in `version`, with consecutive sequence numbers."""

    log: LogId
    partition: int
    first_offset: int
    last_offset: int
    version: Version
    first_sequence_number: SequenceNumber


class OutcomeException(NamedTuple):
    """One offset that was not committed: a duplicate (of `version`, where known) or a rejection (`code`).

    `decided_in` is the root that decided it. Once that root's verdicts are acknowledged, the outcome may be dropped.
    """

    log: LogId
    partition: int
    offset: int
    decided_in: Version
    code: str | None
    message: str | None
    duplicate_of: Version | None


Outcome = OutcomeRun | OutcomeException


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Verdicts that may not have been published yet."""

    runs: tuple[OutcomeRun, ...] = ()
    exceptions: tuple[OutcomeException, ...] = ()

    @property
    def items(self) -> list[Outcome]:
        """All outcomes: the runs, then the exceptions."""
        return [*self.runs, *self.exceptions]


class CommittedRun(NamedTuple):
    """Writer sequences `first..last`. Sequence s was committed in `version + (s - first) * stride`, with stride 0 or
    1.
    """

    first: int
    last: int
    version: Version
    stride: int


class RejectedSequence(NamedTuple):
    """A sequence whose intent `intent_id` was rejected with `code`. Another intent may still use the sequence."""

    sequence: int
    intent_id: str
    code: str
    message: str


class ContentDigest(NamedTuple):
    """A digest of a committed intent's content.

    Both are 8 bytes: the digest of writer and sequence, and the digest of the content that the writer stated
    (`rootline.schemas.bytes.record_headers`).
    """

    pair: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The decided sequences of one writer on this table. `last_seen_ms`: the log's time (`LogTime`) of the latest."""

    committed: tuple[CommittedRun, ...] = ()
    rejected: tuple[RejectedSequence, ...] = ()
    last_seen_ms: int = 0


class CoveredOffset(NamedTuple):
    """The last offset of one partition of one log that a page of outcomes covers."""

    log: LogId
    partition: int
    last_offset: int


class PageReference(NamedTuple):
    """An immutable page of ledger or outcomes that did not fit into the header.

    `digest` is the SHA-256 of the whole object, `size_in_bytes` its length, `content_bytes` that of its rows before
    compression. `covers` (outcomes only, else empty): once all of it is acknowledged, the page may be dropped.
    """

    location: Location
    digest: bytes
    size_in_bytes: int
    content_bytes: int
    covers: tuple[CoveredOffset, ...] = ()


class Expiry(NamedTuple):
    """The expired versions. `given_up_bytes`: total size of all roots that can no longer be read.

    `kept`: the page of older versions that are still readable, including every tagged one, or `None` if there are none.
    """

    given_up_bytes: int
    kept: PageReference | None = None


class Condemned(NamedTuple):
    """A page of locations that no root may add again, and the root that first named it.

    `since_ms`: not before the append time of the intent that added it, nor before that root's own time. The named
    objects may be deleted a retention later. The page may be dropped when the horizon has passed it.
    """

    page: PageReference
    since_version: Version
    since_ms: int


class RetiredSince(NamedTuple):
    """A page of locations that left the live set. `since_ms` and `number`: as in `Retired`, of the newest of them."""

    page: PageReference
    since_ms: int
    number: SequenceNumber


class Retired(NamedTuple):
    """Locations that left the live set, as sorted hashes: the latest ones here, earlier ones in pages, the oldest
    first.

    `rewritten`: their rows are now in other files, unless a restore followed `number`. `removed`: all others.
    `since_ms`: not before the append time of the intent that removed the newest one, nor before its root's own time.
    `number`: that intent's sequence number.
    """

    removed: bytes = b""
    rewritten: bytes = b""
    since_ms: int = 0
    number: SequenceNumber = SequenceNumber(0)
    pages: tuple[RetiredSince, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any locations."""
        return bool(self.removed or self.rewritten or self.pages)


NOTHING_RETIRED: Final = Retired()


class ClockJump(NamedTuple):
    """A forward jump of append times at `at_ms`. `skipped_ms` of it does not count as idle time of earlier writers."""

    at_ms: int
    skipped_ms: int


class LogTime(NamedTuple):
    """The newest append time (milliseconds, epoch) of decided records, and the recent jumps."""

    newest_ms: int
    jumps: tuple[ClockJump, ...] = ()


class Removal(NamedTuple):
    """A removal of rows from a partition at `sequence_number`, or their return because a delete was removed.

    `partition`: the partition's values, encoded like a file's statistics.
    """

    sequence_number: SequenceNumber
    partition_spec_id: int
    partition: bytes


class Removals(NamedTuple):
    """The recent removals of rows. No live entry shows them, but serializable intents must see them.

    `newest` has all removals after sequence number `forgotten`, ascending. `stats_schema`: the fingerprint of the
    encoding of partitions, empty while there are none.
    """

    forgotten: SequenceNumber = SequenceNumber(0)
    newest: tuple[Removal, ...] = ()
    stats_schema: bytes = b""


@dataclass(frozen=True, slots=True)
class DefinitionReference:
    """The location of the table's definition, and the SHA-256 of its bytes."""

    location: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class RootHeader:
    """One root's header. `parent_digest` is the digest of root N-1 (`None` for root 0).

    The decisions about a writer are in `ledger` *and* the ledger's pages. Outcomes likewise. Pages are in order, the
    oldest first. `restored_at`: the sequence number of the last restore, 0 without one. It may have restored rows that
    no entry shows as new.
    """

    table: TableName
    table_uuid: uuid.UUID
    version: Version
    parent_digest: bytes | None
    snapshot: Snapshot
    definition: DefinitionReference
    commit_id: CommitId
    coordinator_id: str
    offsets: tuple[PartitionOffset, ...] = ()
    outcomes: Outcomes = Outcomes()
    outcome_pages: tuple[PageReference, ...] = ()
    ledger: Mapping[WriterId, WriterRecord] = field(default_factory=dict)
    ledger_pages: tuple[PageReference, ...] = ()
    oldest_version: Version = Version(0)
    tags: Mapping[str, int] = field(default_factory=dict)
    next_row_id: int = 0
    totals: Totals = Totals()
    restored_at: SequenceNumber = SequenceNumber(0)
    earlier_bytes: int = 0
    """Total size of all roots before this one, expired or not."""
    removals: Removals | None = None
    log_time: LogTime | None = None
    contents: tuple[ContentDigest, ...] = ()
    """`removals` and `log_time` are `None` in a root by a coordinator that does not know these fields."""
    horizon_ms: int = 0
    """Files that were uploaded before this time cannot be added. 0 means that there is no horizon."""
    condemned: tuple[Condemned, ...] = ()
    left: Retired = NOTHING_RETIRED
    parent_next_row_id: int | None = None
    """`next_row_id` of the previous root, which may be deleted. `None` in a root that is older than this field."""
    expiry: Expiry | None = None
    """`None` if every version since the first can be read."""
    redefined_in: Version | None = None
    """The version that last changed the table's definition, or `None` if it never changed."""
    name_is: NameState = NameState.TABLE
    drops: tuple[Drop, ...] = ()
    """The drops of the latest earlier tables of this name, in order. A tombstone's own drop is the last."""

    view: bytes | None = None
    """A view's metadata as JSON, or `None` if the name is not a view."""
    replaced_at: SequenceNumber = SequenceNumber(0)
    """The sequence number of the last replace, 0 without one. It removed all earlier entries."""
    marks: tuple[bytes | None, ...] = ()
    """For each of `offsets`, the mark (`mark_of`) of the record before it. `None` or absent if unknown."""

    def mark_at(self, log: LogId, partition: int) -> bytes | None:
        """The mark of the last decided record of this partition, or `None` if unknown."""
        for offset, mark in zip(self.offsets, self.marks, strict=False):
            if offset.log == log and offset.partition == partition:
                return mark
        return None

    @property
    def is_tombstone(self) -> bool:
        """Whether the table was dropped, and no other one was created since."""
        return self.name_is is NameState.TOMBSTONE

    @property
    def kept_bytes(self) -> int:
        """The total size of earlier roots that can still be read."""
        return self.earlier_bytes - (0 if self.expiry is None else self.expiry.given_up_bytes)
