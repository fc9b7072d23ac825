"""Goal 9: the CPU of the next root, spliced, against encoding all of it with fastavro.

Owns: both ways over the same 2,000 entries with 20 columns of statistics. Does not own: the splicing.
Invariants: both produce a root with the same entries.
"""

from __future__ import annotations

import io
import time
from dataclasses import replace
from typing import Any

import fastavro

from benchmarks.measure import Result, Spread, load_average
from benchmarks.sample_table import TABLE, append_record, create_record, definition
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.bytes.root.root_codec import encode_root
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.identifiers import CommitId, LogId, LogPosition
from rootline.schemas.intent_rules import IntentLimits
from rootline.tree.check.invariants import violations
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Record, Stamp
from rootline.tree.state.table_state import TableState

_ENTRIES = 2_000
_SAMPLES = 200
_REENCODED = 7
_WRITERS = 200


def measure() -> list[Result]:
    """Join, whole step from intent to root, the checks before the PUT, and the re-encoding."""
    codec = StatisticsCodec(definition().tracked_fields)
    state, body = _filled(codec)
    header, records = _as_fastavro(body)
    joins: list[float] = []
    steps: list[float] = []
    checks: list[float] = []
    encodings: list[float] = []
    crowded: list[float] = []
    pages = 0
    many = _with_writers(state, codec)
    for number in range(_SAMPLES):
        root = state.root
        joins.append(_timed(lambda root=root: encode_root(root.header, root.blocks, root.codec, root.sync)))
        record = _record(append_record(range(_ENTRIES + number, _ENTRIES + number + 1), codec), number + 10)
        began = time.process_time()
        applied = _applied(state, record)
        steps.append(time.process_time() - began)
        before, passed = state, {(record.position.log, 0): record.position.offset}
        checks.append(
            _timed(
                lambda before=before, applied=applied, passed=passed: violations(
                    before, applied.state, acknowledged=passed
                )
            )
        )
        state = applied.state
        again = record.position._replace(offset=record.position.offset + _WRITERS)
        record = replace(_of_writer(record, number % _WRITERS, 1 + number // _WRITERS), position=again)
        began = time.process_time()
        applied = _applied(many, record)
        crowded.append(time.process_time() - began)
        many, pages = applied.state, pages + len(applied.objects)
        if number % (_SAMPLES // _REENCODED) == 0:
            encodings.append(_timed(lambda: _encode_anew(header, records)))
    anew = Spread.of(encodings)
    joined, whole, checked = Spread.of(joins), Spread.of(steps), Spread.of(checks)
    with_many = Spread.of(crowded)
    notes = f"{_ENTRIES} entries, CPU seconds; the step starts at a decoded intent"
    load = load_average()
    name = "re-encoding with fastavro"
    return [
        Result(
            "9",
            "next root joined from cached blocks",
            joined,
            anew,
            name,
            joined.median / anew.median,
            "≤ 1/1,000",
            load,
        ),
        Result(
            "9",
            "whole step: validate, build, join",
            whole,
            anew,
            name,
            whole.median / anew.median,
            "≤ 1/1,000",
            load,
            notes,
        ),
        Result(
            "15",
            "invariant checks before a PUT",
            checked,
            whole,
            "the step they guard (CPU, without the PUT)",
            checked.median / whole.median,
            "≤ 1 % of a commit",
            load,
        ),
        Result(
            "9",
            f"whole step with {_WRITERS} writers in the ledger",
            with_many,
            whole,
            "the same with one writer",
            with_many.median / whole.median,
            "≤ 1.3",
            load,
            f"{pages} of {_SAMPLES} commits made a page",
        ),
    ]


def _timed(work: object) -> float:
    began = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - began


def _record(value: bytes, offset: int) -> Record:
    intent = decode_intent(value, {}, IntentLimits())
    return Record(LogPosition(LogId("embedded/bench"), 0, offset), intent, len(value))


def _applied(state: TableState | None, record: Record) -> Applied:
    stamp = Stamp(CommitId(f"{record.position.offset:032x}"), "bench", 1_700_000_000_000)
    applied = apply_batch(
        state, TABLE, [record], FetchedObjects(), stamp, acknowledged={(record.position.log, 0): record.position.offset}
    )
    if not isinstance(applied, Applied):
        raise TypeError(f"the benchmark's own intent came to {applied}")
    return applied


def _filled(codec: StatisticsCodec) -> tuple[TableState, bytes]:
    applied = _applied(None, _record(create_record(definition()), 0))
    for offset, first in enumerate(range(0, _ENTRIES, 400), start=1):
        applied = _applied(applied.state, _record(append_record(range(first, first + 400), codec), offset))
    return applied.state, applied.body


def _with_writers(state: TableState, codec: StatisticsCodec) -> TableState:
    """The same table after one more commit of each of many writers, whose sequences have a gap before them."""
    first = state.header.log.offsets[0].next_offset
    for writer in range(_WRITERS):
        value = append_record(range(100_000 + writer, 100_001 + writer), codec)
        state = _applied(state, _of_writer(_record(value, first + writer), writer, 0)).state
    return state


def _of_writer(record: Record, writer: int, sequence: int) -> Record:
    stamp = {"writer_id": f"spark/query-{writer:04d}", "writer_sequence": 10 * sequence}
    return replace(record, intent=record.intent.model_copy(update=stamp))


def _as_fastavro(body: bytes) -> tuple[Any, list[Any]]:
    reader = fastavro.reader(io.BytesIO(body))
    records = list(reader)
    return reader.writer_schema, records


def _encode_anew(schema: dict[str, object], records: list[dict[str, object]]) -> None:
    fastavro.writer(io.BytesIO(), schema, records, codec="zstandard")
