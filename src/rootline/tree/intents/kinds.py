"""The table of kinds: the functions that decide an intent, and the counts that they add to a snapshot's summary.

Owns: one row for each kind, the order of the summary's keys. Does not own: the rules (in the files beside
this one), the fields of a kind on the wire (`rootline.schemas.intent_rules`), what the summary states about a part of
the header (`rootline.tree.parts`).
Invariants: Every kind has a row. A kind is decided on a table or begins one, never both.

An accepted intent is a `Change`, a value. The draft, the next root, its header and the checks only read that value. So
a new kind is a function beside this file, a row here, and a row of the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import IntentKind
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Beginning, Change, Define, ReplaceTable, RestoreVersion
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.append import append
from rootline.tree.intents.create_drop import create, create_view, drop, drop_view, purge, replace_view
from rootline.tree.intents.definition import alter
from rootline.tree.intents.flush import flush
from rootline.tree.intents.restore import restore
from rootline.tree.intents.rewrite import rewrite, summary_of_rewrites
from rootline.tree.intents.row_changes import overwrite, remove, replace, row_delta
from rootline.tree.intents.sweep import sweep
from rootline.tree.intents.vector_maintenance import (
    compact_vectors,
    convert_equality_deletes,
    summary_of_conversions,
    summary_of_joins,
)
from rootline.tree.intents.versions import expire, tag
from rootline.tree.parts.part_rules import BatchFacts
from rootline.tree.parts.part_table import summary_of_parts

Judge = Callable[[Draft, Intent, FetchedObjects], Change | Beginning | Needs]
"""The change that an intent makes to a table, or the objects to fetch first. Raises `Invalid` to reject the intent."""
Begin = Callable[[Intent, FetchedObjects, int], Beginning | Needs]
"""The table or view that an intent begins where there is no root. The number is the intent's append time (ms)."""
SummaryOf = Callable[[Draft], Mapping[str, str]]
"""Keys for the snapshot's summary that count what no other key counts."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One row."""

    judge: Judge | None = None
    begin: Begin | None = None
    summary: SummaryOf | None = None


KINDS: Final[Mapping[IntentKind, Kind]] = {
    IntentKind.APPEND: Kind(append),
    IntentKind.REMOVE: Kind(remove),
    IntentKind.OVERWRITE: Kind(overwrite),
    IntentKind.ROW_DELTA: Kind(row_delta),
    IntentKind.CREATE: Kind(begin=create),
    IntentKind.FLUSH: Kind(flush),
    IntentKind.COMPACT_LEAVES: Kind(flush),
    IntentKind.COMPACT_VECTORS: Kind(compact_vectors, summary=summary_of_joins),
    IntentKind.TAG: Kind(tag),
    IntentKind.RESTORE: Kind(restore),
    IntentKind.REWRITE: Kind(rewrite, summary=summary_of_rewrites),
    IntentKind.CONVERT_EQUALITY_DELETES: Kind(convert_equality_deletes, summary=summary_of_conversions),
    IntentKind.ALTER: Kind(alter),
    IntentKind.REPLACE: Kind(replace),
    IntentKind.EXPIRE: Kind(expire),
    IntentKind.SWEEP: Kind(sweep),
    IntentKind.DROP: Kind(drop),
    IntentKind.PURGE: Kind(purge),
    IntentKind.CREATE_VIEW: Kind(begin=create_view),
    IntentKind.REPLACE_VIEW: Kind(replace_view),
    IntentKind.DROP_VIEW: Kind(drop_view),
}

_COUNTING: Final = tuple(kind.summary for kind in KINDS.values() if kind.summary is not None)
_KEYS: Final = (
    "rootline.joined-vectors",
    "rootline.changed-tags",
    "rootline.restored-versions",
    "rootline.replaced-data-files",
    "rootline.rewritten-data-files",
    "rootline.converted-equality-deletes",
    "rootline.definition",
    "rootline.replaced-table",
    "rootline.expired-below",
    "rootline.horizon-ms",
    "rootline.condemned-locations",
    "rootline.name",
    "rootline.view",
)
"""The keys of kinds and parts, in the order in which a summary has them."""
_RANKS: Final[Mapping[str, int]] = {key: rank for rank, key in enumerate(_KEYS)}


def summary_of_kinds(before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """The keys that the kinds and the changed parts of the header add to the snapshot's summary."""

    def facts() -> BatchFacts:
        schema_ids = [edit.first_schema_id for edit in draft.accepted(ReplaceTable)]
        return BatchFacts(
            restored=[edit.version for edit in draft.accepted(RestoreVersion)],
            first_schema_id=schema_ids[-1] if schema_ids else None,
            redefines=bool(draft.accepted(Define)),
            is_new=draft.is_first,
            condemned={page.reference.digest: len(page.content.locations) for page in draft.pages.of(CONDEMNED_PAGES)},
        )

    summary = summary_of_parts(before, draft.parts, facts)
    if before is None or not draft.is_first:  # a new table continues nothing else of the earlier one
        for counted in _COUNTING:
            summary.update(counted(draft))
    return dict(sorted(summary.items(), key=lambda item: _RANKS[item[0]]))
