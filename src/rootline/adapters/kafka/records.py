"""From records of the client library to records of the log.

Owns: the translation, for every reader. Does not own: reading.
Invariants: key, value and headers are the writer's bytes; a record without a value has an empty one; one that was not
read has none of them, and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rootline.adapters.kafka.fetching.record_batches import STAND_IN_KEY
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord


def log_records(log: LogId, found: Sequence[Any]) -> list[LogRecord]:
    """`found`: aiokafka's records of partitions of `log`."""
    return [
        LogRecord(
            LogPosition(log, held.partition, held.offset), held.key, held.value or b"", held.timestamp, held.headers
        )
        if held.key != STAND_IN_KEY
        else _not_read(log, held)
        for held in found
    ]


def _not_read(log: LogId, held: Any) -> LogRecord:
    why = held.value.decode()
    return LogRecord(LogPosition(log, held.partition, held.offset), None, b"", held.timestamp, (), why)
