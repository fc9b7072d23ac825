"""The options of `format("rootline")`, in the words that Iceberg and Delta users know.

Owns: names, defaults and checks of options. Does not own: what they mean to a reader or writer.
Invariants: an option that is not known, or has no usable value, is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, table_name

WAREHOUSE_VARIABLE: Final = "ROOTLINE_WAREHOUSE"
LOG_VARIABLE: Final = "ROOTLINE_LOG"
_KNOWN: Final = (
    "path",
    "warehouse",
    "log",
    "columns",
    "versionAsOf",
    "timestampAsOf",
    "snapshotId",
    "writerId",
    "writerSequence",
    "verdictTimeoutMs",
    "onRejected",
    "targetFileSizeBytes",
    "checkpointLocation",
)


class OnRejected(StrEnum):
    """What a sink does when its intent is rejected."""

    FAIL = "fail"
    DEAD_LETTER = "deadLetter"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """One `load` or `save`. Sizes in bytes, times in milliseconds since the epoch or as named."""

    warehouse: str
    log: str | None
    table: TableName
    columns: tuple[str, ...] | None = None
    version: int | None = None
    timestamp_ms: int | None = None
    snapshot_id: int | None = None
    writer_id: str | None = None
    writer_sequence: int | None = None
    verdict_timeout_ms: int = 60_000
    on_rejected: OnRejected = OnRejected.FAIL
    target_file_size_bytes: int = 256 * 1024 * 1024


def parse_options(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> SourceOptions:
    """The options that Spark hands over (case does not matter), with `ROOTLINE_WAREHOUSE` and `ROOTLINE_LOG` behind.

    Raises:
        Invalid: `setting-invalid`, an option is unknown, missing or of the wrong form; the message names it.
    """
    variables = os.environ if environment is None else environment
    canonical = {name.lower(): name for name in _KNOWN}
    found: dict[str, str] = {}
    for name, value in given.items():
        known = canonical.get(name.lower())
        if known is None:
            raise Invalid("setting-invalid", f"option {name!r} is not known; the options are {', '.join(_KNOWN)}")
        found[known] = value
    warehouse = found.get("warehouse") or variables.get(WAREHOUSE_VARIABLE)
    if not warehouse:
        raise Invalid("setting-invalid", f"no warehouse: set option 'warehouse' or the variable {WAREHOUSE_VARIABLE}")
    if "path" not in found:
        raise Invalid("setting-invalid", "no table: name it as load('namespace.table') or save('namespace.table')")
    columns = found.get("columns")
    return SourceOptions(
        warehouse=warehouse,
        log=found.get("log") or variables.get(LOG_VARIABLE) or None,
        table=table_name(found["path"]),
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",") if name.strip()),
        version=_whole(found, "versionAsOf"),
        timestamp_ms=_whole(found, "timestampAsOf"),
        snapshot_id=_whole(found, "snapshotId"),
        writer_id=found.get("writerId"),
        writer_sequence=_whole(found, "writerSequence"),
        verdict_timeout_ms=_whole(found, "verdictTimeoutMs") or 60_000,
        on_rejected=_on_rejected(found.get("onRejected", OnRejected.FAIL.value)),
        target_file_size_bytes=_whole(found, "targetFileSizeBytes") or 256 * 1024 * 1024,
    )


def _whole(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise Invalid("setting-invalid", f"option {name!r} is {text!r}; it must be a whole number")
    return int(text)


def _on_rejected(text: str) -> OnRejected:
    for known in OnRejected:
        if known.value.lower() == text.lower():
            return known
    raise Invalid("setting-invalid", f"option 'onRejected' is {text!r}; it must be 'fail' or 'deadLetter'")
