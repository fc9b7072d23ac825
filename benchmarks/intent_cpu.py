"""Goal 6: the CPU of one append intent, from the bytes of its log record to the bytes of its verdict.

Owns: the measurement of whole batches and of a lone intent, the stages, the yardsticks. Does not own: what is
measured: record decoding, the commit machine with the tree behind it, the verdict codec, as the coordinator runs them.
Invariants: every sample is made of intents that no sample before it had; each decides all its intents `committed`;
subject and yardsticks alternate sample by sample on one thread.

Theory. There are two honest yardsticks and one that flatters nobody. The same statistics can be sent as a generic
list, which is what a producer without code of ours does: fastavro alone takes long over it, and goal 6 is half of
that. Sent as one field of bytes, fastavro hands them on unread: that is the floor of any reader that uses it. And
fastavro can read those bytes with the table's own schema, which is what it costs to look at every value in the form
that is really sent.
"""

from __future__ import annotations

import io
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from benchmarks.measure import Result, Spread, load_average
from benchmarks.sample_table import TABLE, append_record, create_record, data_file, definition, statistics
from rootline.coordinator.protocol.commit_machine import step
from rootline.coordinator.protocol.effects import PublishVerdicts, PutRoot
from rootline.coordinator.protocol.events import Arrived, PutReplied, Tick
from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.coordinator.protocol.machine_state import Phase, Policy, TableMachine
from rootline.coordinator.protocol.retry_policy import RetryPolicy
from rootline.coordinator.runtime.record_decoding import decoded
from rootline.ports.object_store import PutAnswer, PutReply
from rootline.schemas.avro_framing import shipped_schema
from rootline.schemas.entry_schema import content_stats_schema
from rootline.schemas.generic_statistics import to_generic
from rootline.schemas.identifiers import CommitId
from rootline.schemas.intent import PROCESS_WRITER_PREFIX, Intent, IntentKind
from rootline.schemas.intent_codec import decode_intent, encode_intent
from rootline.schemas.intent_limits import IntentLimits
from rootline.schemas.log_position import LogId, LogPosition, LogRecord
from rootline.schemas.root_codec import encode_root
from rootline.schemas.statistics_codec import StatisticsCodec
from rootline.schemas.verdict import VerdictKind
from rootline.schemas.verdict_codec import encode_verdicts
from rootline.tree.apply import apply_batch
from rootline.tree.batch import Applied, Library, Record, Stamp
from rootline.tree.invariants import broken
from rootline.tree.table_state import TableState

BATCH: Final = 512
ENTRIES: Final = 2_000
SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_BATCHES", "40"))
_LONE_SAMPLES: Final = 400
_WARM_UP: Final = 3
_LOG: Final = LogId("cluster/topic")
_NOW_MS: Final = 1_700_000_000_000
_FRAME_BYTES: Final = 10
_WRITERS: Final = 32
_DEFINITION: Final = definition()
_STAGES: Final = ("decode", "settle, apply, build", "publish verdicts")
_LIMITS: Final = IntentLimits()
_POLICY: Final = Policy("bench", BatchLimits(BATCH, 1 << 26, 1.0), RetryPolicy(0.1, 1.0, 5), 4)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records with statistics as bytes, and the same intents with statistics as a list."""

    records: Sequence[LogRecord]
    generic: Sequence[bytes]


@dataclass(slots=True)
class Taken:
    """CPU seconds of each stage of one batch, its wall seconds, and the root that came of it."""

    stages: tuple[float, ...]
    wall: float
    before: TableMachine
    after: TableMachine
    applied: Applied


def measure() -> list[Result]:
    """Batches of 512, then batches of one, each beside the yardsticks."""
    codec = StatisticsCodec(_DEFINITION.tracked_fields)
    return [*_batches(codec, BATCH, SAMPLES), *_batches(codec, 1, _LONE_SAMPLES)]


def _batches(codec: StatisticsCodec, size: int, samples: int) -> list[Result]:
    machine = _filled(codec, size)
    yardsticks = _Yardsticks(codec)
    generic: list[float] = []
    opaque: list[float] = []
    opened: list[float] = []
    wholes: list[float] = []
    walls: list[float] = []
    stages: tuple[list[float], ...] = ([], [], [])
    encodings: list[float] = []
    checks: list[float] = []
    for number in range(-_WARM_UP, samples):
        batch = _batch(codec, (number + _WARM_UP) * size, size, with_generic=size > 1)
        one = _carried_out(machine, batch.records)
        times = (
            _timed(lambda values=batch.generic: yardsticks.intents(values)),
            _timed(lambda records=batch.records: yardsticks.intents([raw.value for raw in records])),
            _timed(lambda records=batch.records: yardsticks.opened([raw.value for raw in records])),
        )
        if number < 0:
            continue
        wholes.append(sum(one.stages) / size)
        walls.append(one.wall / size)
        for times_of, seconds in zip((*stages, generic, opaque, opened), (*one.stages, *times), strict=True):
            times_of.append(seconds / size)
        root, head = one.applied.state.root, one.before.head
        encodings.append(_timed(lambda root=root: encode_root(root.header, root.blocks, root.codec, root.sync)) / size)
        checks.append(_timed(lambda head=head, applied=one.applied: broken(head, applied.state)) / size)
        del one, root, head  # or every sample would take fresh memory from the system, which a coordinator does not
    whole = Spread.of(wholes)
    load = load_average()
    results: list[Result] = []
    if size > 1:
        what = f"intent of one file, 20 columns of statistics, in batches of {size}"
        notes = (
            f"CPU of one core: {1 / whole.median:,.0f} intents/s (goal 20,000); wall {_us(Spread.of(walls))}; "
            f"{ENTRIES:,} entries in the root before"
        )
        for name, times, target in (
            ("fastavro reads the same intents, statistics as a list", generic, "≤ 0.5"),
            ("fastavro reads the same bytes, statistics and all", opened, "–"),
            ("fastavro reads the same bytes, statistics unopened", opaque, "–"),
        ):
            spread = Spread.of(times)
            results.append(Result("6", what, whole, spread, name, whole.median / spread.median, target, load, notes))
            notes = ""
    parts = dict(zip(_STAGES, stages, strict=True))
    parts |= {"of which encode root": encodings, "of which invariant checks": checks}
    prefix = f"batch of {size}: " if size > 1 else "lone intent: "
    if size == 1:
        results.append(Result("6", f"{prefix}whole", whole, None, "–", 1.0, "–", load))
    for name, times in parts.items():
        spread = Spread.of(times)
        share = spread.median / whole.median
        results.append(Result("6", prefix + name, spread, whole, "the whole", share, "–", load))
    return results


def _carried_out(machine: TableMachine, raws: Sequence[LogRecord]) -> Taken:
    """Bytes in, bytes out, by the coordinator's own code; only the event loop and the network are left out."""
    tick = Tick(_NOW_MS, 0.0, uuid.uuid4().hex, 0.5)
    landed = PutReplied(PutReply(PutAnswer.CREATED, store_ms=_NOW_MS))
    wall = time.perf_counter()
    began = time.process_time()
    records = [decoded(raw, _LIMITS) for raw in raws]
    read = time.process_time()
    after, effects = step(machine, Arrived(tuple(records)), tick)  # type: ignore[arg-type]  # checked below
    built = time.process_time()
    done, more = step(after, landed, tick)
    published = [effect for effect in more if isinstance(effect, PublishVerdicts)]
    encoded = [encode_verdicts([item.verdict for item in effect.decided]) for effect in published]
    ended = time.process_time()
    wall = time.perf_counter() - wall
    attempt = after.attempt
    kinds = {item.verdict.kind for effect in published for item in effect.decided}
    if attempt is None or not isinstance(effects[-1], PutRoot) or kinds != {VerdictKind.COMMITTED} or not encoded:
        raise RuntimeError(f"the benchmark's own intents came to {kinds}, phase {done.phase}")
    return Taken(
        (read - began, built - read, ended - built), wall, machine, done._replace(publishing=0), attempt.applied
    )


class _Yardsticks:
    """fastavro alone, with schemas that it has parsed before."""

    def __init__(self, codec: StatisticsCodec) -> None:
        self._intent = fastavro.parse_schema(dict(shipped_schema("intent")))
        self._statistics = fastavro.parse_schema(_without_logical_types(content_stats_schema(codec.tracked)))

    def intents(self, values: Sequence[bytes]) -> None:
        for value in values:
            fastavro.schemaless_reader(_after_frame(value), self._intent, None)

    def opened(self, values: Sequence[bytes]) -> None:
        for value in values:
            record: Any = fastavro.schemaless_reader(_after_frame(value), self._intent, None)
            for file in record["add_data_files"]:
                fastavro.schemaless_reader(io.BytesIO(file["content_stats"]), self._statistics, None)


def _after_frame(value: bytes) -> io.BytesIO:
    source = io.BytesIO(value)
    source.seek(_FRAME_BYTES)
    return source


def _without_logical_types(schema: Any) -> Any:
    """Numbers stay numbers: dates and timestamps are not made, which would be unfair to fastavro."""
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(item) for item in schema] if isinstance(schema, list) else schema


def _batch(codec: StatisticsCodec, first: int, size: int, *, with_generic: bool) -> Batch:
    tracked = {field.tracked_id: field for field in codec.tracked}
    numbers = range(ENTRIES + first, ENTRIES + first + size)
    values = [_append_one(number, codec) for number in numbers]
    generic: list[bytes] = []
    for number, value in zip(numbers, values, strict=True):
        if with_generic:
            intent = decode_intent(value)
            listed = to_generic(statistics(number), tracked)
            update: Mapping[str, Any] = {"content_stats": None, "stats_schema": None, "statistics": listed}
            files = (intent.add_data_files[0].model_copy(update=update),)
            generic.append(encode_intent(intent.model_copy(update={"add_data_files": files})))
    return Batch([_raw(value, number) for number, value in zip(numbers, values, strict=True)], generic)


def _append_one(number: int, codec: StatisticsCodec) -> bytes:
    """An intent as the client's producers make it: one file of one row group, by one of a few dozen processes."""
    table = _DEFINITION
    intent = Intent(
        intent_id=uuid.UUID(int=number << 64).hex,
        table=TABLE,
        table_uuid=table.table_uuid,
        kind=IntentKind.APPEND,
        writer_id=f"{PROCESS_WRITER_PREFIX}{uuid.UUID(int=number % _WRITERS << 64)}",
        writer_sequence=number // _WRITERS,
        schema_id=table.current_schema_id,
        add_data_files=(data_file(number, codec).model_copy(update={"split_offsets": (4,)}),),
    )
    return encode_intent(intent)


def _raw(value: bytes, number: int) -> LogRecord:
    return LogRecord(LogPosition(_LOG, 0, number), TABLE.encode(), value, _NOW_MS)


def _filled(codec: StatisticsCodec, size: int) -> TableMachine:
    """A machine at rest whose table has `ENTRIES` files in its root, the newest from a few batches of `size`.

    So what the next batch does to the rows of the one before it is in the measurement, as it is in a long run.
    """
    newest = size * max(1, 32 // size)
    state = _applied(None, create_record(_DEFINITION), 0)
    older = ENTRIES - newest
    for offset, first in enumerate(range(0, older, 400), start=1):
        state = _applied(state, append_record(range(first, min(first + 400, older)), codec), offset)
    machine = TableMachine(TABLE, _POLICY, phase=Phase.IDLE, head=state, base_ms=_NOW_MS)
    for first in range(older, ENTRIES, size):
        raws = [_raw(_append_one(number, codec), number) for number in range(first, first + size)]
        machine = _carried_out(machine, raws).after
    return machine


def _applied(state: TableState | None, value: bytes, offset: int) -> TableState:
    record = Record(LogPosition(_LOG, 0, offset), decode_intent(value), len(value))
    stamp = Stamp(CommitId(f"{offset:032x}"), "bench", _NOW_MS)
    applied = apply_batch(state, TABLE, [record], Library(), stamp, acknowledged={(_LOG, 0): offset + 1})
    if not isinstance(applied, Applied):
        raise TypeError(f"the benchmark's own intent came to {applied}")
    return applied.state


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _us(spread: Spread) -> str:
    return " / ".join(f"{1e6 * value:.1f}" for value in (spread.minimum, spread.median, spread.p99)) + " µs"
