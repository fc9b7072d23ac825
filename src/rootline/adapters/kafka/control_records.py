"""The parser of the records that control coordinators: bytes in, plain values of the expected types out.

Owns: keys of the frontiers' topic, bounded parsing, counting and logging of skipped records. Does not own: the bodies
of records (`frontier_codec`, `parked_topic`), the consequences of a skipped record (decision 0108).
Invariants: Any bytes give values or `Unreadable`. A number is an integer in the range of Kafka's offsets. Memory is
bounded by a constant times the record's size. The key alone decides whether a record concerns this group. No vendor's
library is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import Counter

from rootline.library_log import library_logger
from rootline.schemas.identifiers import LogId

FRONTIER: Final = ""
ANSWERS: Final = "answers"
PARKED: Final = "parked"
LIFT: Final = "lift"
LAKE: Final = "lake"
UPGRADED: Final = "upgraded"
PAUSED: Final = "paused"

RECORD_BYTES_MAX: Final = 1_048_576
"""More than our writers use, whose limit is 1,000,000."""
_KEY_BYTES_MAX: Final = 16_384
_COUNT_MAX: Final = 2**63 - 1
_SHOWN_MAX: Final = 5
_KEY_SHOWN_BYTES: Final = 100

SKIPPED: Final = Counter(
    "rootline_control_records_skipped_total",
    "Unreadable records of the topics of frontiers and of parked records, counted at each read.",
    ("topic",),
    registry=None,
)


class Unreadable(Exception):
    """The record does not have the form that its topic or its key requires."""


@dataclass(frozen=True, slots=True)
class ControlKey:
    """The key of a record. `log` is `None` for pauses and lakes. `partition` is 0 for kinds without a partition."""

    kind: str
    log: LogId | None
    partition: int
    names: tuple[str, ...] = ()


def control_key(group_id: str, key: bytes | None) -> ControlKey | None:
    """Parse the key of a record of this group. Returns `None` for the key of another group.

    Raises:
        Unreadable: the key has none of the known forms.
    """
    parts = _parsed(key, _KEY_BYTES_MAX)
    if not isinstance(parts, list) or not parts:
        raise Unreadable("the key is not a list")
    if parts[0] != group_id:
        return None
    match parts[1:]:
        case ["paused", str(table)]:
            return ControlKey(PAUSED, None, 0, (table,))
        case ["lake", str(lake_id), ""]:
            return ControlKey(LAKE, None, 0, (lake_id,))
        case [str(log), "upgraded"]:
            return ControlKey(UPGRADED, LogId(log), 0)
        case [str(log), partition]:
            return ControlKey(FRONTIER, LogId(log), count(partition))
        case [str(log), partition, str(kind), *names]:
            return ControlKey(kind, LogId(log), count(partition), tuple(text(name) for name in names))
    raise Unreadable("the key has none of the known forms")


def of_log(key: ControlKey) -> LogId:
    """The log that a key names. Raises `Unreadable` if it names none."""
    if key.log is None:
        raise Unreadable("the key names no log")
    return key.log


def of_names(key: ControlKey, *lengths: int) -> tuple[str, ...]:
    """The names after the kind in a key. Raises `Unreadable` unless their number is one of `lengths`."""
    if len(key.names) not in lengths:
        raise Unreadable(f"the key has {len(key.names)} names after its kind")
    return key.names


def control_body(value: bytes | None) -> Mapping[str, Any]:
    """Parse the fields of a record. Raises `Unreadable`."""
    body = _parsed(value, RECORD_BYTES_MAX)
    if not isinstance(body, dict):
        raise Unreadable("the value is not an object")
    return body


def control_row(value: bytes | None, length: int) -> list[Any]:
    """Parse a record that is a list of `length` values. Raises `Unreadable`."""
    row = _parsed(value, _KEY_BYTES_MAX)
    if not isinstance(row, list) or len(row) != length:
        raise Unreadable(f"not a list of {length}")
    return row


def count(value: object) -> int:
    """Check that a value is an offset or a number of something. Raises `Unreadable`."""
    if (number := whole(value)) < 0:
        raise Unreadable(f"not a count: {number}")
    return number


def whole(value: object) -> int:
    """Check that a value is a count, or a time in ms, which may be before 1970. Raises `Unreadable`."""
    if not isinstance(value, int) or isinstance(value, bool) or not -_COUNT_MAX <= value <= _COUNT_MAX:
        raise Unreadable(f"not a whole number of 64 bits: {value!r:.40}")
    return value


def text(value: object) -> str:
    """Check that a value is text. Raises `Unreadable`."""
    if not isinstance(value, str):
        raise Unreadable(f"not text: {value!r:.40}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unreadable(f"not text: {value!r:.40}") from None
    return value


def rows(value: object, length: int) -> Sequence[list[Any]]:
    """Check that a value is a list of lists of `length` values. Raises `Unreadable`."""
    if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == length for row in value):
        raise Unreadable(f"not a list of lists of {length}")
    return value


class Skipped:
    """Counts the unreadable records of one pass over a topic, and logs them in one line."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[str] = []

    def note(self, record: Any, why: Unreadable) -> None:
        """Count an unreadable record."""
        self._count += 1
        SKIPPED.labels(record.topic).inc()
        if len(self._first) < _SHOWN_MAX:
            key = (record.key or b"")[:_KEY_SHOWN_BYTES]
            self._first.append(f"{record.topic}/{record.partition}/{record.offset} (key {key!r}): {why}")

    def log(self) -> None:
        """Log the records that were counted since the last call, if there were any."""
        if self._count:
            library_logger("rootline.kafka").warning(
                "skipped unreadable records",
                action="control-records-skipped",
                records=self._count,
                first=self._first,
            )
        self._count, self._first = 0, []


def _parsed(data: bytes | None, bytes_max: int) -> Any:
    if data is None:
        raise Unreadable("it is empty")
    if len(data) > bytes_max:
        raise Unreadable(f"{len(data)} bytes, more than {bytes_max}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON: {error!s:.100}") from None
