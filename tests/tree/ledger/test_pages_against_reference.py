"""Ledger and outcomes with tiny limits, so that nearly every batch moves something to pages, against sets."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from rootline.schemas.bytes.root.header_codec import encode_header
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.client_commits import CLIENT_WRITER_PREFIX
from rootline.schemas.identifiers import PROCESS_WRITER_PREFIX
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.commit.apply import WRITER_RETENTION_S
from rootline.tree.commit.verdicts import answer
from rootline.tree.draft.batch import Record
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.parts.ledger import CLIENT_RETENTION_S, REJECTED_MAX
from tests.support.examples import examples
from tests.support.state_rules import state_violations
from tests.tree.tables import LOG, Lake, append, new_lake, remove, removed

CLIENT = f"{CLIENT_WRITER_PREFIX}7"
"""A writer of whose word nothing is known here: any intent may come from it."""
WRITERS = ("ingest", "spark/q-1", "backfill", f"{PROCESS_WRITER_PREFIX}a", f"{PROCESS_WRITER_PREFIX}b", "rare", CLIENT)
RETENTION_MS = WRITER_RETENTION_S * 1000


@dataclass(frozen=True)
class Step:
    """One intent of a writer: at a sequence, passing its validation or not, perhaps one that was sent before."""

    writer: int
    sequence: int
    passes: bool
    resends: int | None
    text: str


@dataclass(frozen=True)
class Batch:
    steps: tuple[Step, ...]
    pause: int  # 0: none; 1: half the retention; 2: beyond it; 3: half an hour; 4: more than an hour
    acknowledged: int  # how many of the newest records are not acknowledged
    reloads: bool


steps = st.builds(
    Step,
    writer=st.integers(0, len(WRITERS) - 1),
    sequence=st.integers(0, 40),
    passes=st.integers(0, 3).map(bool),
    resends=st.none() | st.none() | st.integers(0, 400),
    text=st.text(max_size=4) | st.just("ü" * 250),
)
batches = st.builds(
    Batch,
    steps=st.lists(steps, min_size=1, max_size=8).map(tuple),
    pause=st.sampled_from((0, 0, 0, 0, 1, 2, 3, 4)),
    acknowledged=st.integers(0, 30),
    reloads=st.booleans(),
)
limits = st.builds(HeaderLimits, st.sampled_from((10, 60, 300, 1_500)), st.sampled_from((10, 60, 300, 1_500)))


@dataclass
class Reference:
    """What was decided, in sets and lists."""

    committed: dict[str, dict[int, int]] = field(default_factory=dict)
    rejected: dict[str, list[tuple[str, str | None, str | None]]] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    idle_once: set[str] = field(default_factory=set)

    def may_have_left(self, writer: str, now_ms: int) -> bool:
        idle_ms = now_ms - self.seen_ms.get(writer, now_ms)
        retention_ms = 1000 * CLIENT_RETENTION_S if writer == CLIENT else RETENTION_MS
        return (writer == CLIENT or writer.startswith(PROCESS_WRITER_PREFIX)) and idle_ms > retention_ms

    def judge(self, intent: Intent, verdict: Verdict, passes: bool, version: int, now_ms: int) -> None:
        writer, sequence = intent.writer_id or "", intent.writer_sequence or 0
        rejections = self.rejected.setdefault(writer, [])
        commits = self.committed.setdefault(writer, {})
        if self.may_have_left(writer, now_ms):
            self.idle_once.add(writer)
        if writer in self.idle_once:
            self._lenient(intent, verdict, passes)
        else:
            self._strict(intent, verdict, passes)
        if verdict.kind is VerdictKind.COMMITTED:
            commits[sequence] = version
        elif verdict.kind is VerdictKind.REJECTED and all(item[0] != intent.intent_id for item in rejections):
            rejections.append((intent.intent_id, verdict.code, verdict.message))
        self.seen_ms[writer] = now_ms

    def _strict(self, intent: Intent, verdict: Verdict, passes: bool) -> None:
        writer, sequence = intent.writer_id or "", intent.writer_sequence or 0
        known = {item[0]: item for item in self.rejected[writer][-REJECTED_MAX:]}
        if intent.intent_id in known:
            assert verdict.kind is VerdictKind.REJECTED
            assert (intent.intent_id, verdict.code, verdict.message) == known[intent.intent_id]
        elif sequence in self.committed[writer]:
            assert verdict.kind is VerdictKind.DUPLICATE
            assert verdict.version in (None, self.committed[writer][sequence])
        else:
            assert verdict.kind is (VerdictKind.COMMITTED if passes else VerdictKind.REJECTED)

    def _lenient(self, intent: Intent, verdict: Verdict, passes: bool) -> None:
        """A `process/` writer that was idle too long may be forgotten, in part too; nothing is made up of it."""
        writer, sequence = intent.writer_id or "", intent.writer_sequence or 0
        if verdict.kind is VerdictKind.DUPLICATE:
            assert sequence in self.committed[writer]
        elif verdict.kind is VerdictKind.REJECTED and passes and verdict.code != "file-already-live":
            assert intent.intent_id in {item[0] for item in self.rejected[writer]}


@given(st.lists(batches, min_size=1, max_size=14), limits)
@settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_pages_change_no_verdict_and_no_answer(drawn: list[Batch], limit: HeaderLimits) -> None:
    lake = new_lake()
    lake.limits = limit
    reference = Reference()
    sent: list[tuple[Intent, bool]] = []
    decided: list[tuple[Record, Verdict]] = []
    floor = 0
    for number, batch in enumerate(drawn):
        lake.now_ms += (0, RETENTION_MS // 2, RETENTION_MS + 1, 1_800_000, 3_600_001)[batch.pause]
        chosen: list[tuple[Intent, bool]] = []
        for place, step in enumerate(batch.steps):
            if step.resends is not None and sent:
                chosen.append(sent[step.resends % len(sent)])
            else:
                chosen.append(_intent(step, f"i-{number}-{place}"))
        sent += [item for item in chosen if item not in sent]
        records = lake.records(intent for intent, _ in chosen)
        every = [record.position.offset for record, _ in decided] + [records[0].position.offset]
        floor = max(floor, every[max(0, len(decided) - batch.acknowledged)])
        verdicts = lake.put_records(records, acknowledged={(LOG, 0): floor})
        version = lake.head.header.version
        for (intent, passes), verdict in zip(chosen, verdicts, strict=True):
            reference.judge(intent, verdict, passes, version, lake.now_ms)
        decided += zip(records, verdicts, strict=True)
        _judge_answers(lake, decided, floor)
        assert len(_metadata(lake, "rootline.ledger")) <= limit.ledger_bytes
        assert len(_metadata(lake, "rootline.outcomes")) <= limit.outcome_bytes
        if batch.reloads:
            reloaded = lake.reloaded()
            assert reloaded.pages == lake.head.pages
            lake = lake.reloaded_lake()
    assert state_violations(lake.head) == []


def _intent(step: Step, name: str) -> tuple[Intent, bool]:
    writer = WRITERS[step.writer]
    stamp = {"writer_id": writer, "writer_sequence": step.sequence}
    if step.passes:
        return append(name, **stamp), True
    return remove(name, removed(f"data/{step.text or 'none'}.parquet"), **stamp), False


def _judge_answers(lake: Lake, decided: list[tuple[Record, Verdict]], floor: int) -> None:
    for record, verdict in decided[-60:]:
        found = answer(lake.head, record)
        assert found == verdict or (found is None and record.position.offset < floor)


def _metadata(lake: Lake, key: str) -> bytes:
    return encode_header(decode_root(lake.bodies[-1], name="head").header)[key]
