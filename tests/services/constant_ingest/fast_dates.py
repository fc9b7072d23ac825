"""An HTTP proxy before an S3 store: the dates that the store tells run as fast as a clock says.

Owns: `Date`, `Last-Modified` and the dates in listings. Does not own: the clock, everything else that goes through.
Invariants: a date is what the clock said when the proxy saw the answer to the PUT that made the object, so it is exact
where the store's own is of a second; a PUT that made nothing dates nothing; what was stored before has the store's own
date, by the clock; requests and bodies go through unchanged.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tests.services.constant_ingest.fast_clock import FastClock
from tests.services.service_process import HOST, ServiceProcess, free_port

if TYPE_CHECKING:
    from tests.services.s3_service import S3Service

_LIMIT: Final = 1 << 20
_ENTRY: Final = re.compile(rb"<Contents>(.*?)</Contents>", re.DOTALL)
_DATE: Final = re.compile(rb"<LastModified>(.*?)</LastModified>")
_KEY: Final = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_DATES: Final = re.compile(rb"\r\n(date|last-modified|content-length): *([^\r\n]*)", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class FastDates:
    """The proxy: `serve` is one connection of a client."""

    def __init__(self, upstream: tuple[str, int], clock: FastClock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._stored: dict[str, float] = {}
        """The real moment of each object, by its path, milliseconds."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one of both sides ends."""
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream, limit=_LIMIT)
            try:
                while True:
                    await self._exchange(reader, writer, upstream_reader, upstream_writer)
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
    ) -> None:
        head, body = await _message(reader)
        method, target = head.split(b"\r\n", 1)[0].decode().split(" ")[:2]
        upstream_writer.write(head + body)
        await upstream_writer.drain()
        head, body = await _message(upstream_reader, bodiless=method == "HEAD")
        now_ms = time.time() * 1000
        parts = urlsplit(target)
        path = unquote(parts.path)
        if method == "PUT" and head[9:12] == b"200":
            self._stored[path] = now_ms
        if method == "GET" and "list-type=2" in parts.query:
            body = _ENTRY.sub(lambda found: self._entry(path, found), body)
        writer.write(self._dated(head, path, now_ms, None if method == "HEAD" else len(body)) + body)
        await writer.drain()

    def _dated(self, head: bytes, path: str, now_ms: float, length: int | None) -> bytes:
        def dated(found: re.Match[bytes]) -> bytes:
            name = found[1].lower()
            if name == b"content-length":
                return found[0] if length is None else b"\r\n%b: %d" % (found[1], length)
            stated_ms = parsedate_to_datetime(found[2].decode()).timestamp() * 1000
            moment = now_ms if name == b"date" else self._stored.get(path, stated_ms)
            return b"\r\n%b: %b" % (found[1], formatdate(self._clock.at(moment) / 1000, usegmt=True).encode())

        return _DATES.sub(dated, head)

    def _entry(self, bucket: str, found: re.Match[bytes]) -> bytes:
        key, date = _KEY.search(found[0]), _DATE.search(found[0])
        assert key is not None, found[0]
        assert date is not None, found[0]
        path = f"{bucket.rstrip('/')}/{unquote(unescape(key[1].decode()))}"
        stated_ms = datetime.fromisoformat(date[1].decode()).timestamp() * 1000
        moment = datetime.fromtimestamp(self._clock.at(self._stored.get(path, stated_ms)) // 1000, UTC)
        said = f"<LastModified>{moment:%Y-%m-%dT%H:%M:%S}Z</LastModified>".encode()
        return _DATE.sub(said, found[0])


async def _message(reader: asyncio.StreamReader, *, bodiless: bool = False) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"chunked" not in head.lower(), "this proxy knows Content-Length only"
    length = _LENGTH.search(head)
    if bodiless or length is None:
        return head, b""
    return head, await reader.readexactly(int(length[1]))


async def serve_until_killed(clock: Path, host: str, port: int, listen: int) -> None:
    """A proxy before `host:port`."""
    dates = FastDates((host, port), FastClock(clock))
    server = await asyncio.start_server(dates.serve, HOST, listen, limit=_LIMIT)
    async with server:
        await server.serve_forever()


@contextmanager
def running_fast_dates(s3: S3Service, clock: FastClock, log: Path) -> Iterator[str]:
    """The endpoint of a proxy before the store, a process of its own."""
    port, (host, upstream) = free_port(), s3.address
    proxy = ServiceProcess([sys.executable, "-m", __name__, clock.path, host, str(upstream), str(port)], log)
    try:
        proxy.wait_ready(port)
        yield f"http://{HOST}:{port}"
    finally:
        proxy.stop()


if __name__ == "__main__":
    asyncio.run(serve_until_killed(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
