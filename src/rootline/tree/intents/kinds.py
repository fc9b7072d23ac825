"""The table of kinds: how an intent of each is decided, and what its root says and must keep.

Owns: one row for each kind. Does not own: the rules (one file for each kind beside this one), what a kind carries on
the wire (`rootline.schemas.intent_rules`).
Invariants: every kind has a row; a kind is decided on a table or begins one, never both.

What an accepted intent does is a `Change`, a value; the draft, the next root, its header and the checks read it from
there. So a new kind is its file, its row here, and its row of the wire. Two things may come with it: words in the
snapshot's summary, because no root may change what its header carries in silence, and the rule that holds those words
against the header.
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
"""What an intent does to a table, or what must be fetched to tell. Raises `Invalid`: it is rejected."""
Begin = Callable[[Intent, FetchedObjects, int], Beginning | Needs]
"""The same where there is nothing; the number is the log's append time of the intent."""
Says = Callable[[RootHeader | None, Draft], Mapping[str, str]]
"""Words for the snapshot's summary, from the header before and the draft."""
HeaderRule = Callable[[RootHeader, RootHeader], Iterator[str]]
"""What is wrong with a header, given the one before it, in words."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One row. `finding`: the code under which `rootline check` reports what breaks `rule`."""

    judge: Judge | None = None
    begin: Begin | None = None
    says: Says | None = None
    rule: HeaderRule | None = None
    finding: str = "snapshot-wrong"


KINDS: Final[Mapping[IntentKind, Kind]] = {  # words of the summary come in this order
    IntentKind.APPEND: Kind(append),
    IntentKind.REMOVE: Kind(remove),
    IntentKind.OVERWRITE: Kind(overwrite),
    IntentKind.ROW_DELTA: Kind(row_delta),
    IntentKind.CREATE: Kind(begin=create),
    IntentKind.FLUSH: Kind(flush),
    IntentKind.COMPACT_LEAVES: Kind(flush),
    IntentKind.COMPACT_VECTORS: Kind(compact_vectors, says=summary_of_joins),
    IntentKind.TAG: Kind(tag, says=summary_of_tags, rule=tag_violations, finding="tags-wrong"),
    IntentKind.RESTORE: Kind(restore, says=summary_of_restores, rule=restore_violations),
    IntentKind.REWRITE: Kind(rewrite, says=summary_of_rewrites),
    IntentKind.CONVERT_EQUALITY_DELETES: Kind(convert_equality_deletes, says=summary_of_conversions),
    IntentKind.ALTER: Kind(alter, says=summary_of_alters, rule=alter_violations),
    IntentKind.REPLACE: Kind(replace, says=summary_of_replaces, rule=replace_violations),
    IntentKind.EXPIRE: Kind(expire, says=summary_of_expiry, rule=expiry_violations),
    IntentKind.SWEEP: Kind(sweep, says=summary_of_sweeps, rule=sweep_violations),
    IntentKind.DROP: Kind(drop, says=summary_of_drops, rule=drop_violations),
    IntentKind.PURGE: Kind(purge),
    IntentKind.CREATE_VIEW: Kind(begin=create_view),
    IntentKind.REPLACE_VIEW: Kind(replace_view, says=summary_of_views, rule=view_violations),
    IntentKind.DROP_VIEW: Kind(drop_view),
}


def said_by_kinds(before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """What the kinds of a batch have to say in the snapshot's summary."""
    if before is not None and draft.is_first:
        return summary_of_drops(before, draft)  # nothing else of the table that was goes on
    said: dict[str, str] = {}
    for kind in KINDS.values():
        if kind.says is not None:
            said.update(kind.says(before, draft))
    return said


def carried_violations(before: RootHeader, after: RootHeader) -> Iterator[tuple[str, str]]:
    """What is wrong with what a header carries, given the one before it: (code of the finding, sentence)."""
    if starts_new_table(before, after):
        yield from (("parent-mismatch", sentence) for sentence in beginning_violations(before, after))
        return
    for kind in KINDS.values():
        if kind.rule is not None:
            yield from ((kind.finding, sentence) for sentence in kind.rule(before, after))
