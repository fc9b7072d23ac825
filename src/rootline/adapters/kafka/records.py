"""Records as the client library hands them out → records as the log keeps them.

Owns: the translation, for every record that a coordinator reads. Does not own: reading.
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
