"""One commit: load the head, build a root, store its objects, put it, read it back, confirm it, publish its verdicts.

Owns: each request of a commit, the move for its answer, and decisions `build`, `landed`, `confirmed` and `retry`.
Does not own: the rules by which the tree applies a batch (`rootline.tree.commit.apply`), the interpretation of replies
(`put_rules`), the moves after a failure or a lost race (`trouble`) and after a commit (`gather`).
Words: the *head* is the newest root that the machine knows. A root has *decided* a record if it contains a log offset
behind the record. An *attempt* is a root that was built and is not yet confirmed.
Invariants: Each request has one function, which a retry calls too. A record below the head's offset gets its verdict
and is never applied a second time. A root that fails the tree's own checks is never written. Between the PUT of an
attempt and the proof of its outcome, only its identical bytes are put. Its verdicts are published only from decision
`confirmed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.coordinator.protocol.group_window import awaited, moving_average, take, writers_of
from rootline.coordinator.protocol.held_rules import after_root, ask_for_leaves, is_held
from rootline.coordinator.protocol.machine_state import (
    Attempt,
    Build,
    Confirmed,
    Confirming,
    Failed,
    Landed,
    Lost,
    Move,
    Next,
    Phase,
    Putting,
    ReadingBack,
    Request,
    Retry,
    Staging,
    TableMachine,
)
from rootline.coordinator.protocol.messages import (
    Decided,
    Effect,
    Fetch,
    Fetched,
    HeadListed,
    HeadLoaded,
    ListHead,
    LoadHead,
    Noted,
    ObjectsStored,
    PublishVerdicts,
    PutReplied,
    PutRoot,
    ReadBack,
    Report,
    RootReadBack,
    StoreObjects,
    Tick,
)
from rootline.coordinator.protocol.put_rules import Outcome, is_confirmed, outcome_of_put, outcome_of_read_back
from rootline.coordinator.protocol.trouble import quarantine
from rootline.ports.object_store import Predecessor
from rootline.schemas.bytes.record_headers import distinct_traces, trace_of
from rootline.schemas.identifiers import CommitId, LogId, Version
from rootline.schemas.intent_rules import BEGINNING_KINDS
from rootline.schemas.object_keys import root_key
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.root_header import RootHeader
from rootline.tree.check.invariants import violations
from rootline.tree.check.read_back import read_back_faults
from rootline.tree.commit.apply import apply_batch
from rootline.tree.commit.verdicts import answer, is_last_decided, log_went_back, next_offset
from rootline.tree.draft.batch import NOTHING_FETCHED, Applied, Needs, NoTable, Record, Stamp
from rootline.tree.parts.log import clocks_apart

_TRACES_MAX: Final = 8
_JOB_CHARS_MAX: Final = 1_000
"""The characters of a job in a report."""

# Load the head


def load(machine: TableMachine) -> Move:
    """Load the head. If it has decided records that wait here, it is first compared with the log."""
    lowest = lowest_of((*machine.batch, *machine.queue))
    compared = machine.compared.union([(log, partition) for log, partition, _ in lowest])
    return Move(Phase.LOADING, machine._replace(compared=compared), [LoadHead(machine.head, lowest)])


def head_loaded(machine: TableMachine, phase: Request, event: HeadLoaded, tick: Tick) -> Move:
    """Build on the loaded head. If it is older than the known head, the store has lost roots: quarantine the table."""
    known, found = machine.head, event.state
    if known is not None and (found is None or found.root.header.version < known.root.header.version):
        shown = "no root" if found is None else f"version {found.root.header.version}"
        return quarantine(
            machine,
            f"{machine.table}: the store shows {shown}, but version {known.root.header.version} was confirmed; "
            "find the cause that removed the newer roots, restore them and lift the quarantine "
            "(`rootline quarantine lift`)",
        )
    loaded = machine._replace(head=found, base_ms=event.store_ms, failures=0)
    note = Report(Noted.HEAD_LOADED, version=None if found is None else found.root.header.version)
    loaded, more = ask_for_leaves(loaded, tick)
    return Move(Build(), loaded, [note, *more])


# Settle what the head has decided


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch split in two: records that the head has decided, and records that still need a root.

    * `decided`: decided records with the verdicts to publish again. A verdict that the log has acknowledged is omitted.
    * `up_to`: the offset after the last decided record of each partition.
    """

    decided: tuple[Decided, ...]
    undecided: tuple[Record, ...]
    up_to: tuple[PartitionOffset, ...] = ()


def settle(machine: TableMachine) -> Settled | str:
    """Split the batch by the head's log offsets.

    Returns a reason for quarantine if the record at the last decided offset is not the record that the head decided.
    """
    if machine.head is None:
        return Settled((), machine.batch)
    header = machine.head.header
    below: list[Record] = []
    undecided: list[Record] = []
    for record in machine.batch:
        position = record.position
        end = next_offset(header, position.log, position.partition)
        if position.offset == end - 1 and not is_last_decided(header, position, record.value, record.appended_ms):
            return f"log-behind-root: {log_went_back(header, position)}"
        (below if position.offset < end else undecided).append(record)
    answers = [(record, answer(machine.head, record)) for record in below]
    decided = tuple(Decided(record, verdict) for record, verdict in answers if verdict is not None)
    return Settled(decided, tuple(undecided), up_to=offsets_after(below))


def _with_settled(machine: TableMachine, settled: Settled) -> tuple[TableMachine, list[Effect]]:
    """Remove from the batch the records that the head has decided, and publish their verdicts again."""
    if not settled.up_to:
        return machine, []
    machine = machine._replace(batch=settled.undecided)
    if settled.decided or machine.publishing:
        # also without verdicts, so that these offsets are not acknowledged before earlier ones that are being published
        publish = PublishVerdicts(settled.decided, settled.up_to, None)
        return machine._replace(publishing=machine.publishing + 1), [publish]
    return machine.with_acknowledged(settled.up_to), []


# Build a root


def build_next(machine: TableMachine, decision: Build, tick: Tick) -> Move:
    """Build the next root from the present batch or from a new one.

    Records that the head has decided are removed from the batch, and their verdicts are published.
    """
    if not machine.batch:
        if not machine.queue or machine.stopping or is_held(machine):
            return Move(Next(), machine)
        machine = _with_a_batch(machine)
    settled = settle(machine)
    if isinstance(settled, str):
        return quarantine(machine, settled)
    if not machine.compared.issuperset([(log, partition) for log, partition, _ in settled.up_to]):
        return load(machine)
    machine, published = _with_settled(machine, settled)
    if not machine.batch or machine.stopping:
        return Move(Next(), machine, published)
    move = _built(machine, tick)
    return move._replace(effects=[*published, *move.effects])


def _with_a_batch(machine: TableMachine) -> TableMachine:
    """Take the next batch from the front of the queue."""
    count = take(machine.queue, machine.policy.limits)
    if machine.head is None:
        count = first_root_count(machine.queue[:count])
    return machine._replace(batch=machine.queue[:count], queue=machine.queue[count:], fetched=NOTHING_FETCHED)


def _built(machine: TableMachine, tick: Tick) -> Move:
    """Build a root from the batch, and choose the move for the result."""
    match build(machine, tick):
        case Applied() as applied:
            return _started(machine, applied, tick)
        case Needs() as needs:
            return Move(Phase.FETCHING, machine, [Fetch(needs)])
        case NoTable() as rejected:
            decided = tuple(map(Decided, machine.batch, rejected.verdicts))
            publish = PublishVerdicts(decided, offsets_after(machine.batch), None, is_unrecorded=True)
            return Move(Next(), machine._replace(batch=(), publishing=machine.publishing + 1), [publish])
        case str() as why:
            return quarantine(machine, why)


def build(machine: TableMachine, tick: Tick) -> Applied | Needs | NoTable | str:
    """Build the next root from the batch.

    Returns the root, the objects that must be fetched first, the rejections if there is no table, or the reason why
    the root must not be written.
    """
    stamp = Stamp(CommitId(tick.fresh_id), machine.policy.coordinator_id, tick.now_ms)
    limits = machine.policy.header_limits
    result = apply_batch(
        machine.head,
        machine.table,
        machine.batch,
        machine.fetched,
        stamp,
        acknowledged=machine.acknowledged,
        file_prefixes=machine.policy.file_prefixes,
        limits=limits,
        relief=machine.flush.ready,
    )
    if isinstance(result, Applied):
        rules = violations(machine.head, result.state, acknowledged=machine.acknowledged, limits=limits)
        if rules:
            return f"the next root would break an invariant: {'; '.join(rules)}"
        faults = read_back_faults(machine.head, result)
        if faults:
            return f"the next root is refused: {'; '.join(faults)}"
    return result


def fetched(machine: TableMachine, phase: Request, event: Fetched, tick: Tick) -> Move:
    """Rebuild the root with the fetched objects."""
    return Move(Build(), machine._replace(fetched=machine.fetched.with_more(event.fetched), failures=0))


# Store its objects


def _started(machine: TableMachine, applied: Applied, tick: Tick) -> Move:
    """Start committing a root: store the objects that it references, then put it."""
    header = applied.state.root.header
    attempt = Attempt(
        applied,
        header.version,
        root_key(machine.table, header.version),
        header.commit_id,
        takes_leaves=machine.flush.ready is not None,
    )
    count = len(applied.verdicts)
    if count < len(machine.batch):  # the other records wait for the next root
        machine = machine._replace(batch=machine.batch[:count], queue=(*machine.batch[count:], *machine.queue))
    return store_objects(machine, attempt) if applied.objects else put(machine, attempt, tick)


def store_objects(machine: TableMachine, attempt: Attempt) -> Move:
    """Store the objects that the root will reference."""
    return Move(Staging(attempt), machine, [StoreObjects(attempt.applied.objects)])


def objects_stored(machine: TableMachine, phase: Staging, event: ObjectsStored, tick: Tick) -> Move:
    """Put the root, now that its objects are stored."""
    return put(machine._replace(failures=0), phase.attempt, tick)


# Put it


def put(machine: TableMachine, attempt: Attempt, tick: Tick) -> Move:
    """Send the conditional PUT of the attempt."""
    before = None if attempt.version == 0 else root_key(machine.table, Version(attempt.version - 1))
    request = PutRoot(attempt.version, attempt.key, attempt.applied.body, Predecessor(before))
    return Move(Putting(attempt, tick.monotonic_s), machine, [request])


def put_replied(machine: TableMachine, phase: Putting, event: PutReplied, tick: Tick) -> Move:
    """Interpret the reply to the PUT: the root landed, the race is lost, or the root must be read back."""
    reply = event.reply
    match outcome_of_put(reply.answer):
        case Outcome.LANDED:
            return _landed(machine, phase, tick, reply.store_ms, reply.store_ms)
        case Outcome.LOST:
            return Move(Lost(phase.attempt), machine)
        case _:
            note = Report(Noted.PUT_ASKED, f"{reply.answer.value}: {reply.detail}", phase.attempt.version)
            reading = read_root_back(machine, ReadingBack(phase.attempt, phase.put_at_s))
            return reading._replace(effects=[note, *reading.effects])


# Read it back


def read_root_back(machine: TableMachine, phase: ReadingBack) -> Move:
    """Read the root of the attempt, since the outcome of its PUT is unknown."""
    attempt = phase.attempt
    return Move(phase, machine, [ReadBack(attempt.version, attempt.key, attempt.commit_id)])


def read_back(machine: TableMachine, phase: ReadingBack, event: RootReadBack, tick: Tick) -> Move:
    """Interpret the root that was read back: it landed, the race is lost, or the PUT must be repeated."""
    match outcome_of_read_back(event.commit_id, phase.attempt.commit_id):
        case Outcome.LANDED:
            return _landed(machine, phase, tick, event.store_ms, event.last_modified_ms)
        case Outcome.LOST:
            return Move(Lost(phase.attempt), machine)
        case _:
            # the first PUT may still land, so only the identical bytes may be put at this version
            again = Putting(phase.attempt, phase.put_at_s)
            return Move(Failed(again, "the store has no such root yet"), machine)


# Confirm it


def _landed(
    machine: TableMachine, phase: Putting | ReadingBack, tick: Tick, answered_ms: int | None, dated_ms: int | None
) -> Move:
    put_s = moving_average(machine.put_s, tick.monotonic_s - phase.put_at_s)
    return Move(Landed(phase.attempt, phase.put_at_s, answered_ms, dated_ms), machine._replace(put_s=put_s))


def landed(machine: TableMachine, decision: Landed, tick: Tick) -> Move:
    """Confirm the own root, or list the newest version first, if the store's answer was too late (`is_confirmed`)."""
    if is_confirmed(machine.base_ms, decision.answered_ms):
        return Move(Confirmed(decision.attempt, decision.put_at_s, decision.dated_ms), machine)
    return list_head(machine, Confirming(decision.attempt, decision.put_at_s))


def list_head(machine: TableMachine, phase: Confirming) -> Move:
    """List the newest version, to learn whether it is the root of the attempt."""
    return Move(phase, machine, [ListHead()])


def head_listed(machine: TableMachine, phase: Confirming, event: HeadListed, tick: Tick) -> Move:
    """Confirm the root of the attempt if the LIST shows it as the newest. Otherwise load the head."""
    if event.version == phase.attempt.version:
        return Move(Confirmed(phase.attempt, phase.put_at_s, event.store_ms), machine)
    return load(machine)  # the head has the outcomes of the records that it decided


# Publish its verdicts


def confirmed(machine: TableMachine, decision: Confirmed, tick: Tick) -> Move:
    """Make the root of the attempt the head, and publish its verdicts."""
    attempt = decision.attempt
    decided = tuple(map(Decided, machine.batch, attempt.applied.verdicts))
    # the header's offsets would include partitions for which this coordinator has published nothing
    publish = PublishVerdicts(decided, offsets_after(machine.batch), attempt.version)
    traces = distinct_traces((trace_of(record.headers) for record in machine.batch if record.headers), _TRACES_MAX)
    elapsed_s = tick.monotonic_s - decision.put_at_s
    notes = [Report(Noted.ROOT_LANDED, str(len(machine.batch)), attempt.version, elapsed_s, traces)]
    if machine.head is not None:
        apart = clocks_apart(machine.head.header, attempt.applied.state.header)
        if apart is not None:
            notes.append(Report(Noted.CLOCKS_APART, apart, attempt.version))
    for job in attempt.applied.dropped_jobs:
        notes.append(Report(Noted.PROGRESS_DROPPED, job[:_JOB_CHARS_MAX], attempt.version))
    after = machine._replace(
        head=attempt.applied.state,
        base_ms=decision.dated_ms,
        batch=(),
        fetched=NOTHING_FETCHED,
        losses=0,
        failures=0,
        publishing=machine.publishing + 1,
        flush=after_root(machine.flush, attempt),
        earlier=(*machine.earlier[-1:], writers_of(machine.batch)),
    )
    after, more = ask_for_leaves(after, tick)
    return Move(Next(awaited(machine.batch, after.queue, machine.earlier)), after, [publish, *notes, *more])


# Retry a request


def resend(machine: TableMachine, decision: Retry, tick: Tick) -> Move:
    """Repeat the request that failed."""
    match decision.resume:
        case Phase.LOADING:
            return load(machine)
        case Phase.FETCHING:
            return Move(Build(), machine)
        case Staging(attempt):
            return store_objects(machine, attempt)
        case Putting(attempt):
            return put(machine, attempt, tick)
        case ReadingBack() as phase:
            return read_root_back(machine, phase)
        case Confirming() as phase:
            return list_head(machine, phase)


# Places on the log


def lowest_of(records: Iterable[Record]) -> tuple[PartitionOffset, ...]:
    """The offset of the first record of each partition."""
    first: dict[tuple[LogId, int], int] = {}
    for record in records:
        log, partition, offset = record.position
        if offset < first.get((log, partition), offset + 1):
            first[log, partition] = offset
    return tuple(PartitionOffset(log, partition, offset) for (log, partition), offset in sorted(first.items()))


def decided_of(header: RootHeader, lowest: Iterable[PartitionOffset]) -> frozenset[tuple[LogId, int]]:
    """The partitions in which the root has decided the record at the given offset."""
    return frozenset(
        [(log, partition) for log, partition, offset in lowest if offset < next_offset(header, log, partition)]
    )


def first_root_count(records: Sequence[Record]) -> int:
    """The number of records, from the front, that may share the first root of a table or view.

    After a `create`, only records of its partition may follow. The coordinator of another partition may already have
    rejected the records there, since it found neither a table nor a view.
    """
    create: Record | None = None
    for count, record in enumerate(records):
        if create is not None and record.position[:2] != create.position[:2]:
            return count
        if create is None and record.intent.kind in BEGINNING_KINDS:
            create = record
    return len(records)


def offsets_after(records: Iterable[Record]) -> tuple[PartitionOffset, ...]:
    """The offset after the last record of each partition."""
    last: dict[tuple[LogId, int], int] = {}
    for record in records:
        log, partition, offset = record.position
        place = (log, partition)
        if offset > last.get(place, -1):
            last[place] = offset
    return tuple(PartitionOffset(log, partition, offset + 1) for (log, partition), offset in sorted(last.items()))
