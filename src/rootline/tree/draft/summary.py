"""A snapshot's operation and summary, in Iceberg's terms. Both can be recomputed from the root.

Owns: the keys and the counting. Does not own: what the counters count (`totals`).
Invariants: An entry that one root both adds and removes is not counted. Counts of zero are omitted, totals never are.

Source: the Iceberg specification, "Snapshots". Format page, "Status".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rootline.schemas.client_commits import CLIENT
from rootline.schemas.errors import Invalid
from rootline.schemas.root_header import Operation, Totals
from rootline.tree.draft.change import CHANGES_OF_ROWS, Effect
from rootline.tree.state.totals import Tally

USER_SUMMARY_CHARS_MAX: Final = 4_096
REPLACED_FILES: Final = "rootline.replaced-data-files"
REWRITTEN_FILES: Final = "rootline.rewritten-data-files"
"""Keys of a snapshot's summary: the data files that rewrites replaced, and the files that replaced them.

Rewritten files are in no other count.
"""
CONVERTED_DELETES: Final = "rootline.converted-equality-deletes"
"""Key of a snapshot's summary: equality deletes that became vectors. They are in no other count."""
JOINED_VECTORS: Final = "rootline.joined-vectors"
"""Key of a snapshot's summary: vectors of data files that moved unchanged into a Puffin file with others."""
_OPERATIONS: Final[Mapping[Effect, Operation]] = {
    Effect.NOTHING: Operation.REPLACE,
    Effect.ADDS: Operation.APPEND,
    Effect.REMOVES: Operation.DELETE,
    CHANGES_OF_ROWS: Operation.OVERWRITE,
}
RESERVED_WORDS: Final = (
    "added-",
    "removed-",
    "deleted-",
    "total-",
    "changed-partition-count",
    "operation",
    "rootline.",
)
"""The beginnings of words that no user may set."""


def operation_of(effect: Effect) -> Operation:
    """The operation, which follows from the changes of rows: `append`, `delete`, `overwrite`, or `replace` without any.

    Maintenance in the same root changes no row and no data file, so a reader of changes may ignore it (decision 0132).
    """
    return _OPERATIONS[effect & CHANGES_OF_ROWS]


def check_user_summary(summary: Mapping[str, str]) -> None:
    """Raises `Invalid` (`intent-malformed`) if an intent's summary is too long or uses a reserved key. The value of
    `rootline.client` is not checked.
    """
    if sum(len(key) + len(value) for key, value in summary.items()) > USER_SUMMARY_CHARS_MAX:
        raise Invalid("intent-malformed", f"summary has more than {USER_SUMMARY_CHARS_MAX} characters: shorten it")
    for key in summary:
        if key.startswith(RESERVED_WORDS) and key != CLIENT:
            raise Invalid(
                "intent-malformed", f"summary: {key[:80]!r} is reserved for the table's own counts: remove it"
            )


def summary_of(added: Tally, removed: Tally, totals: Totals, user: Mapping[str, str]) -> dict[str, str]:
    """The summary: the changes, the totals after them, and the users' own keys."""
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
