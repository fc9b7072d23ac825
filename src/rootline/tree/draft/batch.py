"""What goes into the application of a batch, and what comes out.

Owns: the value types between the commit machine and the tree. Does not own: how a batch is applied (`apply`), how
objects are fetched or stored (`rootline.storage`).
Invariants: values only; verdicts are in the order of the records; every object of `Applied.objects` must be stored
before the root that references it, and storing the same one twice is harmless (its name follows from its content).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyroaring import BitMap64

from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.bytes.root.condemned_page import CondemnedPage
from rootline.schemas.bytes.root.kept_page import RetainedPage
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import CommitId, Headers, LogPosition, Version
from rootline.schemas.intent import AdoptedRoot, Intent, StoredPage
from rootline.schemas.root_header import DefinitionReference
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict
from rootline.tree.proof.file_verification import StatedFile
from rootline.tree.proof.leaf_proof import LeafProof
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState

UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class Record:
    """One decoded intent, its position on the log, and the bytes of its record (key, value and headers).

    `buffered_bytes`: about what all of it takes in memory, which is many times as much.
    """

    position: LogPosition
    intent: Intent
    size_in_bytes: int
    key: bytes | None = None
    value: bytes = b""
    appended_ms: int = 0
    headers: Headers = ()
    buffered_bytes: int = 0
    oldest_file_ms: int | None = None
    """What the writer says of its files: the store's date of the first upload; it is only a claim."""
    refusal: tuple[str, str] | None = None
    """Code and reason, if who published it may not: then it is rejected, and never judged."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the edge adds to a root: a fresh commit id, who commits, and the wall clock (milliseconds, epoch)."""

    commit_id: CommitId
    coordinator_id: str
    now_ms: int


class VectorAt(NamedTuple):
    """A deletion vector's place: the Puffin file as its entry names it, and the blob's offset (bytes).

    A blob begins with its own length. Where an entry says how long blob and file are, the code that fetches
    the vector checks it; `UNKNOWN_SIZE`: nothing is said.
    """

    location: str
    offset: int
    size_in_bytes: int = UNKNOWN_SIZE
    file_size_in_bytes: int = UNKNOWN_SIZE


class Adopting(NamedTuple):
    """A root that says what an Iceberg table is, and the definition that the new table is to have."""

    named: AdoptedRoot
    definition: TableDefinition


class AdoptedTable(NamedTuple):
    """The state that a new table continues from.

    `foreign_names`: the object of the names outside its folder (`ForeignNames`).
    """

    state: TableState
    foreign_names: bytes


@dataclass(frozen=True, slots=True)
class FetchedObjects:
    """Objects fetched for a batch. `None`: looked for, and absent or unreadable; an intent that needs it is rejected.

    `troubles`: why a leaf that is there cannot be read. `proofs`: what was found out about leaves already; one that is
    missing, or of another definition, is worked out again. `adopted`: what a new table goes on from, or why
    it cannot, under the keys of `Needs.adopting`. `files`: what is wrong with data files that were looked at.
    """

    leaves: Mapping[str, Leaf | None] = field(default_factory=dict)
    vectors: Mapping[VectorAt, BitMap64 | None] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)
    proofs: Mapping[str, LeafProof] = field(default_factory=dict)
    roots: Mapping[Version, Root | None] = field(default_factory=dict)
    adopted: Mapping[bytes, AdoptedTable | Invalid] = field(default_factory=dict)
    condemned: Mapping[str, CondemnedPage | None] = field(default_factory=dict)
    """Proposals of sweeps, by location."""
    dates: Mapping[str, int | None] = field(default_factory=dict)
    """When files were stored, by location: the store's own dates."""
    kept: Mapping[StoredPage, RetainedPage | None] = field(default_factory=dict)
    files: Mapping[StatedFile, Invalid | None] = field(default_factory=dict)
    definitions: Mapping[DefinitionReference, TableDefinition | None] = field(default_factory=dict)
    """Of older versions."""

    def with_more(self, more: FetchedObjects) -> FetchedObjects:
        """Both; where both know an object, `more` does."""
        return FetchedObjects(
            {**self.leaves, **more.leaves},
            {**self.vectors, **more.vectors},
            {**self.troubles, **more.troubles},
            {**self.proofs, **more.proofs},
            {**self.roots, **more.roots},
            {**self.adopted, **more.adopted},
            {**self.condemned, **more.condemned},
            {**self.dates, **more.dates},
            kept={**self.kept, **more.kept},
            files={**self.files, **more.files},
            definitions={**self.definitions, **more.definitions},
        )


NOTHING_FETCHED: Final = FetchedObjects()


@dataclass(frozen=True, slots=True)
class Needs:
    """Objects to fetch before the batch can be applied; then apply it again, whole.

    `proving`: leaf → the definition to prove it under; leaves of maintenance need no proof.
    `versions`: whose roots. `adopting`: roots that say what an Iceberg table is, with all that they name. `older`: the
    rows of those leaves that are manifests of older formats, and the definition: they are read by them. `files`: data
    files to compare with what is stored.
    """

    leaves: frozenset[str] = frozenset()
    vectors: frozenset[VectorAt] = frozenset()
    proving: Mapping[str, TableDefinition] = field(default_factory=dict)
    versions: frozenset[Version] = frozenset()
    adopting: Mapping[bytes, Adopting] = field(default_factory=dict)
    older: Mapping[str, tuple[ContentEntry, TableDefinition]] = field(default_factory=dict)
    condemned: Mapping[str, tuple[StoredPage, uuid.UUID]] = field(default_factory=dict)
    """Proposals of sweeps, by location, and the table that they must be of."""
    dates: frozenset[str] = frozenset()
    kept: Mapping[StoredPage, uuid.UUID] = field(default_factory=dict)
    """Pages of kept versions, and the table that they must be of."""
    files: frozenset[StatedFile] = frozenset()
    definitions: Mapping[DefinitionReference, uuid.UUID] = field(default_factory=dict)
    """Definitions of older versions, and the table that they must be of."""

    def __bool__(self) -> bool:
        """Whether anything is needed."""
        return bool(
            self.leaves
            or self.vectors
            or self.versions
            or self.adopting
            or self.condemned
            or self.dates
            or self.kept
            or self.files
            or self.definitions
        )

    def __or__(self, other: Needs) -> Needs:
        """All of both."""
        return Needs(
            self.leaves | other.leaves,
            self.vectors | other.vectors,
            {**self.proving, **other.proving},
            self.versions | other.versions,
            {**self.adopting, **other.adopting},
            {**self.older, **other.older},
            {**self.condemned, **other.condemned},
            self.dates | other.dates,
            kept={**self.kept, **other.kept},
            files=self.files | other.files,
            definitions={**self.definitions, **other.definitions},
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """The next root's `body`, the state that it holds, and the verdicts to publish once it is confirmed."""

    state: TableState
    body: bytes
    verdicts: tuple[Verdict, ...]
    objects: tuple[PendingObject, ...]


@dataclass(frozen=True, slots=True)
class NoTable:
    """There is no table, and nothing of the batch creates one: rejections with no root to record them.

    The same intents get the same verdicts again, so they may be published at once.
    """

    verdicts: tuple[Verdict, ...]
