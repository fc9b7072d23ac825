"""The smallest intents that add and remove a file, named after it."""

from __future__ import annotations

from typing import Any, Final

from rootline.schemas.intent import DataFile, Intent, IntentKind, RemovedFile

TABLE: Final = "demo.flights"


def adding(name: str, **more: Any) -> Intent:
    """Adds the file `name`; its id is the name."""
    file = DataFile(location=f"data/{name}.parquet", record_count=1, file_size_in_bytes=10)
    return Intent(intent_id=name, table=TABLE, kind=IntentKind.APPEND, add_data_files=(file,), **more)


def removing(name: str) -> Intent:
    """Removes the file `name`; its id is `no-NAME`."""
    file = RemovedFile(location=f"data/{name}.parquet")
    return Intent(intent_id=f"no-{name}", table=TABLE, kind=IntentKind.REMOVE, remove_files=(file,))
