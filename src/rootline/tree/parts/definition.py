"""The part `definition`: the summary states its digest if it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.part_rules import BatchFacts, PartRules

CHANGED_DEFINITION: Final = "rootline.definition"
"""Key of a snapshot's summary: the SHA-256 of the table's definition, if an intent changed it."""


def _summary(_before: DefinitionReference | None, after: DefinitionReference, facts: BatchFacts) -> Mapping[str, str]:
    return {CHANGED_DEFINITION: after.digest.hex()} if facts.redefines else {}


def definition_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in a root's definition, compared with the root before it, as sentences."""
    stated = after.snapshot.summary.get(CHANGED_DEFINITION)
    changed = after.definition.digest.hex() if after.definition != before.definition else None
    if stated != changed:
        yield f"its intents changed the definition to {changed}, but its summary states {stated!r:.80}"


DEFINITION: Final = PartRules("definition", _summary, definition_violations)
