"""One intent as the reference model and the tests of many tables plan it."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.schemas.intent import IntentKind

FileName = str


@dataclass(frozen=True)
class PlannedVector:
    """All deleted positions of `target`, as a writer who read the view would write them."""

    target: FileName
    positions: frozenset[int]


@dataclass(frozen=True)
class Plan:
    """One intent without the names that differ from table to table (vectors, leaves, sequence numbers)."""

    intent_id: str
    kind: IntentKind
    writer: str | None = None
    sequence: int = 0
    adds: tuple[tuple[FileName, str | None, tuple[int, ...]], ...] = ()
    equality: tuple[tuple[FileName, str | None, int], ...] = ()
    removes: tuple[FileName, ...] = ()
    vectors: tuple[PlannedVector, ...] = ()
    serializable: int | None = None
    flushed_files: tuple[FileName, ...] = ()
    flushed_vectors: tuple[FileName, ...] = ()
    flushed_equality: tuple[FileName, ...] = ()
    affiliated: bool = False
    replaces: tuple[str, ...] = ()
    adds_in_leaf: bool = False
    vectors_in_leaf: bool = False
    tags: str | None = None  # the tag that is set to the version that the writer read, or deleted (`untags`)
    untags: bool = False
    says: bytes | None = None  # what its record says of its content
    converts: tuple[FileName, ...] = ()  # equality deletes, for which `vectors` come
    clean: tuple[FileName, ...] = ()  # files that hold none of their rows
    keeps: frozenset[int] = frozenset()  # stays below the version that the writer read, when older ones expire
    is_planned: bool = False  # what stays is chosen as a worker chooses it
    columns: tuple[str, ...] = ()  # that the table is to have beside the first ones
    names_table: bool = False  # that the writer saw: it may be another by now
    names_schema: bool = False
    client: int | None = None  # the snapshot that an Iceberg client made
    jobs: tuple[str, ...] = ()  # of the client, which move
    refuses: bool = False  # by it, a catalog refuses the client's request
