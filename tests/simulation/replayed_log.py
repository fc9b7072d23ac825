"""A recorded log, replayed through the coordinator of the tree on the path.

Run it as `python replayed_log.py RECORDING FOLDER …`.

Owns: the form of a recording, a coordinator whose ids, clock, faults and restarts follow from the recording, the list
of everything that it stored and published. Does not own: making a recording (`recorded_log`), the comparison of two
replays (`same_bytes`).
Invariants: this one file runs in trees before and after a refactoring, so it names few modules of the product, and of
the models only those whose names are promises. Reads take no virtual time and draw no number: how often a coordinator
reads, waits or asks for an id at other moments changes nothing in a root.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import json
import logging
import sys
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

import rootline
from rootline.adapters.memory import MemoryObjectStore
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.object_store import PutReply, PutStatus
from rootline.schemas.bytes.verdict_codec import encode_dead_letter, encode_verdicts
from rootline.testing.virtual_loop import run_virtually
from tests.support.group_log import GroupLog
from tests.support.own_flush import own_flush

TICK_S: Final = 0.3
"""The records of one table are appended together, once a tick, and those of each table at its own part of the tick."""
_PUT_S: Final = 0.004
_LEAVES_S: Final = 0.7
"""How long a coordinator writes leaves of its own: its table goes on for two ticks meanwhile."""
_LAND_LATE_S: Final = 0.03
_SETTINGS: Final = CoordinatorSettings(
    probe_rounds=0, offsets_commit_interval_s=0.05, parking_after_s=600.0, stop_timeout_s=30.0
)


@dataclass(frozen=True, slots=True)
class Setup:
    """The world of a recording.

    `began_ms`: the clocks' time at the beginning. `dates_speed`: how much faster than all other clocks the store's
    dates run. `header_bytes`: the limit of the ledger and of the outcomes in a header, or `None` for the usual ones.
    `fault_share`: the share of PUTs whose answer is lost, or that are lost themselves. `batch_max`: intents of a batch.
    """

    name: str
    partitions: int = 1
    began_ms: int = 1_700_000_000_000
    dates_speed: int = 1
    header_bytes: int | None = None
    fault_share: float = 0.0
    batch_max: int = 512


@dataclass(frozen=True, slots=True)
class Record:
    """A record that is appended. `kind`: of its intent, for counts alone. `appended_ms`: when it says so itself."""

    partition: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]
    kind: str = ""
    appended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    """An object that a writer or a worker stores."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Removal:
    """Objects that a worker removes."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restart:
    """The coordinator ends and another one begins; `is_killed`: right after its next root is stored."""

    is_killed: bool


Event = Record | Upload | Removal | Restart
_FORMS: Final[Mapping[str, type[Event]]] = {kind.__name__: kind for kind in (Record, Upload, Removal, Restart)}


def write_recording(path: Path, setup: Setup, events: Sequence[tuple[float, Event]]) -> None:
    """Write a recording: its world, then an event a line, each with its time in virtual seconds."""
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(json.dumps(asdict(setup)) + "\n")
        for at_s, event in events:
            file.write(json.dumps([at_s, type(event).__name__, asdict(event)], default=_text) + "\n")


def read_recording(path: Path) -> tuple[Setup, Iterator[tuple[float, Event]]]:
    """The world of a recording, and its events."""
    lines = _lines(path)
    return Setup(**json.loads(next(lines))), map(_event, lines)


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt") as file:
        yield from file


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _event(line: str) -> tuple[float, Event]:
    at_s, form, values = json.loads(line)
    for name in ("key", "value", "body") if form in ("Record", "Upload") else ():
        if isinstance(values.get(name), str) and (form, name) != ("Upload", "key"):
            values[name] = base64.b64decode(values[name])
    if form == "Record":
        values["headers"] = tuple((name, given and base64.b64decode(given)) for name, given in values["headers"])
    return at_s, _FORMS[form](**values)


class Journal:
    """Everything that a coordinator stored and published, in order: a line each, and the bodies in one file.

    A line is the name, the digest, and the place of the body. The name of a verdict is its place on the log.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines, self._bodies = (folder / "journal").open("w"), (folder / "bodies").open("wb")
        self._end = 0

    def note(self, what: str, name: str, body: bytes, remark: str = "") -> None:
        """Write a line and its body."""
        digest = hashlib.sha256(body).hexdigest()
        self._lines.write(json.dumps([what, name, digest, self._end, len(body), remark]) + "\n")
        self._bodies.write(body)
        self._end += len(body)

    def close(self) -> None:
        """Flush both files."""
        self._lines.close()
        self._bodies.close()


@dataclass(slots=True)
class _Environment:
    """The ids of one coordinator, counted, and the time of the loop."""

    name: str
    began_ms: int
    count: int = 0

    def now_ms(self) -> int:
        return self.began_ms + int(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    def fresh_id(self) -> str:
        self.count += 1
        return hashlib.sha256(f"{self.name}/{self.count}".encode()).hexdigest()[:32]

    def jitter(self) -> float:
        return 0.5


Put = Callable[..., Awaitable[PutReply]]


@dataclass(slots=True)
class _Store:
    """A coordinator's connection to the store. The fault of a PUT follows from its key and the number of the attempt.

    `to_die`: the next root is stored without an answer, and `died` is set.
    """

    setup: Setup
    objects: MemoryObjectStore
    put: Put
    journal: Journal
    attempts: dict[str, int] = field(default_factory=dict)
    to_die: bool = False
    died: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, key: Any) -> Any:
        return await self.objects.get(key)

    async def list(self, prefix: str, *, limit: int | None = None) -> Any:
        return await self.objects.list(prefix, limit=limit)

    async def stored_ms(self, key: Any) -> int | None:
        return await self.objects.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        return await self.objects.folders(prefix)

    async def close(self) -> None:
        pass

    async def put_if_absent(self, key: Any, body: bytes, *, after: Any = None) -> PutReply:
        attempt = self.attempts[key] = self.attempts.get(key, 0) + 1
        drawn = hashlib.sha256(f"{self.setup.name}/{key}/{attempt}".encode()).digest()
        fate = int.from_bytes(drawn[:4], "big") / 2**32 / self.setup.fault_share if self.setup.fault_share else 1.0
        await asyncio.sleep(_PUT_S)
        if fate < 0.25:
            self.journal.note("put", key, body, "never arrives")
            return PutReply(PutStatus.NO_ANSWER, detail="connection refused, perhaps")
        if fate < 0.4:
            self.journal.note("put", key, body, "arrives late")
            asyncio.get_running_loop().call_later(_LAND_LATE_S, self._arrive_late, key, body, after)
            return PutReply(PutStatus.NO_ANSWER, detail="time-out")
        reply = await self.put(key, body, after=after)
        self.journal.note("put", key, body, reply.answer.value)
        if self.to_die and "/metadata/roots/" in key:
            self.to_die = False
            self.died.set()
            await asyncio.Event().wait()
        if fate < 0.7:
            return PutReply(PutStatus.NO_ANSWER, detail="the connection broke")
        if fate < 1.0:
            return PutReply(PutStatus.EXISTS, reply.store_ms, "409")
        return reply

    def _arrive_late(self, key: Any, body: bytes, after: Any) -> None:
        with contextlib.suppress(StopIteration):
            self.put(key, body, after=after).__await__().send(None)  # a PUT into memory waits for nothing


@dataclass(slots=True)
class _Encoder:
    """Leaves take a while, or fail; every choice follows from the root."""

    async def encode(self, head: Any) -> Any:
        await asyncio.sleep(_LEAVES_S)
        if head.root.digest[0] < 32:
            raise MemoryError
        return own_flush(head)


class _Feed:
    """A coordinator's connection to the log, which notes the verdicts and dead letters that it publishes."""

    def __init__(self, member: Any, journal: Journal) -> None:
        self._member, self._journal = member, journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)

    async def publish_verdicts(self, verdicts: Sequence[Any], dead_letters: Sequence[Any]) -> None:
        for verdict in verdicts:
            place = f"{verdict.table} {verdict.partition}/{verdict.offset}"
            self._journal.note("verdict", place, encode_verdicts([verdict]), f"{verdict.kind.value} {verdict.code}")
        for letter in dead_letters:
            self._journal.note("letter", f"{letter.partition}/{letter.offset}", encode_dead_letter(letter), letter.code)
        await self._member.publish_verdicts(verdicts, dead_letters)


class Coordinators:
    """One coordinator after another over one log and one store. `put`: what stores an object of theirs."""

    def __init__(self, setup: Setup, log: Any, objects: MemoryObjectStore, put: Put, journal: Journal) -> None:
        self._setup, self._log, self._journal = setup, log, journal
        self._store = _Store(setup, objects, put, journal)
        self._number = 0
        self._service: CoordinatorService | None = None
        self._running: asyncio.Task[None] | None = None
        self._mourner: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the next one."""
        self._number += 1
        name = f"coordinator-{self._number}"
        feed = _Feed(self._log.member(name), self._journal)
        settings = _SETTINGS.model_copy(update={"coordinator_id": name, "batch_intents_max": self._setup.batch_max})
        environment = _Environment(f"{self._setup.name}/{name}", self._setup.began_ms)
        service: Any = CoordinatorService(
            store=self._store,
            log=feed,
            environment=environment,
            settings=settings,
        )
        service._encoder = _Encoder()
        if (most := self._setup.header_bytes) is not None:
            limits = replace(service._policy.header_limits, ledger_bytes=most, outcome_bytes=most)
            service._policy = replace(service._policy, header_limits=limits)
        self._service, self._running = service, asyncio.ensure_future(service.run())

    async def restart(self, how: Restart) -> None:
        """Stop this one and start the next; or have it killed after its next root."""
        if not how.is_killed:
            await self.stop()
            self.start()
        elif not self._store.to_die:
            self._store.to_die, self._store.died = True, asyncio.Event()
            self._mourner = asyncio.ensure_future(self._after_death())

    async def _after_death(self) -> None:
        await self._store.died.wait()
        await self._end()
        self.start()

    async def stop(self) -> None:
        """Ask the coordinator to end, and wait for it."""
        if self._service is not None and self._running is not None:
            self._service.request_stop()
            await self._running

    async def _end(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def until_decided(self) -> None:
        """Wait until every record has its verdict, and stop."""
        for _ in range(1_000):
            if self._running is not None and self._running.done() and not self._running.cancelled():
                self._running.result()  # it ended of its own accord: its error
            if self._log.is_decided():
                break
            await asyncio.sleep(TICK_S)
        if self._mourner is not None:
            self._mourner.cancel()
        await self.stop()
        if not self._log.is_decided():
            raise AssertionError(f"{self._setup.name}: no verdict on {self._log.undecided()[:5]}")


class ReplayedLog(GroupLog):
    """The log of a recording. An append time is the loop's, or the one that the record says."""

    def __init__(self, setup: Setup) -> None:
        self.says_ms: int | None = None
        began_ms = setup.began_ms
        super().__init__(
            setup.partitions,
            identity=uuid.uuid5(uuid.NAMESPACE_OID, setup.name),
            clock_ms=lambda: (
                began_ms + int(asyncio.get_running_loop().time() * 1000) if self.says_ms is None else self.says_ms
            ),
        )


def dates_of(setup: Setup) -> Callable[[], int]:
    """The store's clock."""
    return lambda: setup.began_ms + int(asyncio.get_running_loop().time() * 1000) * setup.dates_speed


async def _replay(setup: Setup, events: Iterator[tuple[float, Event]], journal: Journal) -> None:
    log, objects = ReplayedLog(setup), MemoryObjectStore(dates_of(setup))
    coordinators = Coordinators(setup, log, objects, objects.put_if_absent, journal)
    coordinators.start()
    for at_s, event in events:
        await sleep_until(at_s)
        match event:
            case Record():
                log.says_ms = event.appended_ms
                log.append(event.key, event.value, partition=event.partition, headers=event.headers)
            case Upload():
                objects.place(event.key, event.body)
            case Removal():
                for key in event.keys:
                    objects.discard(key)
            case Restart():
                await coordinators.restart(event)
    await coordinators.until_decided()


async def sleep_until(at_s: float) -> None:
    """Wait for a moment of the loop, as exactly as floats are."""
    loop = asyncio.get_running_loop()
    if at_s > loop.time():
        there = asyncio.Event()
        loop.call_at(at_s, there.set)
        await there.wait()


def replay(recording: Path, folder: Path) -> None:
    """Replay a recording; its journal is in `folder` afterwards."""
    setup, events = read_recording(recording)
    journal = Journal(folder)
    try:
        with _decoded_once():
            run_virtually(_replay(setup, events, journal))
    finally:
        journal.close()
    (folder / "done").touch()


def _decoded_once() -> contextlib.AbstractContextManager[None]:
    """Decode each root and leaf once, which changes nothing but the time it takes; the tool of the tree on the path."""
    try:
        from tests.simulation.decoded_once import decoded_once
    except ImportError:
        return contextlib.nullcontext()
    return decoded_once()


def main(*places: str) -> int:
    """Replay each recording into the folder that follows it. Returns the number of those that failed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    assert Path(rootline.__file__).is_relative_to(Path.cwd()), f"{rootline.__file__} is not of {Path.cwd()}"
    failed = 0
    for recording, folder in zip(places[::2], places[1::2], strict=True):
        try:
            replay(Path(recording), Path(folder))
        except BaseException:
            print(f"the replay of {recording} failed:", file=sys.stderr)
            traceback.print_exc()
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
