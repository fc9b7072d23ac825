"""The part `restores`: the numbers of the last restore and replace, and the last change of the definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from rootline.schemas.parts.definition import DEFINITION
from rootline.schemas.parts.restores import Restores
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.part_rules import Advance, BatchFacts, PartRules

RESTORED_VERSIONS: Final = "rootline.restored-versions"
"""Key of a snapshot's summary: the versions that its intents restored, in order."""
REPLACED_TABLE: Final = "rootline.replaced-table"
"""Key of a snapshot's summary: the id of the new table's first schema, if an intent replaced the table."""


def _advance(restores: Restores, step: Advance) -> Restores:
    """Note the last version that changed the definition, this one included. The first of a table changes none."""
    before, redefined_in = step.before, None
    if before is not None and not step.starts_table:
        redefined_in = before.restores.redefined_in if step.of(DEFINITION) == before.definition else step.version
    return restores if restores.redefined_in == redefined_in else replace(restores, redefined_in=redefined_in)


def _summary(_before: Restores | None, _after: Restores, facts: BatchFacts) -> Mapping[str, str]:
    summary = {}
    if facts.restored:
        summary[RESTORED_VERSIONS] = ",".join(map(str, facts.restored))
    if facts.first_schema_id is not None:
        summary[REPLACED_TABLE] = str(facts.first_schema_id)
    return summary


def _rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now, summary = before.restores, after.restores, after.snapshot.summary
    if (now.restored_at > was.restored_at) != (RESTORED_VERSIONS in summary):
        yield f"restored at sequence number {now.restored_at}, which does not match its summary"
    if not was.restored_at <= now.restored_at <= after.snapshot.sequence_number:
        yield f"restored at sequence number {now.restored_at}, but its parent at {was.restored_at}"
    if (now.replaced_at > was.replaced_at) != (REPLACED_TABLE in summary):
        yield f"replaced at sequence number {now.replaced_at}, which does not match its summary"
    if not was.replaced_at <= now.replaced_at <= after.snapshot.sequence_number:
        yield f"replaced at sequence number {now.replaced_at}, but its parent at {was.replaced_at}"
    if now.replaced_at > was.replaced_at and after.definition == before.definition:
        yield "the table was replaced, but has no new schema"


def _begins(_before: RootHeader, after: RootHeader) -> Iterator[str]:
    if after.restores.through:
        yield "it can reach restores or replaces of the earlier table of its name"


RESTORES: Final = PartRules("restores", _summary, _rule, _begins, follows=("definition",), advance=_advance)
