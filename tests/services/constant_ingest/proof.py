"""One run: both lakes side by side, a week that passes in the middle, and what is judged at the end.

Owns: the order of things. Does not own: one lake (`side`), what is told of it (`report`).
Invariants: everything that was started ends with the run; a judgement that fails is told with all others.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rootline.client.session import Session
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import key_of
from rootline.schemas.verdict import VerdictKind
from rootline.tree.parts.locations import ORPHAN_AGE_PROPERTY
from tests.kafka.chaos.crowd import elapsed
from tests.services.constant_ingest.fast_clock import FastClock
from tests.services.constant_ingest.fast_dates import running_fast_dates
from tests.services.constant_ingest.gate import Gate
from tests.services.constant_ingest.report import Report, upkeep_of, wanted_upkeep
from tests.services.constant_ingest.side import BARE, WITH_UPKEEP, FastLake, Load, Side
from tests.services.constant_ingest.writers import TABLE
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service

LEAPS: Final = 9
"""Of nearly a day each: so the horizon, which stays eight days behind, passes the beginning of the run."""
_LEAPS_FROM, _LEAPS_TO = 0.45, 0.6
_SAMPLE_S: Final = 5.0
_RETENTION_MIN_S: Final = 600
_TELL_S: Final = 15.0
_LATE_MAX: Final = 20
_PATIENCE_S: Final = 300.0
_PATIENT: Final = {"request_timeout_s": 60.0, "delivery_timeout_s": 120.0, "session_timeout_s": 60.0}
_UPKEEP: Final = {
    "rootline.expire": "true",
    "rootline.expire.every-commits": "30",
    "rootline.sweep": "true",
    "rootline.sweep.interval-s": "5",
    ORPHAN_AGE_PROPERTY: str(8 * 24 * 3600),  # else a month more: so long dead letters may be replayed
    "rootline.convert.equality-deletes": "true",
    "rootline.compact.data": "true",
    "rootline.compact.data-target-bytes": "300000",
}
_NO_UPKEEP: Final = {
    "rootline.expire": "false",
    "rootline.sweep": "false",
    "rootline.convert.equality-deletes": "false",
    "rootline.compact.data": "false",
}


@dataclass(frozen=True)
class Plan:
    """How long (real seconds), how fast, how many."""

    seconds: float
    speed: float
    writers: int = 32
    readers: int = 3
    think_s: float = 2.0
    leaps: int = LEAPS

    @property
    def retention_s(self) -> int:
        """By the store's dates: an hour; of a run in real time, no more than what is allowed."""
        return max(_RETENTION_MIN_S, min(3600, round(60 * self.speed)))

    def upkeep(self) -> dict[str, str]:
        """Properties of the table with upkeep."""
        return _UPKEEP | {
            "rootline.expire.by-minute-seconds": str(self.retention_s // 6),
            "rootline.expire.by-hour-seconds": str(2 * self.retention_s),
            "rootline.expire.root-retention-seconds": str(self.retention_s),
            "rootline.sweep.scan-retention-s": str(self.retention_s),
        }


@dataclass
class Proof:
    """The parts of one run."""

    plan: Plan
    clock: FastClock
    sides: list[Side]
    tell: Callable[[str], None]
    gates: list[Gate]
    began_s: float = field(default_factory=time.monotonic)

    @property
    def upkept(self) -> Side:
        """The lake with upkeep."""
        return self.sides[0]

    async def run(self) -> Report:
        """Drive, stop, judge."""
        await asyncio.gather(*(asyncio.to_thread(side.start) for side in self.sides))
        self.began_s = time.monotonic()
        self.tell(f"both tables made; {self.plan.seconds:.0f} s at {self.plan.speed:g} times the real time")
        report = Report(self.plan.seconds, self.sides, has_leaps=self.plan.leaps > 0)
        try:
            await self._drive()
            for side in self.sides:
                await side.sample(self._now_s())
            await self._judge_late(report)
        except Exception as error:  # all that was found until then is told too
            report.hold(False, "".join(traceback.format_exception(error)))
        for side in self.sides:
            await asyncio.to_thread(side.stop)
            side.writers.history.judge(everything=True)
            report.hold(not side.writers.history.wrong, f"{side.name}: scans: {side.writers.history.wrong[:3]}")
        findings = [await asyncio.to_thread(side.check) for side in self.sides]
        for side, found in zip(self.sides, findings, strict=True):
            report.hold(not found, f"{side.name}: rootline check {found}")
        report.judge_upkeep()
        return report

    async def _drive(self) -> None:
        async with asyncio.TaskGroup() as group:
            for side in self.sides:
                group.create_task(side.drive())
            week = group.create_task(self._week())
            watching = group.create_task(self._watch())
            await self._until(1.0)
            await week
            await self._until_upkeep()
            for side in self.sides:
                side.readers.enough.set()
                side.writers.enough.set()
            watching.cancel()

    async def _until_upkeep(self) -> None:
        """On a busy machine the worker may need longer for what a run of this length must show."""
        patience_s = self._now_s() + max(_PATIENCE_S, self.plan.seconds / 5)
        wanted = wanted_upkeep(self.plan.seconds)
        while self._now_s() < patience_s:
            committed = upkeep_of(await asyncio.to_thread(self.upkept.lines, "worker")).committed
            late, left = await self._late()
            is_swept = len(left) < len(late) or "sweep" not in wanted or not self.plan.leaps
            if is_swept and all(committed[label] for label in wanted):
                return
            await elapsed(1.0)

    async def _late(self) -> tuple[list[Intent], list[Intent]]:
        """Intents that were never published, whose files are older than the horizon; those whose files are stored."""
        side = self.upkept
        horizon_ms = (await asyncio.to_thread(side.head)).locations.horizon_ms
        uploads = (await side.writers.lake.holder.run_async(_session)).uploads
        abandoned = side.writers.told.abandoned
        late = [intent for intent in abandoned if (uploads.oldest_of([intent]) or horizon_ms) < horizon_ms]
        table = side.objects / side.lake.prefix / key_of(TABLE, "")
        return late, [intent for intent in late if all((table / f.location).exists() for f in intent.add_data_files)]

    async def _week(self) -> None:
        """In the middle of the run: days on which no one writes, so that the horizon moves."""
        step = (_LEAPS_TO - _LEAPS_FROM) / max(1, self.plan.leaps)
        for number in range(self.plan.leaps):
            await self._until(_LEAPS_FROM + number * step - 0.05)
            for side in self.sides:
                side.readers.hurries = True
            await self._until(_LEAPS_FROM + number * step)
            async with self.gates[0].closed():
                self.clock.leap()
        for side in self.sides:
            side.readers.hurries = False
        self.tell(f"{self.plan.leaps} quiet days have passed")

    async def _watch(self) -> None:
        told_s = sampled_s = 0.0
        while True:
            await elapsed(0.5)
            now_s = self._now_s()
            for side in self.sides:
                assert side.is_alive(), f"a service of {side.name} has ended: its log is in {side.folder}"
                side.writers.history.judge()
            if now_s - sampled_s >= _SAMPLE_S:
                sampled_s = now_s
                for side in self.sides:
                    await side.sample(now_s)
            if now_s - told_s >= _TELL_S:
                told_s = now_s
                self._progress(now_s)

    def _progress(self, now_s: float) -> None:
        for side in self.sides:
            if not side.samples:
                continue
            sample, history = side.samples[-1], side.writers.history
            self.tell(
                f"{now_s:6.0f} s  {side.name:6}  version {sample.version}, {sum(side.writers.told.verdicts.values())} "
                f"answers, {sample.rows} rows; live {sample.live_bytes / 1e6:.2f} MB, stored "
                f"{sample.stored_bytes / 1e6:.2f} MB; {history.judged} scans right, {len(history.wrong)} wrong"
            )

    async def _judge_late(self, report: Report) -> None:
        """What was uploaded before the quiet days is too old; what was committed then is known."""
        side = self.upkept
        told = side.writers.told
        late, left = await self._late()
        async with side.writers.lake.async_producer() as producer:
            for intent in late[:_LATE_MAX]:
                verdict = await side.writers.publish_late(producer, intent)
                report.late[f"{verdict.kind} {verdict.code or ''}".strip()] += 1
            for receipt in told.receipts[:_LATE_MAX]:
                verdict = await side.writers.publish_late(producer, receipt)
                report.again[f"{verdict.kind} {verdict.code or ''}".strip()] += 1
        fine = report.late.keys() <= {"rejected expired", "rejected file-removed"}
        report.hold(fine, f"late intents: {dict(report.late)}, all should be expired or file-removed")
        again = set(report.again) <= {str(VerdictKind.DUPLICATE)}
        report.hold(again, f"intents published again: {dict(report.again)}, all should be duplicates")
        report.orphans = (len(told.abandoned), len(late), len(left))

    async def _until(self, part: float) -> None:
        await elapsed(max(0.0, self.began_s + part * self.plan.seconds - time.monotonic()))

    def _now_s(self) -> float:
        return time.monotonic() - self.began_s


async def _session(session: Session) -> Session:
    return session


@contextmanager
def proof(s3: S3Service, kafka: KafkaService, folder: Path, plan: Plan, tell: Callable[[str], None]) -> Iterator[Proof]:
    """A run that has not begun; its services end with the block."""
    assert s3.folder is not None, "this proof needs a store of its own: unset ROOTLINE_TEST_S3"
    clock = FastClock.make(folder / "clock", plan.speed)
    with ExitStack() as around:
        fast = replace(s3, endpoint=around.enter_context(running_fast_dates(s3, clock, folder / "fast-dates.log")))
        gate = Gate()
        load = Load(gate, plan.writers, plan.readers, plan.think_s, plan.retention_s / plan.speed / 2)
        sides = []
        for name, properties in ((WITH_UPKEEP, plan.upkeep()), (BARE, _NO_UPKEEP)):
            lake = FastLake(fast, kafka.with_topics(partitions=2, **_PATIENT), clock=clock)
            side = Side.of(name, lake, folder, s3.folder, properties, load)
            around.callback(side.stop)
            around.callback(side.close)
            sides.append(side)
        yield Proof(plan, clock, sides, tell, [gate])
