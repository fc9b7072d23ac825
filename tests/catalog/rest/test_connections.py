"""How many connections an HTTP server has, how long a client may take, and how often it is logged."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from rootline.catalog.rest.connections import ConnectionLimits, SeldomLines, connection_limits
from rootline.catalog.rest.http_settings import HttpSettings
from rootline.catalog.rest.serving import read_route, serve_app
from tests.services.kafka_certificates import make_certificates

FAR_S = 600.0
SOON_S = 0.05
LARGE = 48 << 20
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def here(_: Request) -> PlainTextResponse:
    return PlainTextResponse("here")


async def endless(_: Request) -> Response:
    async def portions() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)
            await asyncio.sleep(0)

    return StreamingResponse(portions())


async def large(_: Request) -> Response:
    return Response(bytes(LARGE))


@asynccontextmanager
async def serving(
    connections: int = 4, *, head_s: float = FAR_S, stalled_s: float = FAR_S, settings: HttpSettings | None = None
) -> AsyncIterator[tuple[str, int]]:
    app = Starlette(routes=[read_route("/healthz", here), read_route("/endless", endless), read_route("/large", large)])
    limits = ConnectionLimits(connections, head_s, stalled_s)
    async with (
        asyncio.timeout(60),
        serve_app(app, "127.0.0.1", 0, settings or HttpSettings(), limits=limits) as url,
    ):
        yield "127.0.0.1", int(url.rpartition(":")[2])


async def ended(client: Client) -> bool:
    """Read until the server closes; whether it does so without an answer."""
    reader, writer = client
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


async def test_idle_connections_take_no_more_than_their_limit_and_a_request_is_answered_beside_them() -> None:
    async with serving(connections=4) as at:
        idle = [await asyncio.open_connection(*at) for _ in range(12)]
        reader, writer = await asyncio.open_connection(*at)
        writer.write(GET)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert all(await asyncio.gather(*(ended(client) for client in idle[:9]))), "those that waited longest"
        for _, held in (*idle, (reader, writer)):
            held.close()


async def test_a_limit_holds_while_clients_do_not_even_negotiate_tls(tmp_path: Path) -> None:
    settings = HttpSettings(tls_certificate_file=make_certificates(tmp_path).key_store)
    async with serving(connections=2, settings=settings) as at:
        idle = [await asyncio.open_connection(*at) for _ in range(5)]
        assert all(await asyncio.gather(*(ended(client) for client in idle[:3])))
        for _, held in idle:
            held.close()
    async with serving(head_s=SOON_S, settings=settings) as at:
        assert await ended(await asyncio.open_connection(*at))


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nX:", GET[:-1]])
async def test_a_client_that_does_not_finish_the_head_of_its_request_is_disconnected(sent: bytes) -> None:
    async with serving(head_s=SOON_S) as at:
        client = await asyncio.open_connection(*at)
        client[1].write(sent)
        assert await ended(client)


async def test_a_client_that_drips_bytes_after_an_answer_is_disconnected() -> None:
    async with serving(head_s=SOON_S) as at:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(GET + b"GET /")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"HTTP/1.1") == 1
        writer.close()


async def test_one_connection_may_send_request_after_request() -> None:
    async with serving() as (host, port), httpx.AsyncClient(base_url=f"http://{host}:{port}") as client:
        for _ in range(3):
            assert (await client.get("/healthz")).text == "here"
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(GET * 3)
        for _ in range(3):
            await reader.readuntil(b"here")
        writer.close()


async def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    async with serving(connections=1, stalled_s=SOON_S) as at:
        reader, writer = await asyncio.open_connection(*at, limit=1 << 16)
        writer.write(GET.replace(b"/healthz", b"/endless"))
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        while True:  # its place is free when the server has given it up
            try:
                other, asking = await asyncio.open_connection(*at)
                asking.write(GET)
                answered = (await other.readline()).startswith(b"HTTP/1.1 200")
            except ConnectionError:
                answered = False
            asking.close()
            if answered:
                break
        writer.transport.abort()


async def test_a_client_that_takes_a_large_answer_slowly_gets_all_of_it() -> None:
    async with serving(head_s=2 * SOON_S, stalled_s=20 * SOON_S) as at:
        reader, writer = await asyncio.open_connection(*at, limit=1 << 16)
        writer.write(GET.replace(b"/healthz", b"/large"))
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(12):  # in all longer than any one wait
            assert await ended(await asyncio.open_connection(*at))
            await reader.readexactly(LARGE // 16)
        assert len(await reader.readexactly(LARGE - 12 * (LARGE // 16))) > 0
        writer.close()


async def test_clients_that_take_nothing_make_room_for_a_request() -> None:
    async with serving(connections=3) as at:
        slow = [await asyncio.open_connection(*at, limit=1 << 16) for _ in range(3)]
        for reader, writer in slow:
            writer.write(GET.replace(b"/healthz", b"/endless"))
            await reader.readuntil(b"\r\n\r\n")
            reader._transport.pause_reading()  # type: ignore[attr-defined]
        answered = b""
        while not answered.startswith(b"HTTP/1.1 200"):  # until all of them have filled what the system buffers
            reader, writer = await asyncio.open_connection(*at)
            writer.write(GET)
            with suppress(ConnectionError):
                answered = await reader.readline()
            writer.close()
        for _, writer in slow:
            writer.transport.abort()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_damage_after_a_request_is_not_logged_for_each_client(
    is_answered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as at:
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*at)
            writer.write(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            if is_answered:
                assert (await reader.readline()).startswith(b"HTTP/1.1 405")
            writer.write(b"ZZZ\r\n")
            assert b"Traceback" not in await reader.read()
            writer.close()
    assert [record for record in caplog.records if record.exc_info] == []


def test_connections_leave_most_descriptors_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    for descriptors, connections in ((1024, 256), (100_000, 512), (32, 16), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, own=descriptors: (own, own))
        assert connection_limits().connections == connections


def test_a_line_that_strangers_cause_is_logged_once_a_minute() -> None:
    now = [0.0]
    lines = SeldomLines(lambda: now[0])

    def passes(text: str, *args: object) -> bool:
        return lines.filter(logging.LogRecord("x", logging.WARNING, "x", 1, text, args, None))

    assert [passes("more than %d", 1), passes("more than %d", 2), passes("other")] == [True, False, True]
    now[0] = 61.0
    assert passes("more than %d", 3)
