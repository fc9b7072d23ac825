"""An HTTP proxy that keeps what goes over the wire and can lose requests and replies at exact points.

Owns: the recording. Does not own: real delays and resets (`toxiproxy`).
Invariants: a request is recorded once it is whole, and nothing is sent to the client before that, so a client that
waits for `100 Continue` never gets on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum


class Fate(Enum):
    """What becomes of a request."""

    RELAYED = "relayed"
    REPLY_LOST = "reply_lost"  # the service has answered; the client's connection is closed instead
    REPLY_CUT = "reply_cut"  # the client gets the head of the reply and half of its body
    REQUEST_LOST = "request_lost"  # the service never sees it; the connection is closed
    SILENT = "silent"  # the service never sees it; nothing is said
    ANSWERED_503 = "answered_503"


@dataclass(frozen=True)
class RecordedRequest:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class RecordingProxy:
    """`fates` are used up one request at a time; afterwards everything is relayed."""

    upstream: tuple[str, int]
    fates: list[Fate] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    connections: int = 0
    endpoint: str = ""
    _silence: asyncio.Event = field(default_factory=asyncio.Event)

    def of_method(self, method: str) -> list[RecordedRequest]:
        """The requests of one method."""
        return [request for request in self.requests if request.method == method]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        self.connections += 1
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self.upstream)
            try:
                while await self._exchange(reader, writer, upstream_reader, upstream_writer):
                    pass
            finally:
                upstream_writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> bool:
        head, headers, body = await _message(reader)
        method, path = head.split(b"\r\n", 1)[0].decode().split(" ")[:2]
        self.requests.append(RecordedRequest(method, path, headers, body))
        fate = self.fates.pop(0) if self.fates else Fate.RELAYED
        if fate is Fate.REQUEST_LOST:
            return False
        if fate is Fate.SILENT:
            await self._silence.wait()
            return False
        if fate is Fate.ANSWERED_503:
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return True
        upstream_writer.write(head + body)
        await upstream_writer.drain()
        reply_head, _, reply_body = await _message(upstream_reader, bodiless=method == "HEAD")
        if fate is Fate.REPLY_LOST:
            return False
        if fate is Fate.REPLY_CUT:
            reply_body = reply_body[: len(reply_body) // 2]
        writer.write(reply_head + reply_body)
        await writer.drain()
        return fate is Fate.RELAYED

    def end_silence(self) -> None:
        """Close the connections of silent requests."""
        self._silence.set()


@asynccontextmanager
async def recording_proxy(upstream: tuple[str, int], *fates: Fate) -> AsyncIterator[RecordingProxy]:
    """A proxy to `upstream`; its endpoint is in `endpoint`."""
    proxy = RecordingProxy(upstream, list(fates))
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    proxy.endpoint = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.end_silence()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _message(reader: asyncio.StreamReader, *, bodiless: bool = False) -> tuple[bytes, dict[str, str], bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    assert "chunked" not in headers.get("transfer-encoding", ""), "this proxy knows Content-Length only"
    body = b"" if bodiless else await reader.readexactly(int(headers.get("content-length", 0)))
    return head, headers, body
