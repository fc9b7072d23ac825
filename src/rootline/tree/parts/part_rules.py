"""The values of parts, and the row of a part: the keys of the summary, and the rules of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rootline.schemas.identifiers import Version
from rootline.schemas.parts.header_part import HeaderPart, Part
from rootline.schemas.root_header import RootHeader

HeaderRule = Callable[[RootHeader, RootHeader], Iterator[str]]
"""Violations in a header, compared with the parent's, as sentences."""


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
class PartRules:
    """One row. `name` is the part's field of the header.

    * `summary`: keys for the snapshot's summary, from the part's value before (`None` without a parent) and after. It
      is called only if the value is another object.
    * `initial`: the value in the first root of a name.
    * `rule`: the violations between a root and its parent. `finding`: the code under which `rootline check` reports
      them.
    * `begins`: the violations where a new table of the name begins, checked instead of `rule`.
    """

    name: str
    summary: Callable[[Any, Any, BatchFacts], Mapping[str, str]]
    rule: HeaderRule
    begins: HeaderRule
    initial: Any = None
    finding: str = "snapshot-wrong"
