"""Goal 6: the CPU of one append intent, from the bytes of its log record to the bytes of its verdict.

Owns: the measurement of whole batches and of a lone intent, the stages, the yardsticks. Does not own: what is
measured: record decoding, the commit machine with the tree behind it, the verdict codec, as the coordinator runs them.
Invariants: every sample has intents that no sample before it had; each decides all its intents `committed`; subject
and yardsticks alternate sample by sample on one thread.

Theory. There are three yardsticks. The same statistics can be sent as a generic list, as a producer without our code
does: fastavro alone takes long to read it, and goal 6 is half of that time. Sent as one field of bytes, fastavro does
not open them: that is the floor for any reader that uses it. And fastavro can read those bytes with the table's own
schema: that is the cost of looking at every value in the form that is really sent.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from benchmarks.measure import Result, Spread, load_average
from benchmarks.sample_table import TABLE, append_record, create_record, data_file, definition, statistics
from rootline.coordinator.app import settle_memory
from rootline.coordinator.protocol.commit_machine import step
from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.coordinator.protocol.machine_state import Phase, Policy, TableMachine
from rootline.coordinator.protocol.messages import (
    Arrived,
    PublishVerdicts,
    PutReplied,
    PutRoot,
    Tick,
    VerdictsPublished,
)
from rootline.coordinator.runtime.records import decoded
from rootline.ports.object_store import PutReply, PutStatus
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.bytes.entry_schema import content_stats_schema
from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent, shipped_schema
from rootline.schemas.bytes.root.root_codec import encode_root
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.bytes.single_values import to_generic
from rootline.schemas.bytes.verdict_codec import encode_verdicts
from rootline.schemas.identifiers import PROCESS_WRITER_PREFIX, CommitId, LogId, LogPosition, LogRecord
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import VerdictKind
from rootline.tree.check.invariants import violations
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Record, Stamp
from rootline.tree.state.table_state import TableState

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
_WHOLE, _WALL = "whole", "wall"
_STAGES: Final = ("decode", "settle, apply, build, check", "confirm, encode verdicts")
_ENCODE, _CHECK = "of which joining and hashing the root", "of which the checks before the PUT"
_AS_LIST: Final = "fastavro reads the same intents, statistics as a list"
_OPENED: Final = "fastavro reads the same bytes, statistics and all"
_UNOPENED: Final = "fastavro reads the same bytes, statistics unopened"
_YARDSTICKS: Final = {_AS_LIST: "≤ 0.5", _OPENED: "–", _UNOPENED: "–"}
_LIMITS: Final = IntentLimits()
_POLICY: Final = Policy("bench", BatchLimits(BATCH, 1 << 26, 1.0), RetryPolicy(0.1, 1.0, 5), 4)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records with statistics as bytes, and the same intents with statistics as a list."""

    records: Sequence[LogRecord]
    generic: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Taken:
    """CPU seconds of each stage of one batch, its wall seconds, and the machine before and after it."""

    stages: dict[str, float]
    wall: float
    before: TableMachine
    after: TableMachine


class Samples(defaultdict[str, list[float]]):
    """Seconds per intent, by stage."""

    def __init__(self, size: int) -> None:
        super().__init__(list)
        self._size = size

    def add(self, name: str, seconds: float) -> None:
        self[name].append(seconds / self._size)

    def time(self, name: str, work: Callable[[], object]) -> None:
        began = time.process_time()
        work()
        self.add(name, time.process_time() - began)

    def spread(self, name: str) -> Spread:
        return Spread.of(self[name])


def measure() -> list[Result]:
    """Batches of 512 beside the yardsticks, then batches of one."""
    codec = StatisticsCodec(_DEFINITION.tracked_fields)
    with _collector_of_a_service():
        batches, lone = _sampled(codec, BATCH, SAMPLES), _sampled(codec, 1, _LONE_SAMPLES)
    whole = batches.spread(_WHOLE)
    notes = (
        f"CPU of one core: {1 / whole.median:,.0f} intents/s (goal 20,000); wall {_us(batches.spread(_WALL))}; "
        f"{ENTRIES:,} entries in the root before"
    )
    what = f"intent of one file, 20 columns of statistics, in batches of {BATCH}"
    load = load_average()
    results: list[Result] = []
    for name, target in _YARDSTICKS.items():
        spread = batches.spread(name)
        results.append(Result("6", what, whole, spread, name, whole.median / spread.median, target, load, notes))
        notes = ""
    return [*results, *_parts(batches, f"batch of {BATCH}", load), *_parts(lone, "lone intent", load)]


@contextlib.contextmanager
def _collector_of_a_service() -> Iterator[None]:
    thresholds = gc.get_threshold()
    settle_memory()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _parts(samples: Samples, of: str, load: float) -> list[Result]:
    """Each stage's share of the whole."""
    whole = samples.spread(_WHOLE)
    results: list[Result] = []
    for name in (_WHOLE, *_STAGES, _ENCODE, _CHECK):
        spread = samples.spread(name)
        share = spread.median / whole.median
        results.append(Result("6", f"{of}: {name}", spread, whole, "the whole", share, "–", load))
    return results


def _sampled(codec: StatisticsCodec, size: int, samples: int) -> Samples:
    machine = _filled(codec, size)
    yardsticks = Yardsticks(codec)
    taken = Samples(size)
    for number in range(-_WARM_UP, samples):
        batch = _batch(codec, (number + _WARM_UP) * size, size)
        into = taken if number >= 0 else Samples(size)
        _sample(machine, batch, yardsticks, into)
    return taken


def _sample(machine: TableMachine, batch: Batch, yardsticks: Yardsticks, into: Samples) -> None:
    """One batch and its yardsticks. Its results are dropped, as in a coordinator, so that memory is used again."""
    one = _carried_out(machine, batch.records)
    for name, seconds in one.stages.items():
        into.add(name, seconds)
    into.add(_WHOLE, sum(one.stages.values()))
    into.add(_WALL, one.wall)
    values = [raw.value for raw in batch.records]
    into.time(_AS_LIST, lambda: yardsticks.intents(batch.generic))
    into.time(_OPENED, lambda: yardsticks.opened(values))
    into.time(_UNOPENED, lambda: yardsticks.intents(values))
    head, after = one.before.head, one.after.head
    if after is not None:
        root = after.root
        into.time(_ENCODE, lambda: encode_root(root.header, root.blocks, root.codec, root.sync))
        into.time(_CHECK, lambda: violations(head, after, acknowledged=one.before.acknowledged))


def _carried_out(machine: TableMachine, raws: Sequence[LogRecord]) -> Taken:
    """From bytes to bytes through the coordinator's own code; only the event loop and the network are missing."""
    tick = Tick(_NOW_MS, 0.0, uuid.uuid4().hex, 0.5)
    landed = PutReplied(PutReply(PutStatus.CREATED, store_ms=_NOW_MS))
    wall = time.perf_counter()
    began = time.process_time()
    records = tuple([record for raw in raws if isinstance(record := decoded(raw, _LIMITS), Record)])
    read = time.process_time()
    after, effects = step(machine, Arrived(records), tick)
    built = time.process_time()
    done, more = step(after, landed, tick)
    published = [effect for effect in more if isinstance(effect, PublishVerdicts)]
    encoded = [encode_verdicts([item.verdict for item in effect.decided]) for effect in published]
    for effect in published:
        done, _ = step(done, VerdictsPublished(effect.up_to), tick)
    ended = time.process_time()
    wall = time.perf_counter() - wall
    kinds = {item.verdict.kind for effect in published for item in effect.decided}
    if not isinstance(effects[-1], PutRoot) or kinds != {VerdictKind.COMMITTED} or not all(encoded):
        raise RuntimeError(f"the benchmark's own intents came to {kinds}, phase {done.kind}")
    stages = dict(zip(_STAGES, (read - began, built - read, ended - built), strict=True))
    return Taken(stages, wall, machine, done)


class Yardsticks:
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
    """Numbers stay numbers: making dates and timestamps would be unfair to fastavro."""
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(item) for item in schema] if isinstance(schema, list) else schema


def _batch(codec: StatisticsCodec, first: int, size: int) -> Batch:
    tracked = {field.tracked_id: field for field in codec.tracked}
    numbers = range(ENTRIES + first, ENTRIES + first + size)
    values = [_append_one(number, codec) for number in numbers]
    generic: list[bytes] = []
    for number, value in zip(numbers, values, strict=True):
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

    So the effect of a batch on the rows of the one before it is measured too, as in a long run.
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
    applied = apply_batch(state, TABLE, [record], FetchedObjects(), stamp, acknowledged={(_LOG, 0): offset + 1})
    if not isinstance(applied, Applied):
        raise TypeError(f"the benchmark's own intent came to {applied}")
    return applied.state


def _us(spread: Spread) -> str:
    return " / ".join(f"{1e6 * value:.1f}" for value in (spread.minimum, spread.median, spread.p99)) + " µs"
