"""Rootline: one commit is one object.

Owns: the public names, imported lazily (PEP 562) so that a Spark executor loads only the modules that it uses.
Does not own: any behaviour.
Invariants: Importing `rootline` imports no other module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rootline.client.async_table import AsyncScan as AsyncScan
    from rootline.client.async_table import AsyncTableHandle as AsyncTableHandle
    from rootline.client.data_file import DataFile as DataFile
    from rootline.client.lake import Lake as Lake
    from rootline.client.producer import AsyncProducer as AsyncProducer
    from rootline.client.producer import AsyncReceipt as AsyncReceipt
    from rootline.client.producer import Producer as Producer
    from rootline.client.producer import Receipt as Receipt
    from rootline.client.scan import Scan as Scan
    from rootline.client.session import Commit as Commit
    from rootline.client.table_handle import TableHandle as TableHandle
    from rootline.client.view_handle import ViewHandle as ViewHandle
    from rootline.connect import connect as connect
    from rootline.schemas.distribution import __version__ as __version__
    from rootline.schemas.errors import Conflict as Conflict
    from rootline.schemas.errors import Corrupt as Corrupt
    from rootline.schemas.errors import Fenced as Fenced
    from rootline.schemas.errors import Internal as Internal
    from rootline.schemas.errors import Invalid as Invalid
    from rootline.schemas.errors import OutcomeUnknown as OutcomeUnknown
    from rootline.schemas.errors import RootlineError as RootlineError
    from rootline.schemas.errors import Unavailable as Unavailable
    from rootline.schemas.intent import Intent as Intent
    from rootline.schemas.intent import IntentKind as IntentKind
    from rootline.schemas.intent import Isolation as Isolation
    from rootline.schemas.verdict import Verdict as Verdict
    from rootline.schemas.verdict import VerdictKind as VerdictKind

_HOME: Final = {
    "AsyncProducer": "client.producer",
    "AsyncReceipt": "client.producer",
    "AsyncScan": "client.async_table",
    "AsyncTableHandle": "client.async_table",
    "Commit": "client.session",
    "Conflict": "schemas.errors",
    "Corrupt": "schemas.errors",
    "DataFile": "client.data_file",
    "Fenced": "schemas.errors",
    "Intent": "schemas.intent",
    "IntentKind": "schemas.intent",
    "Internal": "schemas.errors",
    "Invalid": "schemas.errors",
    "Isolation": "schemas.intent",
    "Lake": "client.lake",
    "OutcomeUnknown": "schemas.errors",
    "Producer": "client.producer",
    "Receipt": "client.producer",
    "RootlineError": "schemas.errors",
    "Scan": "client.scan",
    "TableHandle": "client.table_handle",
    "Unavailable": "schemas.errors",
    "Verdict": "schemas.verdict",
    "VerdictKind": "schemas.verdict",
    "ViewHandle": "client.view_handle",
    "__version__": "schemas.distribution",
    "connect": "connect",
}
__all__ = sorted(name for name in _HOME if not name.startswith("_"))


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        words = f"module 'rootline' has no attribute {name!r}"
        if not name.startswith("_"):
            from rootline.client.checks import hint

            words += hint("rootline", name)
        raise AttributeError(words)
    found = getattr(importlib.import_module(f"rootline.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
