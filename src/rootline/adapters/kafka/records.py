"""From records of the client library to records of the log.

Owns: the translation, for every reader. Does not own: reading.
Invariants: key, value and headers are the writer's bytes; a record without a value has an empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rootline.schemas.log_position import LogId, LogPosition, LogRecord


def log_records(log: LogId, found: Sequence[Any]) -> list[LogRecord]:
    """`found`: aiokafka's records of partitions of `log`."""
    return [
        LogRecord(
            LogPosition(log, held.partition, held.offset), held.key, held.value or b"", held.timestamp, held.headers
        )
        for held in found
    ]
