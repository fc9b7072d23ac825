"""What of an intent the first release (cb577a9) cannot read: its coordinators reject it before they read any root."""

from __future__ import annotations

from typing import Final

from rootline.schemas.intent import Intent
from rootline.schemas.intent_kinds import IntentKind

_KINDS: Final = frozenset(
    {
        IntentKind.APPEND,
        IntentKind.REMOVE,
        IntentKind.OVERWRITE,
        IntentKind.ROW_DELTA,
        IntentKind.CREATE,
        IntentKind.FLUSH,
        IntentKind.COMPACT_LEAVES,
        IntentKind.COMPACT_VECTORS,
        IntentKind.TAG,
        IntentKind.RESTORE,
        IntentKind.REWRITE,
    }
)
_LEVELS: Final = 2


def beyond_first_release(intent: Intent) -> str | None:
    """What that is, for a message; `None`: nothing."""
    if intent.kind not in _KINDS:
        return f"kind {intent.kind}"
    if intent.definition is not None and intent.kind is not IntentKind.CREATE:
        return f"kind {intent.kind} with changes of the definition"
    if intent.page is not None:
        return "a stored page"
    if intent.table.count(".") >= _LEVELS:
        return "a namespace of several levels"
    return None
