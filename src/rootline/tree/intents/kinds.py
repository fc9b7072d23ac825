"""The table of kinds: the functions that decide an intent, add its summary and check its roots.

Owns: one row for each kind. Does not own: the rules (one file for each kind beside this one), the fields of a kind on
the wire (`rootline.schemas.intent_rules`).
Invariants: Every kind has a row. A kind is decided on a table or begins one, never both.

An accepted intent is a `Change`, a value. The draft, the next root, its header and the checks only read that value. So
a new kind is its file, its row here, and its row of the wire. It may also have keys of the snapshot's summary, because
no root may change its header silently, and the rule that compares the keys with the header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import IntentKind
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Beginning, Change
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.alter import alter, alter_violations, summary_of_alters
from rootline.tree.intents.append import append
from rootline.tree.intents.compact_vectors import compact_vectors, summary_of_joins
from rootline.tree.intents.convert_equality_deletes import convert_equality_deletes, summary_of_conversions
from rootline.tree.intents.create import create
from rootline.tree.intents.drop import (
    beginning_violations,
    drop,
    drop_violations,
    purge,
    starts_new_table,
    summary_of_drops,
)
from rootline.tree.intents.expire import expire, expiry_violations, summary_of_expiry
from rootline.tree.intents.flush import flush
from rootline.tree.intents.overwrite import overwrite
from rootline.tree.intents.remove import remove
from rootline.tree.intents.replace import replace, replace_violations, summary_of_replaces
from rootline.tree.intents.restore import restore, restore_violations, summary_of_restores
from rootline.tree.intents.rewrite import rewrite, summary_of_rewrites
from rootline.tree.intents.row_delta import row_delta
from rootline.tree.intents.sweep import summary_of_sweeps, sweep, sweep_violations
from rootline.tree.intents.tag import summary_of_tags, tag, tag_violations
from rootline.tree.intents.view import create_view, drop_view, replace_view, summary_of_views, view_violations

Judge = Callable[[Draft, Intent, FetchedObjects], Change | Beginning | Needs]
"""The change that an intent makes to a table, or the objects to fetch first. Raises `Invalid` to reject the intent."""
Begin = Callable[[Intent, FetchedObjects, int], Beginning | Needs]
"""The table or view that an intent begins where there is no root. The number is the intent's append time (ms)."""
SummaryOf = Callable[[RootHeader | None, Draft], Mapping[str, str]]
"""Keys for the snapshot's summary, from the parent's header and the draft."""
HeaderRule = Callable[[RootHeader, RootHeader], Iterator[str]]
"""Violations in a header, compared with the parent's, as sentences."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One row. `finding`: the code under which `rootline check` reports violations of `rule`."""

    judge: Judge | None = None
    begin: Begin | None = None
    summary: SummaryOf | None = None
    rule: HeaderRule | None = None
    finding: str = "snapshot-wrong"


KINDS: Final[Mapping[IntentKind, Kind]] = {  # the summary's keys are in this order
    IntentKind.APPEND: Kind(append),
    IntentKind.REMOVE: Kind(remove),
    IntentKind.OVERWRITE: Kind(overwrite),
    IntentKind.ROW_DELTA: Kind(row_delta),
    IntentKind.CREATE: Kind(begin=create),
    IntentKind.FLUSH: Kind(flush),
    IntentKind.COMPACT_LEAVES: Kind(flush),
    IntentKind.COMPACT_VECTORS: Kind(compact_vectors, summary=summary_of_joins),
    IntentKind.TAG: Kind(tag, summary=summary_of_tags, rule=tag_violations, finding="tags-wrong"),
    IntentKind.RESTORE: Kind(restore, summary=summary_of_restores, rule=restore_violations),
    IntentKind.REWRITE: Kind(rewrite, summary=summary_of_rewrites),
    IntentKind.CONVERT_EQUALITY_DELETES: Kind(convert_equality_deletes, summary=summary_of_conversions),
    IntentKind.ALTER: Kind(alter, summary=summary_of_alters, rule=alter_violations),
    IntentKind.REPLACE: Kind(replace, summary=summary_of_replaces, rule=replace_violations),
    IntentKind.EXPIRE: Kind(expire, summary=summary_of_expiry, rule=expiry_violations),
    IntentKind.SWEEP: Kind(sweep, summary=summary_of_sweeps, rule=sweep_violations),
    IntentKind.DROP: Kind(drop, summary=summary_of_drops, rule=drop_violations),
    IntentKind.PURGE: Kind(purge),
    IntentKind.CREATE_VIEW: Kind(begin=create_view),
    IntentKind.REPLACE_VIEW: Kind(replace_view, summary=summary_of_views, rule=view_violations),
    IntentKind.DROP_VIEW: Kind(drop_view),
}


def summary_of_kinds(before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """The keys that the kinds add to the snapshot's summary."""
    if before is not None and draft.is_first:
        return summary_of_drops(before, draft)  # the new table continues nothing else of the earlier one
    summary: dict[str, str] = {}
    for kind in KINDS.values():
        if kind.summary is not None:
            summary.update(kind.summary(before, draft))
    return summary


def carried_violations(before: RootHeader, after: RootHeader) -> Iterator[tuple[str, str]]:
    """Violations in a header's carried fields, compared with the parent's: (code of the finding, sentence)."""
    if starts_new_table(before, after):
        yield from (("parent-mismatch", sentence) for sentence in beginning_violations(before, after))
        return
    for kind in KINDS.values():
        if kind.rule is not None:
            yield from ((kind.finding, sentence) for sentence in kind.rule(before, after))
