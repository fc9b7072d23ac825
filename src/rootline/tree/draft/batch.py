"""Input and output of the function that applies a batch.

Owns: the value types between the commit machine and the tree, and the map of fetched objects by their needs. Does not
own: how a batch is applied (`apply`), the other kinds of needs (each beside its rule), how objects are fetched
(`rootline.coordinator.runtime.table.object_fetcher`) or stored (`rootline.storage`).
Invariants: Values only. Verdicts are in the order of the records. Every object of `Applied.objects` must be stored
before the root that references it. Storing an object twice is harmless, as its name follows from its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Self, TypeVar, cast
from uuid import UUID

from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.schemas.identifiers import CommitId, Headers, LogPosition
from rootline.schemas.intent import Intent, StoredPage
from rootline.schemas.verdict import Verdict
from rootline.tree.state.table_state import PendingObject, TableState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


class Need(Generic[T_co]):
    """An object that an intent needs, as the key by which it is requested and found.

    A kind of need is a small frozen value beside the rule that uses the object. `T_co` is the type of the object, with
    `Absent` if it can be missing. Needs that are equal name one object, which is read once. A field that is not
    compared is a demand on the reading, such as the definition to prove a leaf under.
    """

    __slots__ = ()

    def joined(self, later: Self) -> Self:
        """The need of two intents that need one object, with the demands of both."""
        return later


@dataclass(frozen=True, slots=True)
class Absent:
    """A requested object that is missing or unreadable, so every intent that needs it is rejected.

    `fault`: the reason why a stored object cannot be read, `None` if it is not stored or the reason is unknown.
    """

    fault: str | None = None


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class PageNeed(Need[Page[T] | Absent]):
    """A page that an intent names. `table_uuid`: the table that it must belong to."""

    kind: PageKind[T]
    page: StoredPage
    table_uuid: UUID = field(compare=False)


@dataclass(frozen=True, slots=True)
class Needs:
    """Objects to fetch before the batch can be applied. Then the whole batch is applied from the start."""

    requested: Mapping[Need[object], Need[object]] = field(default_factory=dict)
    """Each need under itself, with the demands of all intents."""

    @classmethod
    def of(cls, needs: Iterable[Need[object]]) -> Needs:
        """The given needs, with joined demands where needs are equal."""
        requested: dict[Need[object], Need[object]] = {}
        for need in needs:
            earlier = requested.get(need)
            requested[need] = need if earlier is None else earlier.joined(need)
        return cls(requested)

    def __iter__(self) -> Iterator[Need[object]]:
        return iter(self.requested.values())

    def __bool__(self) -> bool:
        """Whether any object is needed."""
        return bool(self.requested)

    def __or__(self, later: Needs) -> Needs:
        """The needs of both, with joined demands."""
        return Needs.of((*self, *later)) if self else later


NO_NEEDS: Final = Needs()


@dataclass(frozen=True, slots=True)
class FetchedObjects:
    """The objects fetched for a batch, by their needs.

    An object that was requested and is absent is `Absent` here. A need that is not here was not requested yet.
    """

    found: Mapping[Need[object], object] = field(default_factory=dict)

    def __contains__(self, need: Need[object]) -> bool:
        """Whether the object was requested."""
        return need in self.found

    def of(self, need: Need[T]) -> T:
        """The object that was fetched for `need`. Raises `KeyError` if it was not requested."""
        return cast("T", self.found[need])

    def missing(self, needs: Iterable[Need[object]]) -> Needs:
        """The needs that were not requested yet."""
        absent = [need for need in needs if need not in self.found]
        return Needs.of(absent) if absent else NO_NEEDS

    def with_more(self, more: FetchedObjects) -> FetchedObjects:
        """Both together. Where both have an object, that of `more` is used."""
        return FetchedObjects({**self.found, **more.found})


NOTHING_FETCHED: Final = FetchedObjects()


@dataclass(frozen=True, slots=True)
class Applied:
    """The next root's bytes and state, its verdicts to publish once the root is confirmed, and the objects to store
    first. `dropped_jobs`: the streaming jobs for whose progress the root has no room.
    """

    state: TableState
    body: bytes
    verdicts: tuple[Verdict, ...]
    objects: tuple[PendingObject, ...]
    dropped_jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoTable:
    """Rejections without a root to record them: there is no table, and no intent of the batch creates one.

    The same intents always get the same verdicts, so the verdicts may be published without a commit.
    """

    verdicts: tuple[Verdict, ...]
