"""The root's file metadata: all that must change atomically with the table, apart from its entries.

Owns: the value types of the header. Does not own: their bytes (`header_codec`), how they advance (`rootline.tree`).
Invariants: maintenance roots carry all of it forward; offsets only grow; a ledger entry is never lost to a rewrite.

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
    """What a snapshot did, in Iceberg's words."""

    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    REPLACE = "replace"


class NameState(StrEnum):
    """What a name is from a root on. The value is the `content` of the root's file metadata."""

    TABLE = "root"
    TOMBSTONE = "tombstone"
    """Of a table that was dropped: its entries, definition and ledger are still in the root, unless it was purged."""
    VIEW = "view"
    """No entries: the view's metadata is in the header, and its definition has no columns."""


class Drop(NamedTuple):
    """A table of this name that was dropped: which, in which version, and the time of that root.

    `is_purged`: its files may go at once, and it cannot be brought back.
    """

    table_uuid: uuid.UUID
    version: Version
    dropped_ms: int
    is_purged: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The root *is* the snapshot. `timestamp_ms` since the epoch, strictly greater than the parent's."""

    snapshot_id: SnapshotId
    parent_id: SnapshotId | None
    sequence_number: SequenceNumber
    timestamp_ms: int
    operation: Operation
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Totals:
    """The table's exact live totals. `rows` counts vectors' rows too; `deleted_rows` is what live vectors delete."""

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

    `decided_in` is the root that decided it; once that root's verdicts are acknowledged the outcome may go.
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
    """Verdicts not yet known to be published."""

    runs: tuple[OutcomeRun, ...] = ()
    exceptions: tuple[OutcomeException, ...] = ()

    @property
    def items(self) -> list[Outcome]:
        """All of them: the runs, then the others."""
        return [*self.runs, *self.exceptions]


class CommittedRun(NamedTuple):
    """Writer sequences `first..last`; sequence s was committed in `version + (s - first) * stride`, stride 0 or 1."""

    first: int
    last: int
    version: Version
    stride: int


class RejectedSequence(NamedTuple):
    """A sequence whose intent `intent_id` was rejected with `code`; another intent may still fill it."""

    sequence: int
    intent_id: str
    code: str
    message: str


class ContentDigest(NamedTuple):
    """What a committed intent held, as its writer said.

    Digests of 8 bytes each: of writer and sequence, and of what was said (`rootline.schemas.bytes.record_headers`).
    """

    pair: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """What one writer has had decided on this table. `last_seen_ms`: the log's time (`LogTime`) then."""

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
    compression. `covers` (outcomes only, else empty): once all of it is acknowledged, the page may go.
    """

    location: Location
    digest: bytes
    size_in_bytes: int
    content_bytes: int
    covers: tuple[CoveredOffset, ...] = ()


class Expiry(NamedTuple):
    """What expiry gave up. `given_up_bytes`: of the roots that can no longer be read, all that ever were.

    `kept`: the page of the versions below the oldest addressable one that are kept; `None`: none is. Every tagged one
    below it is among them.
    """

    given_up_bytes: int
    kept: PageReference | None = None


class Condemned(NamedTuple):
    """A page of locations that no root may add again, and the root that named it first.

    `since_ms`: not before the append time of the intent that brought it, nor before that root's own time. What the page
    names may be deleted a retention later; the page may go when the horizon has passed it.
    """

    page: PageReference
    since_version: Version
    since_ms: int


class RetiredSince(NamedTuple):
    """A page of locations that left the live set; `since_ms` and `number` as in `Left`, of the newest of them."""

    page: PageReference
    since_ms: int
    number: SequenceNumber


class Retired(NamedTuple):
    """Locations that left the live set, as sorted hashes: late ones here, earlier ones in pages, the oldest first.

    `rewritten`: other files hold their rows now, if no restore came after `number`. `removed`: all else. `since_ms`:
    not before the append time of the intent that let the newest one leave, nor before its root's own time. `number`:
    that intent's sequence number.
    """

    removed: bytes = b""
    rewritten: bytes = b""
    since_ms: int = 0
    number: SequenceNumber = SequenceNumber(0)
    pages: tuple[RetiredSince, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything left."""
        return bool(self.removed or self.rewritten or self.pages)


NOTHING_RETIRED: Final = Retired()


class ClockJump(NamedTuple):
    """Append times went forward from `at_ms`; `skipped_ms` of the way are no idle time of writers seen before."""

    at_ms: int
    skipped_ms: int


class LogTime(NamedTuple):
    """The newest append time (milliseconds, epoch) of the records that roots decided, and the jumps of late."""

    newest_ms: int
    jumps: tuple[ClockJump, ...] = ()


class Removal(NamedTuple):
    """Rows left a partition with sequence number `sequence_number`, or came back because a delete left.

    `partition`: the partition's values, encoded like a file's statistics.
    """

    sequence_number: SequenceNumber
    partition_spec_id: int
    partition: bytes


class Removals(NamedTuple):
    """What a root remembers of removals: no live entry shows them, and serializable intents must see them.

    All those after sequence number `forgotten` are in `newest`, ascending. `stats_schema`: the fingerprint of what the
    partitions are encoded by, empty while there are none.
    """

    forgotten: SequenceNumber = SequenceNumber(0)
    newest: tuple[Removal, ...] = ()
    stats_schema: bytes = b""


@dataclass(frozen=True, slots=True)
class DefinitionReference:
    """Where the table's definition is stored, and the SHA-256 of its bytes."""

    location: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class RootHeader:
    """One root's header. `parent_digest` is the digest of root N-1 (`None` for root 0).

    What was decided for a writer is what `ledger` *and* the ledger's pages say of it; outcomes likewise. Pages are in
    order, the oldest first. `restored_at`: the sequence number of the last restore, 0 without one: rows may have come
    back by it that no entry shows as new.
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
    """Of all roots before this one, given up or not."""
    removals: Removals | None = None
    log_time: LogTime | None = None
    contents: tuple[ContentDigest, ...] = ()
    """Both are `None` in a root that is older than these fields, or of a coordinator that does not know them."""
    horizon_ms: int = 0
    """Files that were uploaded before it are not added any more; 0: there is no horizon yet."""
    condemned: tuple[Condemned, ...] = ()
    left: Retired = NOTHING_RETIRED
    parent_next_row_id: int | None = None
    """`next_row_id` of the root before, which may be gone; `None` in a root that is older than this field."""
    expiry: Expiry | None = None
    """`None`: every version since the first can be read."""
    redefined_in: Version | None = None
    """The version that changed the table's definition last; `None`: it is as it was made."""
    name_is: NameState = NameState.TABLE
    drops: tuple[Drop, ...] = ()
    """Of the tables that had the name, in order, the newest ones; a tombstone's own is the last."""

    view: bytes | None = None
    """A view's metadata as JSON; `None`: the name is no view."""
    replaced_at: SequenceNumber = SequenceNumber(0)
    """The sequence number of the last replace, 0 without one: all that was live before it left then."""
    marks: tuple[bytes | None, ...] = ()
    """For each of `offsets`, the mark (`log_position.mark_of`) of the record before it; `None` or absent: not known."""

    def mark_at(self, log: LogId, partition: int) -> bytes | None:
        """The mark of the last record of this partition that the table has decided, if it is known."""
        for offset, mark in zip(self.offsets, self.marks, strict=False):
            if offset.log == log and offset.partition == partition:
                return mark
        return None

    @property
    def is_tombstone(self) -> bool:
        """Whether the table was dropped, and none has come after it."""
        return self.name_is is NameState.TOMBSTONE

    @property
    def kept_bytes(self) -> int:
        """The length of the roots before this one that can still be read."""
        return self.earlier_bytes - (0 if self.expiry is None else self.expiry.given_up_bytes)
