"""The values of parts, the row of a part, and the facts that a row is given.

Owns: one row of the table (`part_table`), facts of a batch for the summary and for the next header. Does not own: the
rows (one file for each part beside this one), the parts' keys (`rootline.schemas.parts`).
Invariants: A part is never given a draft: it follows from the parent's header, from its own value in the draft, from
facts of the batch, and from parts that advanced before it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from rootline.schemas.bytes.root.page_codec import PageKind
from rootline.schemas.identifiers import Acknowledged, Version
from rootline.schemas.parts.header_part import HeaderPart, Part
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import PARTS, RootHeader
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.parts.page_merge import Fitted
from rootline.tree.state.table_state import PendingObject, TablePages, TableState

PageRule = Callable[[TableState | None, TableState, "CheckedStep"], Iterator[str]]
"""Violations in pages of one kind, and in the part of the header that moves to them, compared with the parent's."""
HeaderRule = Callable[[RootHeader, RootHeader], Iterator[str]]
"""Violations in a header, compared with the parent's, as sentences."""
_NAMES: Final = tuple(part.name for part in PARTS)
_VALUES_IN: Final = attrgetter(*_NAMES)
T = TypeVar("T")


class PartValues:
    """Values of parts, by the name of the part."""

    __slots__ = ("by_name",)

    def __init__(self, by_name: Mapping[str, Any]) -> None:
        self.by_name: Final = by_name

    @staticmethod
    def in_header(header: RootHeader) -> PartValues:
        """The parts of a header."""
        return PartValues(dict(zip(_NAMES, _VALUES_IN(header), strict=True)))

    def of(self, part: HeaderPart[Part]) -> Part:
        """The value of a part."""
        value: Part = self.by_name[part.name]
        return value

    def having(self, part: HeaderPart[Part], value: Part) -> PartValues:
        """These values, with another `value` of one part."""
        return PartValues({**self.by_name, part.name: value})


INITIAL: Final = PartValues({item.name: {} if item.default is MISSING else item.default for item in fields(RootHeader)})
"""The parts of the first root of a name, before its first change. The definition of a table is always set."""


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
    acknowledged: Acknowledged
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


class CheckedStep(NamedTuple):
    """The facts of a step that is checked before its PUT.

    * `acknowledged`: outcomes that may be dropped. `starts_table`: whether a new table of the name begins.
    """

    acknowledged: Acknowledged
    limits: HeaderLimits
    starts_table: bool


@dataclass(frozen=True, slots=True)
class PartRules:
    """One row. `name` is the part's field of the header.

    * `summary`: keys for the snapshot's summary, from the part's value before (`None` without a parent) and after. It
      is called only if the value is another object.
    * `rule`: the violations between a root and its parent. `finding`: the code under which `rootline check` reports
      them.
    * `begins`: the violations where a new table of the name begins, checked instead of `rule`.
    * `own_rule`: more violations in a root that this release makes, checked before its PUT. `rootline check` states the
      same facts itself, as roots of older releases lack some of them.
    * `page_rules`: what must not get lost from one root's pages to the next's, for each kind of the part's pages.
    * `advance`: the part of the next header, from its value in the draft. It is called if that is another object than
      the parent's, or if a part in `follows` may change. `None`: the part is the value in the draft.
    """

    name: str
    summary: Callable[[Any, Any, BatchFacts], Mapping[str, str]] | None = None
    rule: HeaderRule | None = None
    begins: HeaderRule | None = None
    own_rule: HeaderRule | None = None
    finding: str = "snapshot-wrong"
    page_rules: Mapping[PageKind[Any], PageRule] = field(default_factory=dict)
    follows: tuple[str, ...] = ()
    advance: Callable[[Any, Advance], Any] | None = None
