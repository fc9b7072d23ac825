"""The spans of one table's intents: decided, put, told. Only for records whose writer records a trace.

Owns: which spans there are, and between which moments. Does not own: where they go (`rootline.ports.environment`), the
moments themselves (`table_loop`).
Invariants: nothing is kept of a record without a trace; what is kept is bounded; nothing waits for a span; a process
records at most `TRACES_PER_S_MAX` intents a second, for a span takes as long as some part of a commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rootline.coordinator.runtime.table.verdict_outbox import Publication
from rootline.ports.environment import Tracer
from rootline.schemas.bytes.record_headers import trace_of
from rootline.schemas.identifiers import LogPosition, TableName, Version
from rootline.tree.draft.batch import Record

TRACES_PER_S_MAX: Final = 100
_WAITING_MAX: Final = 10_000
_ROOTS_MAX: Final = 1_000


@dataclass(slots=True)
class TraceBudget:
    """How many intents are still recorded in this second, by all tables of a process."""

    per_s_max: int = TRACES_PER_S_MAX
    _since_ns: int = 0
    _spent: int = 0

    def spend(self, now_ns: int) -> bool:
        """Whether one more is recorded."""
        if now_ns - self._since_ns >= 1_000_000_000 or now_ns < self._since_ns:
            self._since_ns, self._spent = now_ns, 0
        self._spent += 1
        return self._spent <= self.per_s_max


@dataclass(slots=True)
class CommitTraces:
    """Told what happens, as it happens."""

    table: TableName
    tracer: Tracer
    budget: TraceBudget
    _arrived_ns: dict[LogPosition, int] = field(default_factory=dict)
    _put_ns: dict[Version, int] = field(default_factory=dict)
    _landed_ns: dict[Version, int] = field(default_factory=dict)

    def arrived(self, records: Iterable[Record]) -> None:
        """The table got these records."""
        now_ns = time.time_ns()
        for record in records:
            context = trace_of(record.headers) if record.headers else None
            if context is None or not context.is_sampled or len(self._arrived_ns) >= _WAITING_MAX:
                continue
            if self.budget.spend(now_ns):
                self._arrived_ns[record.position] = now_ns

    def putting(self, version: Version) -> None:
        """The PUT of a root begins, perhaps not for the first time."""
        if self._arrived_ns:
            self._put_ns[version] = time.time_ns()

    def landed(self, version: Version) -> None:
        """That root is confirmed."""
        if version in self._put_ns:
            self._landed_ns[version] = time.time_ns()
            while len(self._landed_ns) > _ROOTS_MAX:
                self._forget(next(iter(self._landed_ns)))

    def told(self, publication: Publication) -> None:
        """The log has acknowledged these verdicts."""
        version = publication.version
        if publication.traces and self._arrived_ns:
            self._record(publication)
        if version is not None:
            for older in [known for known in self._put_ns if known <= version]:
                self._forget(older)

    def _record(self, publication: Publication) -> None:
        told_ns, version = time.time_ns(), publication.version
        put_ns = None if version is None else self._put_ns.get(version)
        landed_ns = None if version is None else self._landed_ns.get(version)
        for verdict, context in zip(publication.verdicts, publication.traces, strict=True):
            position = LogPosition(verdict.log, verdict.partition, verdict.offset)  # type: ignore[arg-type]
            arrived_ns = self._arrived_ns.pop(position, None)
            if context is None or arrived_ns is None:
                continue
            facts: dict[str, str | int] = {
                "rootline.table": self.table,
                "rootline.intent_id": verdict.intent_id,
                "rootline.verdict": verdict.kind.value,
                "messaging.destination.partition.id": verdict.partition,
                "messaging.kafka.offset": verdict.offset,
            }
            if verdict.code:
                facts["rootline.code"] = verdict.code
            if version is not None:
                facts["rootline.version"] = version
            if put_ns is None or landed_ns is None:  # no root of this process decided it
                self.tracer.record("rootline decide", context, arrived_ns, told_ns, facts)
                continue
            begun_ns = max(put_ns, arrived_ns)
            self.tracer.record("rootline decide", context, arrived_ns, begun_ns, facts)
            self.tracer.record("rootline put root", context, begun_ns, landed_ns, facts)
            self.tracer.record("rootline tell verdict", context, landed_ns, told_ns, facts)

    def _forget(self, version: Version) -> None:
        self._put_ns.pop(version, None)
        self._landed_ns.pop(version, None)
