"""The one door for records on topics of ours that steer coordinators: bytes in, plain values of the expected types out.

Owns: keys of the frontiers' topic, bounded parsing, counting and logging of skipped records. Does not own: the bodies
of records (`frontier_codec`, `parked_topic`), a reader's way without a record (decision 0108).
Invariants: any bytes give values or `Unreadable`. A number is an integer that a Kafka offset can be. Nothing here
takes more memory than the record has bytes, times a constant. The key alone decides whether a record concerns this
group. No vendor's library is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from prometheus_client import Counter

from rootline.schemas.identifiers import LogId

FRONTIER: Final = ""
ANSWERS: Final = "answers"
PARKED: Final = "parked"
LIFT: Final = "lift"
LAKE: Final = "lake"
UPGRADED: Final = "upgraded"
PAUSED: Final = "paused"

RECORD_BYTES_MAX: Final = 1_048_576
"""Writers stop before 1,000,000."""
_KEY_BYTES_MAX: Final = 16_384
_COUNT_MAX: Final = 2**63 - 1
_SHOWN_MAX: Final = 5
_KEY_SHOWN_BYTES: Final = 100

SKIPPED: Final = Counter(
    "rootline_control_records_skipped_total",
    "Records of the topics of frontiers and of parked records that cannot be read, each time that one is met.",
    ("topic",),
    registry=None,
)


class Unreadable(Exception):
    """A record that is not of the form that its place or key names."""


@dataclass(frozen=True, slots=True)
class ControlKey:
    """The key of a record: `log` is `None` for a pause and a lake, `partition` is 0 where the kind has none."""

    kind: str
    log: LogId | None
    partition: int
    names: tuple[str, ...] = ()


def control_key(group_id: str, key: bytes | None) -> ControlKey | None:
    """The key of a record of this group, or `None` if it is another group's.

    Raises:
        Unreadable: no key of ours has this form.

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
    """The log that a key names. Raises `Unreadable`: it names none."""
    if key.log is None:
        raise Unreadable("the key names no log")
    return key.log


def of_names(key: ControlKey, *lengths: int) -> tuple[str, ...]:
    """The names that follow the kind, so many as one of `lengths`. Raises `Unreadable`."""
    if len(key.names) not in lengths:
        raise Unreadable(f"the key has {len(key.names)} names behind its kind")
    return key.names


def control_body(value: bytes | None) -> Mapping[str, Any]:
    """The fields of a record. Raises `Unreadable`."""
    body = _parsed(value, RECORD_BYTES_MAX)
    if not isinstance(body, dict):
        raise Unreadable("the value is not an object")
    return body


def control_row(value: bytes | None, length: int) -> list[Any]:
    """The values of a record that is a list of so many. Raises `Unreadable`."""
    row = _parsed(value, _KEY_BYTES_MAX)
    if not isinstance(row, list) or len(row) != length:
        raise Unreadable(f"not a list of {length}")
    return row


def count(value: object) -> int:
    """An offset, or a number of something. Raises `Unreadable`."""
    if (number := whole(value)) < 0:
        raise Unreadable(f"not a count: {number}")
    return number


def whole(value: object) -> int:
    """A count, or a time in milliseconds, which a writer's clock may put before 1970. Raises `Unreadable`."""
    if not isinstance(value, int) or isinstance(value, bool) or not -_COUNT_MAX <= value <= _COUNT_MAX:
        raise Unreadable(f"not a whole number of 64 bits: {value!r:.40}")
    return value


def text(value: object) -> str:
    """A name or a reason. Raises `Unreadable`."""
    if not isinstance(value, str):
        raise Unreadable(f"not text: {value!r:.40}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unreadable(f"not text: {value!r:.40}") from None
    return value


def rows(value: object, length: int) -> Sequence[list[Any]]:
    """A list of lists of so many values. Raises `Unreadable`."""
    if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == length for row in value):
        raise Unreadable(f"not a list of lists of {length}")
    return value


class Skipped:
    """Counts the records of one reading that cannot be read, and logs them in one line."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[str] = []

    def note(self, record: Any, why: Unreadable) -> None:
        """`record` cannot be read."""
        self._count += 1
        SKIPPED.labels(record.topic).inc()
        if len(self._first) < _SHOWN_MAX:
            key = (record.key or b"")[:_KEY_SHOWN_BYTES]
            self._first.append(f"{record.topic}/{record.partition}/{record.offset} (key {key!r}): {why}")

    def tell(self) -> None:
        """Log what was noted since the last call, if there was anything."""
        if self._count:
            structlog.get_logger("rootline.kafka").warning(
                "records that cannot be read are skipped",
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
