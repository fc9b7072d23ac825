"""What goes wrong, by chance: processes that die or hang, networks that lose replies, members that come and go.

Owns: the seeded choice of faults, and their counts. Does not own: what must hold nevertheless.
Invariants: the same seed chooses the same faults in the same order (when they strike is the machine's affair); `settle`
leaves every process running and every network whole; what runs in a thread has ended when `run` has.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import Consumer

from rootline.adapters.settings import KafkaSettings
from tests.kafka.chaos.crowd import elapsed
from tests.kafka.chaos.retention import add_partition, expire
from tests.kafka.rootline_process import RootlineProcess
from tests.kafka.topic_watch import Watch
from tests.services.kafka_service import KafkaBroker
from tests.services.toxiproxy import Proxy

_T = TypeVar("_T")
_MAY_END_WITH = {"store-unavailable", "log-unavailable", "publish-unknown"}
"""Why a coordinator may give up at its start; its operator starts it again."""


@dataclass
class Faults:
    """`stores`: each coordinator's way to the store; `brokers`: the way of all to the log.

    `watch` has read what expires; `seconds`: how long the faults last.
    """

    coordinators: Sequence[RootlineProcess]
    extra: RootlineProcess
    stores: Sequence[Proxy]
    brokers: Proxy
    settings: KafkaSettings
    seed: int
    broker: KafkaBroker | None
    tell: Callable[[str], None]
    watch: Watch
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)
    _may_strike: asyncio.Event = field(default_factory=asyncio.Event)
    _striking: int = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        self._may_strike.set()
        async with asyncio.TaskGroup() as tasks:
            for number, process in enumerate(self.coordinators):
                tasks.create_task(self._process(process, random.Random(f"{self.seed}/process/{number}")))
            for number, store in enumerate(self.stores):
                tasks.create_task(self._store(store, random.Random(f"{self.seed}/store/{number}")))
            tasks.create_task(self._log(random.Random(f"{self.seed}/log")))
            tasks.create_task(self._members(random.Random(f"{self.seed}/members")))
            tasks.create_task(self._retention(random.Random(f"{self.seed}/retention")))
            if self.broker is not None:
                tasks.create_task(self._broker(self.broker, random.Random(f"{self.seed}/broker")))

    def settle(self) -> None:
        """No faults any more."""
        for proxy in (*self.stores, self.brokers):
            proxy.mend()
        self.extra.end()
        for process in self.coordinators:
            if process.is_alive:
                process.resume()
            if process.is_leaving:
                process.wait()
            if not process.is_alive:
                self._revive(process)

    def look_after(self) -> None:
        """Start again every process that has ended by itself."""
        for process in self.coordinators:
            if not process.is_alive:
                self._revive(process)

    def _revive(self, process: RootlineProcess) -> None:
        failures = [line for line in process.lines() if "error" in line and "next" in line]
        reason = failures[-1] if failures else {}
        code = process.running.returncode
        if code > 0:
            self.ended.append(f"{process.name}.{process.incarnation}: {code} {reason}")
            assert reason.get("error") in _MAY_END_WITH, f"{process.name} ended with {code}: {process.tail()}"
            self.counts["ended by itself"] += 1
        process.start()

    async def _process(self, process: RootlineProcess, rng: random.Random) -> None:
        while True:
            await elapsed(rng.uniform(3.0, 12.0))  # a dead member holds the whole group up until its session ends
            async with self._strikes():
                self.look_after()  # at most one of us starts it again, the first
                await self._strike_process(process, rng)
                self.look_after()

    async def _strike_process(self, process: RootlineProcess, rng: random.Random) -> None:
        roll = rng.random()
        if roll < 0.4:
            self._count("kill -9", process.name)
            process.kill()
            await elapsed(rng.choice((0.0, 0.5, 3.0)))
        elif roll < 0.75:
            seconds = self.settings.session_timeout_s + rng.uniform(1.0, 4.0)
            self._count("paused past the session", f"{process.name} for {seconds:.1f} s")
            process.pause()
            await elapsed(seconds)
            process.resume()
        elif roll < 0.9:
            self._count("paused a while", process.name)
            process.pause()
            await elapsed(rng.uniform(0.2, 3.0))
            process.resume()
        else:
            self._count("SIGTERM", process.name)
            stopped = process.incarnation
            process.request_stop()
            while process.is_alive and process.incarnation == stopped:  # another strike may start it again at once
                await elapsed(0.05)

    async def _store(self, proxy: Proxy, rng: random.Random) -> None:
        while True:
            await elapsed(rng.uniform(0.5, 3.0))
            kind = rng.choice(("reset", "reset", "cut", "never arrives", "silence", "slow"))
            self._count(f"store: {kind}", proxy.name)
            until_s = time.monotonic() + rng.uniform(0.5, 4.0)
            while time.monotonic() < until_s:  # a connection that was spared once would always be spared
                await _to_its_end(asyncio.to_thread(_strike, proxy, kind, rng))
                await elapsed(rng.uniform(0.1, 0.5))
            await _to_its_end(asyncio.to_thread(proxy.mend))

    async def _log(self, rng: random.Random) -> None:
        while True:
            await elapsed(rng.uniform(3.0, 10.0))
            async with self._strikes():
                self._count("log: reset", self.brokers.name)
                self.brokers.add("reset_peer", stream="downstream", share=0.3, timeout=rng.randint(0, 200))
                await elapsed(rng.uniform(0.2, 1.5))
                self.brokers.mend()

    async def _members(self, rng: random.Random) -> None:
        """One coordinator too many, or a stray consumer: either takes partitions from the others."""
        while True:
            await elapsed(rng.uniform(8.0, 20.0))
            async with self._strikes():
                if rng.random() < 0.5:
                    self._count("rebalance: a fourth", self.extra.name)
                    self.extra.start()
                    await elapsed(rng.uniform(3.0, 8.0))
                    await _to_its_end(asyncio.to_thread(self.extra.end))
                else:
                    self._count("rebalance: a stray member", "")
                    await _to_its_end(asyncio.to_thread(self._stray, rng.uniform(0.5, 3.0)))

    async def _retention(self, rng: random.Random) -> None:
        """One partition more, once; and from time to time the group's offsets expire, with the records."""
        await elapsed(rng.uniform(0.1, 0.2) * self.seconds)
        count = await _to_its_end(asyncio.to_thread(add_partition, self.settings))
        self._count("a partition more", f"({count} now)")
        while True:
            await elapsed(rng.uniform(0.2, 0.4) * self.seconds)
            async with self._calm():
                self.tell("offsets and records are to expire")
                for process in self.coordinators:
                    if process.is_alive:
                        process.request_stop()
                while any(process.is_alive for process in self.coordinators):
                    await elapsed(0.05)
                went = await _to_its_end(expire(self.settings, self.watch))
                self._count("offsets and records expire", f"({went} went)")
                self.look_after()

    @asynccontextmanager
    async def _strikes(self) -> AsyncIterator[None]:
        await self._may_strike.wait()
        self._striking += 1
        try:
            yield
        finally:
            self._striking -= 1

    @asynccontextmanager
    async def _calm(self) -> AsyncIterator[None]:
        """No process is struck, nor are the ways to the log."""
        self._may_strike.clear()
        while self._striking:
            await elapsed(0.05)
        try:
            yield
        finally:
            self._may_strike.set()

    def _stray(self, seconds: float) -> None:
        stray = Consumer(
            {
                "bootstrap.servers": self.settings.servers(),
                "group.id": self.settings.group_id,
                "partition.assignment.strategy": "roundrobin",
                "enable.auto.commit": False,
                "session.timeout.ms": round(self.settings.session_timeout_s * 1_000),
                "log_level": 0,
            }
        )
        stray.subscribe([self.settings.intents_topic])
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            stray.poll(0.1)
        stray.close()

    async def _broker(self, broker: KafkaBroker, rng: random.Random) -> None:
        while True:
            await elapsed(rng.uniform(30.0, 60.0))
            async with self._strikes():
                self._count("broker kill -9", "")
                broker.kill()
                await _to_its_end(asyncio.to_thread(broker.start_again))

    def _count(self, what: str, whom: str) -> None:
        self.counts[what] += 1
        self.tell(f"{what} {whom}".rstrip())


async def _to_its_end(doing: Coroutine[None, None, _T]) -> _T:
    """Who is cancelled meanwhile waits for it: no thread strikes when the faults are over."""
    task = asyncio.ensure_future(doing)
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


def _strike(proxy: Proxy, kind: str, rng: random.Random) -> None:
    """Something happens to some of the connections that there are, and that come."""
    proxy.mend()
    match kind:
        case "reset":  # a while after an answer has begun
            proxy.add("reset_peer", stream="downstream", share=0.3, timeout=rng.randint(0, 200))
        case "cut":  # the store has done it, the answer is lost
            proxy.add("limit_data", stream="downstream", share=0.3, bytes=rng.randint(1, 2_000))
        case "never arrives":  # the store receives nothing, or half of it
            proxy.add("limit_data", stream="upstream", share=0.3, bytes=rng.randint(1, 8_000))
        case "silence":
            proxy.add("timeout", stream="downstream", share=0.2, timeout=rng.choice((0, 500)))
        case "slow":
            proxy.add("latency", stream="downstream", latency=rng.randint(20, 400), jitter=20)
