"""A page of outcomes: verdicts, not yet known to be published, that the header has no room for.

Owns: the rows' form, and looking an offset up. Does not own: the file around them (`page_codec`), which outcomes leave
the header (`rootline.tree.ledger.outcome_spill`), the verdicts made of them (`rootline.tree.commit.answers`).
Invariants: what is encoded decodes to equal outcomes in the same order; a lookup does not depend on how many there are.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rootline.schemas.bytes.root.page_codec import PageKind, decode_page, encode_page
from rootline.schemas.bytes.values.avro_primitives import (
    NULL,
    PRESENT,
    Unreadable,
    encode_long,
    encode_string,
    read_long,
    read_present,
    read_string,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import SequenceNumber, Version
from rootline.schemas.log_position import LogId
from rootline.schemas.root_header import CoveredOffset, Outcome, OutcomeException, OutcomeRun, Outcomes, PageReference

_RUN, _EXCEPTION = b"\x00", b"\x02"  # the branches of the union
_SCHEMA: Final[list[Mapping[str, Any]]] = [
    {
        "type": "record",
        "name": "outcome_run",
        "fields": [
            {"name": "log", "type": "string"},
            {"name": "partition", "type": "long"},
            {"name": "first_offset", "type": "long"},
            {"name": "last_offset", "type": "long"},
            {"name": "version", "type": "long"},
            {"name": "first_sequence_number", "type": "long"},
        ],
    },
    {
        "type": "record",
        "name": "outcome_exception",
        "fields": [
            {"name": "log", "type": "string"},
            {"name": "partition", "type": "long"},
            {"name": "offset", "type": "long"},
            {"name": "decided_in", "type": "long"},
            {"name": "code", "type": ["null", "string"]},
            {"name": "message", "type": ["null", "string"]},
            {"name": "duplicate_of", "type": ["null", "long"]},
        ],
    },
]
OUTCOME_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()
_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OutcomePage:
    """Outcomes, the oldest first; found by log, partition and offset."""

    reference: PageReference
    outcomes: Outcomes
    _runs: dict[_Place, list[OutcomeRun]] = field(default_factory=dict, compare=False, repr=False)
    _exceptions: dict[tuple[str, int, int], OutcomeException] = field(default_factory=dict, compare=False, repr=False)

    def run_at(self, log: str, partition: int, offset: int) -> OutcomeRun | None:
        """The run of commits that covers an offset."""
        self._index()
        runs = self._runs.get((log, partition), [])
        at = bisect_right(runs, offset, key=_first_offset) - 1
        return runs[at] if at >= 0 and runs[at].last_offset >= offset else None

    def exception_at(self, log: str, partition: int, offset: int) -> OutcomeException | None:
        """The duplicate or rejection at an offset."""
        self._index()
        return self._exceptions.get((log, partition, offset))

    def _index(self) -> None:
        if self._runs or self._exceptions:
            return
        for run in sorted(self.outcomes.runs, key=_first_offset):
            self._runs.setdefault((run.log, run.partition), []).append(run)
        for item in self.outcomes.exceptions:
            self._exceptions[item.log, item.partition, item.offset] = item


def encode_outcome_page(table_uuid: uuid.UUID, outcomes: Outcomes) -> tuple[OutcomePage, bytes]:
    """(the page, its object's bytes) of at least one outcome."""
    reference, body = encode_page(
        PageKind.OUTCOMES, OUTCOME_SCHEMA_JSON, table_uuid, _rows(outcomes), covers_of(outcomes)
    )
    return OutcomePage(reference, outcomes), body


def decode_outcome_page(body: bytes, reference: PageReference, table_uuid: uuid.UUID, *, name: str) -> OutcomePage:
    """The page that `reference` names; arguments and `Raises` as `decode_page`."""
    runs: list[OutcomeRun] = []
    exceptions: list[OutcomeException] = []
    try:
        blocks = decode_page(body, reference, PageKind.OUTCOMES, OUTCOME_SCHEMA_JSON, table_uuid, name=name)
        for count, plain in blocks:
            position = 0
            for _ in range(count):
                branch = plain[position : position + 1]
                if branch == _RUN:
                    run, position = _read_run(plain, position + 1)
                    runs.append(run)
                elif branch == _EXCEPTION:
                    item, position = _read_exception(plain, position + 1)
                    exceptions.append(item)
                else:
                    raise Unreadable(f"branch {branch!r} of an outcome does not exist")
            if position != len(plain):
                raise Unreadable(f"a block has {len(plain) - position} bytes after its rows")
    except Unreadable as error:
        raise Corrupt("page-corrupt", f"{name}: {error}") from None
    return OutcomePage(reference, Outcomes(tuple(runs), tuple(exceptions)))


def encode_outcome(item: Outcome) -> bytes:
    """One row."""
    if isinstance(item, OutcomeRun):
        return _RUN + encode_string(item.log) + b"".join([encode_long(value) for value in item[1:]])
    log, partition, offset, decided_in, code, message, duplicate_of = item
    # a reason may quote what cannot be encoded; it is there to be read, and nothing compares it
    readable = None if message is None else message.encode(errors="backslashreplace").decode()
    return b"".join(
        (
            _EXCEPTION,
            encode_string(log),
            encode_long(partition),
            encode_long(offset),
            encode_long(decided_in),
            NULL if code is None else PRESENT + encode_string(code),
            NULL if readable is None else PRESENT + encode_string(readable),
            NULL if duplicate_of is None else PRESENT + encode_long(duplicate_of),
        )
    )


def covers_of(outcomes: Outcomes) -> tuple[CoveredOffset, ...]:
    """The last offset of each log and partition."""
    last: dict[tuple[LogId, int], int] = {}
    for run in outcomes.runs:
        last[run.log, run.partition] = max(run.last_offset, last.get((run.log, run.partition), 0))
    for item in outcomes.exceptions:
        last[item.log, item.partition] = max(item.offset, last.get((item.log, item.partition), 0))
    return tuple(CoveredOffset(log, partition, offset) for (log, partition), offset in sorted(last.items()))


def _rows(outcomes: Outcomes) -> Iterator[bytes]:
    for item in outcomes.items:
        yield encode_outcome(item)


def _read_run(plain: bytes, position: int) -> tuple[OutcomeRun, int]:
    log, position = read_string(plain, position)
    numbers: list[int] = []
    for _ in range(5):
        number, position = read_long(plain, position)
        numbers.append(number)
    partition, first, last, version, sequence_number = numbers
    return (
        OutcomeRun(LogId(log), partition, first, last, Version(version), SequenceNumber(sequence_number)),
        position,
    )


def _read_exception(plain: bytes, position: int) -> tuple[OutcomeException, int]:
    log, position = read_string(plain, position)
    partition, position = read_long(plain, position)
    offset, position = read_long(plain, position)
    decided_in, position = read_long(plain, position)
    code = message = duplicate_of = None
    is_there, position = read_present(plain, position), position + 1
    if is_there:
        code, position = read_string(plain, position)
    is_there, position = read_present(plain, position), position + 1
    if is_there:
        message, position = read_string(plain, position)
    is_there, position = read_present(plain, position), position + 1
    if is_there:
        duplicate_of, position = read_long(plain, position)
    duplicate = None if duplicate_of is None else Version(duplicate_of)
    return OutcomeException(LogId(log), partition, offset, Version(decided_in), code, message, duplicate), position


def _first_offset(run: OutcomeRun) -> int:
    return run.first_offset
