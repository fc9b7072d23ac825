"""The table of the parts of the header: the order in which they advance, are stated and are checked.

Owns: the order, and the loops over the table. Does not own: the rows (one file for each part beside this one).
Invariants: A part is listed after the parts that it follows from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rootline.schemas.identifiers import Acknowledged
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.definition import DEFINITION
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.parts.ledger import LEDGER
from rootline.tree.parts.locations import LOCATIONS
from rootline.tree.parts.log import LOG
from rootline.tree.parts.name import NAME, starts_new_table
from rootline.tree.parts.outcomes import OUTCOMES
from rootline.tree.parts.part_rules import Advance, BatchFacts, CheckedStep, PartRules, PartValues
from rootline.tree.parts.progress import PROGRESS
from rootline.tree.parts.removals import REMOVALS
from rootline.tree.parts.restores import RESTORES
from rootline.tree.parts.row_ids import ROW_IDS
from rootline.tree.parts.tags import TAGS
from rootline.tree.parts.versions import VERSIONS
from rootline.tree.state.table_state import PAGE_KINDS, TableState

CARRIED_PARTS: Final[tuple[PartRules, ...]] = (TAGS, RESTORES, DEFINITION, VERSIONS, LOCATIONS, NAME, PROGRESS)
"""The parts that a root carries forward unless an intent changes them."""
PART_RULES: Final[tuple[PartRules, ...]] = (OUTCOMES, LOG, LEDGER, *CARRIED_PARTS, REMOVALS, ROW_IDS)
_STILL: Final = tuple(part.name for part in PART_RULES if part.advance is None)
_OWN_RULES: Final = tuple((part.finding, part.own_rule) for part in PART_RULES if part.own_rule is not None)
_RULES: Final = tuple((part.finding, part.rule) for part in PART_RULES if part.rule is not None)
_BEGINNINGS: Final = tuple(("parent-mismatch", part.begins) for part in PART_RULES if part.begins is not None)
_PAGE_RULES: Final = [part.page_rules[kind] for kind in PAGE_KINDS for part in PART_RULES if kind in part.page_rules]
_ADVANCING: Final = tuple((row.name, (row.name, *row.follows), row.advance) for row in PART_RULES if row.advance)


def advanced_parts(drafted: Mapping[str, Any], step: Advance) -> dict[str, Any]:
    """The parts of the next header, by name. `drafted`: their values in the draft, in the form that each row takes.

    A part whose value is the parent's own object is skipped, unless it follows from a part that may change.
    """
    done, before = step.done, step.before
    for name in _STILL:
        done[name] = drafted[name]
    for name, watched, advance in _ADVANCING:
        done[name] = drafted[name]
        for each in watched:
            if drafted[each] is not getattr(before, each, None):
                done[name] = advance(drafted[name], step)
                break
    return done


def summary_of_parts(before: RootHeader | None, parts: PartValues, facts: Callable[[], BatchFacts]) -> dict[str, str]:
    """The keys that state the changed parts in the snapshot's summary.

    Args:
        before: the parent's header, or `None`.
        parts: of the next root. A part that is the parent's own object has not changed.
        facts: of the batch. They are only asked for if a part changed.
    """
    changed = [
        (part, None if before is None else getattr(before, part.name), parts.by_name[part.name])
        for part in CARRIED_PARTS
        if before is None or getattr(before, part.name) is not parts.by_name[part.name]
    ]
    if not changed:
        return {}
    known = facts()
    summary: dict[str, str] = {}
    for part, was, now in changed:
        if part.summary is not None and (before is None or not known.is_new or part is NAME):
            # a new table continues nothing else of the earlier one
            summary.update(part.summary(was, now, known))
    return summary


def part_violations(before: RootHeader, after: RootHeader, *, is_own: bool) -> Iterator[tuple[str, str]]:
    """Violations in a header's parts, compared with the parent's: (code of the finding, sentence).

    `is_own`: whether this release made `after`, before its PUT.
    """
    for finding, rule in _OWN_RULES if is_own else ():
        for sentence in rule(before, after):
            yield finding, sentence
    for finding, rule in _BEGINNINGS if starts_new_table(before, after) else _RULES:
        for sentence in rule(before, after):
            yield finding, sentence


def page_violations(
    old: TableState | None, new: TableState, acknowledged: Acknowledged, limits: HeaderLimits
) -> Iterator[str]:
    """The rules of pages that the step from `old` to `new` breaks, as sentences. Reads only pages that changed."""
    if not new.pages.are_those_of(new.header):
        yield "the pages are not those that the header references"
    step = CheckedStep(acknowledged, limits, old is not None and starts_new_table(old.header, new.header))
    for rule in _PAGE_RULES:
        yield from rule(old, new, step)
