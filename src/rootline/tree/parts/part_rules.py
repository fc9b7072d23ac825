"""The values of parts, the row of a part, and the facts that a row is given.

Owns: one row of the table (`part_table`), facts of a batch for the summary and for the next header. Does not own: the
rows (one file for each part beside this one), the parts' keys (`rootline.schemas.parts`).
Invariants: A part is never given a draft: it follows from the parent's header, from its own value in the draft, from
facts of the batch, and from parts that advanced before it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from rootline.schemas.bytes.root.page_codec import PageKind
from rootline.schemas.identifiers import LogId, Version
from rootline.schemas.parts.header_part import HeaderPart, Part
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.parts.page_merge import Fitted
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_pages import TablePages

HeaderRule = Callable[[RootHeader, RootHeader], Iterator[str]]
"""Violations in a header, compared with the parent's, as sentences."""
T = TypeVar("T")


class PartValues:
    """Values of parts, by the name of the part."""

    __slots__ = ("by_name",)

    def __init__(self, by_name: Mapping[str, Any]) -> None:
        self.by_name: Final = by_name

    def of(self, part: HeaderPart[Part]) -> Part:
        """The value of a part."""
        value: Part = self.by_name[part.name]
        return value

    def having(self, part: HeaderPart[Part], value: Part) -> PartValues:
        """These values, with `value` as that of a part."""
        return PartValues({**self.by_name, part.name: value})


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Facts of a batch that the summary states.

    * `restored`: the versions that it restored, in order.
    * `first_schema_id`: the first schema of the table that it replaced last, or `None`.
    * `redefines`: whether the definition was changed.
    * `is_new`: whether the root belongs to another table than the parent's.
    * `condemned`: the locations in each condemned page, by its digest.
    """

    restored: Sequence[Version] = ()
    first_schema_id: int | None = None
    redefines: bool = False
    is_new: bool = False
    condemned: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(slots=True)
class Advance:
    """The step to the next root: facts of the batch, the parts that have advanced so far, and their pages.

    * `before`: the parent's header. `starts_table`: whether another table than the parent's begins in the next root.
    * `version`, `timestamp_ms`: of the next root. `appended_ms`: the newest append time of the batch.
    * `properties`: of the table's definition. `retention_ms`: of idle writers.
    * `salt`: of the names of new pages.
    * `pages`: of the parent, and of the parts that have advanced. `objects`: new pages, to store before the root.
    """

    before: RootHeader | None
    starts_table: bool
    version: Version
    timestamp_ms: int
    appended_ms: int
    table_uuid: uuid.UUID
    properties: Mapping[str, str]
    acknowledged: Mapping[tuple[LogId, int], int]
    retention_ms: int
    log_retention_s: int
    limits: HeaderLimits
    salt: bytes
    pages: TablePages
    done: dict[str, Any] = field(default_factory=dict)
    objects: list[PendingObject] = field(default_factory=list)

    @property
    def latest_ms(self) -> int:
        """The newest time of the batch, by the log and by the coordinator."""
        return max(self.timestamp_ms, self.appended_ms)

    def of(self, part: HeaderPart[Part]) -> Part:
        """A part of the next header. Raises `KeyError` if it has not advanced yet."""
        value: Part = self.done[part.name]
        return value

    def spilled(self, kind: PageKind[T], fitted: Fitted[Part, T]) -> tuple[Part, tuple[PageReference, ...]]:
        """The part that stays in the header, and its references to pages. The pages are the next root's."""
        self.pages = self.pages.having(kind, fitted.pages)
        self.objects += fitted.objects
        return fitted.header, tuple([page.reference for page in fitted.pages])


@dataclass(frozen=True, slots=True)
class PartRules:
    """One row. `name` is the part's field of the header.

    * `summary`: keys for the snapshot's summary, from the part's value before (`None` without a parent) and after. It
      is called only if the value is another object.
    * `rule`: the violations between a root and its parent. `finding`: the code under which `rootline check` reports
      them.
    * `begins`: the violations where a new table of the name begins, checked instead of `rule`.
    * `own_rule`: the violations that only a root of this release is held to, before its PUT. `rootline check` has rules
      of its own for the same facts, as roots of older releases lack some of them.
    * `initial`: the value in the first root of a name.
    * `advance`: the part of the next header, from its value in the draft. It is called if that is another object than
      the parent's, or if a part in `follows` may change. `None`: the part is the value in the draft.
    """

    name: str
    summary: Callable[[Any, Any, BatchFacts], Mapping[str, str]] | None = None
    rule: HeaderRule | None = None
    begins: HeaderRule | None = None
    own_rule: HeaderRule | None = None
    initial: Any = None
    finding: str = "snapshot-wrong"
    follows: tuple[str, ...] = ()
    advance: Callable[[Any, Advance], Any] | None = None
