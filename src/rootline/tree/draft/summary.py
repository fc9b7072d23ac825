"""A snapshot's operation and summary, in Iceberg's words, so that they recompute from the root.

Owns: the words and the counting. Does not own: what the counters count (`totals`).
Invariants: what one root adds and removes again is in no count; zero counts are left out, totals never are.

Source: the Iceberg specification, "Snapshots"; format page, "Status".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.root_header import Operation, Totals
from rootline.tree.draft.change import Effect
from rootline.tree.state.totals import Tally

USER_SUMMARY_CHARS_MAX: Final = 4_096
CHANGED_TAGS: Final = "rootline.changed-tags"
"""In a snapshot's summary: the tags that its intents set, moved or deleted."""
RESTORED_VERSIONS: Final = "rootline.restored-versions"
"""In a snapshot's summary: the versions that its intents restored, in their order."""
REPLACED_TABLE: Final = "rootline.replaced-table"
"""In a snapshot's summary: the id of the schema from which the table counts, where its intents replaced it."""
CHANGED_DEFINITION: Final = "rootline.definition"
"""In a snapshot's summary: the SHA-256 of the table's definition, where its intents changed it."""
REPLACED_FILES: Final = "rootline.replaced-data-files"
REWRITTEN_FILES: Final = "rootline.rewritten-data-files"
"""In a snapshot's summary: how many data files its rewrites replaced, and by how many; no other count knows of them."""
CONVERTED_DELETES: Final = "rootline.converted-equality-deletes"
"""In a snapshot's summary: how many equality deletes became vectors; no other count knows of them."""
JOINED_VECTORS: Final = "rootline.joined-vectors"
"""In a snapshot's summary: how many vectors of data files moved into a Puffin file with others, unchanged."""
_RESERVED: Final = ("added-", "removed-", "deleted-", "total-", "changed-partition-count", "operation", "rootline.")


def operation_of(effect: Effect) -> Operation:
    """All adds: append; all removals: delete; all maintenance, or nothing at all: replace; else overwrite."""
    if effect is Effect.ADDS:
        return Operation.APPEND
    if effect is Effect.REMOVES:
        return Operation.DELETE
    if effect in (Effect.MAINTAINS, Effect.NOTHING):
        return Operation.REPLACE
    return Operation.OVERWRITE


def check_user_summary(summary: Mapping[str, str]) -> None:
    """Raises `Invalid` (`intent-malformed`) when an intent's summary is long or uses a word of the snapshot's own."""
    if not summary:
        return
    if sum(len(key) + len(value) for key, value in summary.items()) > USER_SUMMARY_CHARS_MAX:
        raise Invalid("intent-malformed", f"summary has more than {USER_SUMMARY_CHARS_MAX} characters")
    for key in summary:
        if key.startswith(_RESERVED):
            raise Invalid("intent-malformed", f"summary: {key[:80]!r} is counted by the table itself, leave it out")


def summary_of(added: Tally, removed: Tally, totals: Totals, user: Mapping[str, str]) -> dict[str, str]:
    """The summary: what changed, the totals after it, and what the intents sent along."""
    changed = {
        "added-data-files": added.data_files,
        "added-delete-files": added.vectors + added.equality_deletes,
        "added-dvs": added.vectors,
        "added-equality-delete-files": added.equality_deletes,
        "added-equality-deletes": added.equality_rows,
        "added-files-size": added.data_bytes + added.delete_bytes,
        "added-position-deletes": added.deleted_rows,
        "added-records": added.rows,
        "deleted-data-files": removed.data_files,
        "deleted-records": removed.rows,
        "removed-delete-files": removed.vectors + removed.equality_deletes,
        "removed-dvs": removed.vectors,
        "removed-equality-delete-files": removed.equality_deletes,
        "removed-equality-deletes": removed.equality_rows,
        "removed-files-size": removed.data_bytes + removed.delete_bytes,
        "removed-position-deletes": removed.deleted_rows,
    }
    live = {
        "total-data-files": totals.data_files,
        "total-delete-files": totals.vectors + totals.equality_deletes,
        "total-position-deletes": totals.deleted_rows,
        "total-records": totals.rows,
    }
    counted = {key: str(value) for key, value in changed.items() if value}
    return {**user, **counted, **{key: str(value) for key, value in live.items()}}


def changed_tags(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The names of the tags that are not where they were, ascending, with commas between them."""
    return ",".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
