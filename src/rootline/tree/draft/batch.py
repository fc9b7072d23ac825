"""Input and output of the function that applies a batch.

Owns: the value types between the commit machine and the tree. Does not own: how a batch is applied (`apply`), how
objects are fetched or stored (`rootline.storage`).
Invariants: Values only. Verdicts are in the order of the records. Every object of `Applied.objects` must be stored
before the root that references it. Storing an object twice is harmless, as its name follows from its content.
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
from rootline.tree.proof.file_proof import StatedFile
from rootline.tree.proof.leaf_proof import LeafProof
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState

UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded intent, its position on the log, and the bytes of its record (key, value and headers).

    `buffered_bytes`: the memory that all of this takes, approximately. It is many times the encoded size.
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
    """The store's date of the first upload among the intent's files, as the writer claims."""
    refusal: tuple[str, str] | None = None
    """Code and reason if the publisher lacks the permission. Such an intent is rejected without further checks."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The coordinator's part of a root: a new commit id, the coordinator's id, and the wall clock (milliseconds,
    epoch).
    """

    commit_id: CommitId
    coordinator_id: str
    now_ms: int


class VectorAt(NamedTuple):
    """A deletion vector's place: the Puffin file as its entry names it, and the blob's offset (bytes).

    A blob begins with its own length. If an entry states the lengths of blob and file, the code that fetches the vector
    checks them. `UNKNOWN_SIZE`: not stated.
    """

    location: str
    offset: int
    size_in_bytes: int = UNKNOWN_SIZE
    file_size_in_bytes: int = UNKNOWN_SIZE


class Adopting(NamedTuple):
    """A root that describes an Iceberg table, and the definition of the new table."""

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
    """Objects fetched for a batch. `None`: absent or unreadable, so an intent that needs the object is rejected.

    * `troubles`: the reasons why stored leaves cannot be read.
    * `proofs`: known proofs of leaves. A proof that is missing, or is for another definition, is computed.
    * `adopted`: the state that a new table continues from, or the reason against it, under the keys of
      `Needs.adopting`.
    * `files`: the faults of data files that were compared with the store, `None` for a file without fault.
    """

    leaves: Mapping[str, Leaf | None] = field(default_factory=dict)
    vectors: Mapping[VectorAt, BitMap64 | None] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)
    proofs: Mapping[str, LeafProof] = field(default_factory=dict)
    roots: Mapping[Version, Root | None] = field(default_factory=dict)
    adopted: Mapping[bytes, AdoptedTable | Invalid] = field(default_factory=dict)
    condemned: Mapping[str, CondemnedPage | None] = field(default_factory=dict)
    """Pages proposed by sweeps, by location."""
    dates: Mapping[str, int | None] = field(default_factory=dict)
    """Upload dates of files in the store, by location: ms, epoch."""
    kept: Mapping[StoredPage, RetainedPage | None] = field(default_factory=dict)
    files: Mapping[StatedFile, Invalid | None] = field(default_factory=dict)
    definitions: Mapping[DefinitionReference, TableDefinition | None] = field(default_factory=dict)
    """Definitions of older versions."""

    def with_more(self, more: FetchedObjects) -> FetchedObjects:
        """Both together. Where both have an object, that of `more` is used."""
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
    """Objects to fetch before the batch can be applied. Then the whole batch is applied from the start.

    * `proving`: leaf → the definition to prove it under. Leaves of maintenance need no proof.
    * `versions`: read the roots of these versions.
    * `adopting`: roots that describe an Iceberg table, to be read with everything that they reference.
    * `older`: the root rows and the definition of leaves that are manifests of older formats. They are needed to read
      them.
    * `files`: data files to compare with the store.
    """

    leaves: frozenset[str] = frozenset()
    vectors: frozenset[VectorAt] = frozenset()
    proving: Mapping[str, TableDefinition] = field(default_factory=dict)
    versions: frozenset[Version] = frozenset()
    adopting: Mapping[bytes, Adopting] = field(default_factory=dict)
    older: Mapping[str, tuple[ContentEntry, TableDefinition]] = field(default_factory=dict)
    condemned: Mapping[str, tuple[StoredPage, uuid.UUID]] = field(default_factory=dict)
    """Pages proposed by sweeps, by location, and the uuid of the table that they must belong to."""
    dates: frozenset[str] = frozenset()
    kept: Mapping[StoredPage, uuid.UUID] = field(default_factory=dict)
    """Pages of retained versions, and the uuid of the table that they must belong to."""
    files: frozenset[StatedFile] = frozenset()
    definitions: Mapping[DefinitionReference, uuid.UUID] = field(default_factory=dict)
    """Definitions of older versions, and the uuid of the table that they must belong to."""

    def __bool__(self) -> bool:
        """Whether any object is needed."""
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
        """The needs of both."""
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
    """The next root's bytes and state, its verdicts to publish once the root is confirmed, and the objects to store
    first.
    """

    state: TableState
    body: bytes
    verdicts: tuple[Verdict, ...]
    objects: tuple[PendingObject, ...]


@dataclass(frozen=True, slots=True)
class NoTable:
    """Rejections without a root to record them: there is no table, and no intent of the batch creates one.

    The same intents always get the same verdicts, so the verdicts may be published without a commit.
    """

    verdicts: tuple[Verdict, ...]
