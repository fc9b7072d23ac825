"""Simulated REST catalogs, and the way of a client's request to one of them.

Owns: a catalog's life, its side of the log, what happens to requests and answers on their way. Does not own: who asks
(`engines`), faults of the store (`faulty_world`).
Invariants: requests go through the product's own routes; a catalog is killed at any await of a request, what it has
sent by then is carried out all the same, and the next one knows nothing of it; every choice comes from the world's
seed.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message
from typing_extensions import override

from rootline.catalog.export_memory import Moment
from rootline.catalog.exporter import TableExporter
from rootline.catalog.rest.catalog import CatalogMetrics, RestCatalog
from rootline.catalog.rest.routes import ServedCatalog, catalog_app, in_place
from rootline.client.session import Session, WriterStamp
from rootline.ports.intent_log import NewRecord
from rootline.rest.routes import write_routes
from rootline.rest.writing import Writing
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.bytes.record_headers import content_headers
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogPosition, TableName, oldest_file_header
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import Verdict
from rootline.testing.seeded_environment import SeededEnvironment
from tests.simulation.faulty_world import ProcessStore, World
from tests.simulation.published import Published
from tests.support.opened_sessions import nothing_known

T = TypeVar("T")
LAKE: Final = "s3://lake"
_COMMIT_TIMEOUT_S: Final = 8.0
_EXPORT_TIMEOUT_S: Final = 20.0
_CLIENT_TIMEOUT_S: Final = 60.0
_DOOMED: Final = 0.08
"""How many of the requests to change something end their catalog."""
LIES = 0.03
"""How many of the commits that are done are answered with 503 on the way."""
_DONE, _AWAY = 200, 503
_FAULTS: Final = 0.3
"""An export reads so much that hardly one would be made where every fiftieth request fails."""
_STEPS: Final = 60
"""How many awaits a request has at first sight."""


@dataclass(slots=True)
class _Request:
    """A request in all tasks that work on it. `ends_at`: the await at which its catalog is killed, 0 for none."""

    kill: Callable[[], None]
    ends_at: int = 0
    steps: int = 0
    records: list[LogPosition] = field(default_factory=list)
    """On the log."""

    def step(self) -> None:
        """Count an await, and see whether it is the last one."""
        self.steps += 1
        if self.steps == self.ends_at:
            asyncio.get_running_loop().call_soon(self.kill)


_REQUEST: ContextVar[_Request | None] = ContextVar("request", default=None)


class Lost(Exception):
    """The connection broke: the client does not know whether its request arrived."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class CatalogsLog:
    """A catalog's two sides of the log: late, lossy, and sometimes a record is on it twice."""

    world: World
    name: str
    running: asyncio.Event
    published: Published

    async def publish(self, key: bytes, value: bytes) -> LogPosition:
        return (await self.publish_many([(key, value)]))[0]

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        world = self.world
        await self._travel()
        if world.chance(0.04):
            raise Unavailable("log-unavailable", "the broker does not answer, and got nothing")
        positions = [self._append(record, oldest_file_ms) for record in records]
        if world.chance(0.04):
            world.trace.note(self.name, "records are on the log twice")
            again = [self._append(record, oldest_file_ms) for record in records]
            positions = again if world.chance(0.5) else positions
        await self._travel()
        if world.chance(0.04):
            raise OutcomeUnknown("publish-unknown", "the broker did not confirm it")
        return positions

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        await self._travel()
        if self.world.chance(0.04):
            raise Unavailable("log-unavailable", "the broker does not answer")
        found = await self.world.log.wait_verdict(position, timeout_s=timeout_s)
        await self._travel()
        return None if self.world.chance(0.02) else found

    def _append(self, record: NewRecord, oldest_file_ms: int | None) -> LogPosition:
        key, value, *said = record
        intent = decode_intent(value, {}, IntentLimits())
        if intent.add_data_files or TableName(key.decode()) in self.published.first:
            self.published.by_value.setdefault(value, intent)
            base = self.published.bases.get((str(intent.table_uuid), intent.read_sequence_number or 0))
            self.published.seen.setdefault(intent.intent_id, base)
            self.world.trace.note(self.name, "publish", intent.kind.value, intent.intent_id)
        headers = (*content_headers(*said), *oldest_file_header(oldest_file_ms))
        position = self.world.log.append(key, value, headers=headers)
        if (request := _REQUEST.get()) is not None:
            request.records.append(position)
        return position

    async def _travel(self) -> None:
        await asyncio.sleep(self.world.delay_s())
        await self.running.wait()


class _Counted(Coroutine[Any, Any, T]):
    """A coroutine of a request, whose awaits are counted."""

    def __init__(self, inner: Coroutine[Any, Any, T], request: _Request) -> None:
        self._inner, self._request = inner, request

    @override
    def send(self, value: Any, /) -> Any:
        self._request.step()
        return self._inner.send(value)

    @override
    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    @override
    def close(self) -> None:
        self._inner.close()

    @override
    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()


def count_awaits(loop: asyncio.AbstractEventLoop) -> None:
    """Count the awaits of every task that works on a request."""

    def make(of: asyncio.AbstractEventLoop, inner: Any, **more: Any) -> asyncio.Task[Any]:
        context = more.get("context")
        request = _REQUEST.get() if context is None else context.get(_REQUEST)
        return asyncio.Task(inner if request is None else _Counted(inner, request), loop=of, **more)

    loop.set_task_factory(make)


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that was refused, or answered as if nobody was there, by the catalog itself. `records`: its own."""

    path: str
    status: int
    message: str
    records: Sequence[LogPosition]


@dataclass(slots=True)
class Catalog:
    """One catalog. `kills`: how often it ended in the middle of something."""

    world: World
    name: str
    published: Published
    kills: int = 0
    refused: list[Refused] = field(default_factory=list)
    incarnation: int = 0
    _app: ASGIApp | None = None
    _catalog: RestCatalog | None = None
    _running: asyncio.Event = field(default_factory=asyncio.Event)
    _requests: dict[asyncio.Task[None], None] = field(default_factory=dict)
    _steps: int = _STEPS

    @property
    def is_running(self) -> bool:
        return self._app is not None

    def start(self) -> None:
        """Begin with an empty memory."""
        self.incarnation += 1
        world, name = self.world, f"{self.name}.{self.incarnation}"
        self._running = asyncio.Event()
        self._running.set()
        store = ProcessStore(world, name, self._running, faults=_FAULTS)
        skew_ms = world.rng.randint(-60_000, 60_000)
        environment = SeededEnvironment(f"{name}/{world.rng.random()}", skew_ms=skew_ms)
        log = CatalogsLog(world, name, self._running, self.published)
        session = Session(store, log, environment, store.close, nothing_known, base_url=LAKE)
        exporter = TableExporter(
            store, LAKE, clock=lambda: Moment(world.dates() / 1000, (world.dates() + skew_ms) / 1000)
        )
        metrics = CatalogMetrics(CollectorRegistry())
        self._catalog = RestCatalog(store, exporter, metrics, request_timeout_s=_EXPORT_TIMEOUT_S)
        stamp = WriterStamp(fresh_uuid=lambda: uuid.UUID(environment.fresh_id()))
        writing = Writing(session, self._catalog, _COMMIT_TIMEOUT_S, stamp)
        self._app = catalog_app(ServedCatalog(self._catalog, writing=write_routes(writing, in_place)))
        world.trace.note(name, "starts")

    def kill(self) -> None:
        """End between two steps of everything that it does, and start again some time later."""
        if self._app is None:
            return
        self.world.trace.note(self.name, "killed")
        self.kills += 1
        self._app = None
        self._running.clear()
        for request in self._requests:
            request.cancel()
        self.world.send(self._start_again())

    async def answer(self, method: str, path: str, body: bytes) -> Answer | None:
        """What it answers, or `None` if it has ended or ends meanwhile."""
        app, sent, received = self._app, list[Message](), [{"type": "http.request", "body": body}]
        if app is None:
            return None

        async def receive() -> Message:
            return received.pop() if received else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        is_doomed = method != "GET" and self.world.chance(_DOOMED)
        counted = _Request(self.kill, self.world.rng.randint(1, self._steps) if is_doomed else 0)
        context, running = copy_context(), cast(Coroutine[Any, Any, None], app(scope, receive, send))
        context.run(_REQUEST.set, counted)
        request = asyncio.get_running_loop().create_task(running, context=context)
        self._requests[request] = None
        request.add_done_callback(lambda done: self._requests.pop(done))
        await asyncio.wait({request})
        if request.cancelled():
            return None
        request.result()
        if method == "POST":
            self._steps = max(self._steps, counted.steps)
        status = next(each["status"] for each in sent if each["type"] == "http.response.start")
        text = b"".join(each.get("body", b"") for each in sent)
        self.world.trace.note(self.name, "answers", method, path, status)
        answered = Answer(status, json.loads(text) if text else {})
        if 400 <= status < 500 or status == _AWAY:
            self.refused.append(Refused(path, status, answered.body["error"]["message"], counted.records))
        return answered

    async def rest(self) -> None:
        """Wait until nobody asks it for anything."""
        while self._requests:
            await asyncio.wait(self._requests)

    async def close(self) -> None:
        """End, and stay so."""
        self._app = None
        for request in self._requests:
            request.cancel()
        await self._ended()

    async def _start_again(self) -> None:
        await self._ended()
        await asyncio.sleep(self.world.rng.expovariate(1 / 0.5))
        self.start()

    async def _ended(self) -> None:
        await asyncio.gather(*self._requests, return_exceptions=True)
        if self._catalog is not None:
            await self._catalog.close()


@dataclass(slots=True)
class Front:
    """What is between clients and catalogs: it loses requests and answers, doubles them, and answers by itself."""

    world: World
    catalogs: Sequence[Catalog]

    async def ask(
        self, method: str, path: str, asked: Any = None, *, doubles: bool = False, lies: bool = True
    ) -> Answer:
        """Send one request, and perhaps twice if it `doubles`. Raises `Lost`.

        `lies`: whether it may answer 503 by itself to what arrived.
        """
        world = self.world
        await asyncio.sleep(world.delay_s())
        fate = world.rng.random() / world.roughness if world.roughness else 1.0
        body = b"" if asked is None else json.dumps(asked).encode()
        if fate < 0.03:
            world.trace.note("request never arrives", path)
            raise Lost
        going = [self._sent(method, path, body)]
        if method != "GET" and 0.03 <= fate < 0.12:
            await asyncio.sleep(world.rng.expovariate(1 / 0.5))
            world.trace.note("answer lost", path, f"{fate:.3f}")
            if fate < 0.06:
                raise Lost
            return Answer(503 if fate < 0.08 and lies else 502 if fate < 0.10 else 504)
        if doubles and 0.12 <= fate < 0.18:
            await asyncio.sleep(world.rng.choice((0.0, 0.02, 0.5)))
            world.trace.note("request sent twice", path)
            going.append(self._sent(method, path, body))
        if doubles and 0.18 <= fate < 0.21:
            await asyncio.wait(going, timeout=world.rng.choice((0.5, 5.0)))
            if not going[0].done() or going[0].result() is None or world.chance(0.5):
                world.trace.note("nobody answers, so it is sent to the next one", path)
                going = [self._sent(method, path, body)]
        await asyncio.wait(going, timeout=_CLIENT_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        found = next((task.result() for task in going if task.done()), None)
        await asyncio.sleep(world.delay_s())
        if found is None:
            raise Lost
        if doubles and lies and found.status == _DONE and world.chance(LIES):
            world.trace.note("a success becomes a 503", path)
            return Answer(_AWAY)
        return found

    def _sent(self, method: str, path: str, body: bytes) -> asyncio.Task[Answer | None]:
        """To a catalog that runs, if there is one."""
        there = [catalog for catalog in self.catalogs if catalog.is_running] or self.catalogs
        return self.world.send(self.world.rng.choice(there).answer(method, path, body))

    async def disturb(self) -> None:
        """Kill one catalog after another, whatever it does, for ever."""
        while True:
            await asyncio.sleep(self.world.rng.expovariate(1 / 8.0))
            self.world.rng.choice(self.catalogs).kill()
