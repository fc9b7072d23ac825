"""The connections of an HTTP server, limited in number and in time, and the names of this machine.

Owns: accepting, the limit of open connections, time-outs of slow clients, the rate of the server library's log lines,
and the check whether a request at a loopback address names this machine. Does not own: requests and responses
(`serving`), the library's HTTP parsing (uvicorn's `H11Protocol`).
Invariants: the descriptors of connections, TLS negotiations included, are at most a quarter of the process's limit. A
client that has sent a whole request is served before one that only keeps a connection open, or reads its response
slowly. Every wait for a client has a time-out. A client that reads its response, however slowly, gets all of it unless
others need its place (decision 0108).

Theory. The library limits requests, not connections: it accepts every connection, and a client that sends a byte now
and then stays forever. So connections are accepted here, and counted from their first moment. If there is no room, the
connection that has waited longest without a whole request is closed for the new one. If there is none, one whose
response waits for its client is closed. So a probe or a scrape, which sends its request immediately and reads a short
response, is served however many connections others keep open. The library considers a response finished when the
transport has it, so the transport's buffer shows how much the client has read. A browser connects to an address of this
machine for every name that a page's DNS server maps to it ("DNS rebinding"). So the host name in a request shows
whether a foreign page sent it. A page may also send a POST to the address itself, which its `Origin` shows. The
operator decides whether to open other addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, ip_address
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

FOREIGN: Final = (
    "without a token this server responds at its loopback address only under a name of this machine, and to no page of "
    "another: use localhost, or set ROOTLINE_HTTP__TOKEN"
)


def is_foreign(scope: Scope) -> bool:
    """Whether a request arrived at a loopback address under a name that is not this machine's, or from a web page that
    is not.

    A request without a name is not foreign, because no browser sends one. A browser names the page in `Origin` with
    every request that another origin's page sends and that is more than a plain read.
    """
    server, headers = scope.get("server") or ("", None), Headers(scope=scope)
    hosts = [named_host(scope)] if "host" in headers else []
    hosts += map(_host_in, headers.getlist("origin"))
    return is_loopback(str(server[0])) and not all(map(is_loopback, hosts))


def named_host(scope: Scope) -> str:
    """The host in a request, without its port, or empty if there is no readable host."""
    return _host_in(f"//{Headers(scope=scope).get('host', '')}")


def _host_in(url: str) -> str:
    """The host in a URL, or empty if there is no readable host."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether this name or address can only mean this machine."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


_MOST: Final = 512
_LEAST: Final = 16
_SHARE: Final = 4
_BACKLOG: Final = 128
_AGAIN_S: Final = 1.0
_TAKEN_BYTES: Final = 64 << 10
_SAME_LINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The maximum number of a server's connections, and time-outs in seconds.

    `head_s`: for TLS, and for the head of each request. `stalled_s`: for a client to read 64 KB of a response.
    """

    connections: int
    head_s: float = 10.0
    stalled_s: float = 30.0


def connection_limits() -> ConnectionLimits:
    """The limits of this process, from its maximum number of open descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = _MOST if descriptors == resource.RLIM_INFINITY else descriptors // _SHARE
    return ConnectionLimits(max(_LEAST, min(_MOST, share)))


class SeldomLines(logging.Filter):
    """A filter that logs a line with the same text once a minute, because any client can cause such lines."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged. The library has few texts, and none contains data from a client."""
        now_s, text = self._clock(), str(record.msg)
        if now_s - self._said.get(text, -_SAME_LINE_S) < _SAME_LINE_S:
            return False
        self._said[text] = now_s
        return True


_LOGGER: Final = logging.getLogger("rootline.http")
_LOGGER.addFilter(SeldomLines())


class Connection(H11Protocol):
    """A connection of the library that closes if its client is too slow."""

    limits: ConnectionLimits
    on_lost: Callable[[Connection], None]
    _head: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _left_bytes: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being processed."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a request nor a response that the client still reads."""
        return self.is_waiting and not self.is_taking

    @property
    def is_taking(self) -> bool:
        """Whether a response waits for its client to read it."""
        return self._stalled is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time-out for the client's first request."""
        super().connection_made(transport)
        self.logger = _LOGGER
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Receive part of a request, and end the time-out for its head once it is complete."""
        super().data_received(data)
        if not self.is_waiting and self._head is not None:
            self._head.cancel()
            self._head = None

    def on_response_complete(self) -> None:
        """Start the time-out for the client's next request."""
        self._await_head()
        super().on_response_complete()  # this may start the next request immediately
        if not self.is_waiting and self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        """Start the time-out for a client that reads less than it is sent."""
        super().pause_writing()
        if self._stalled is None:
            self._await_taking()

    def resume_writing(self) -> None:
        """Stop the time-out of `pause_writing`, after the client has read most of the buffer."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time-outs of a closed connection."""
        for timer in (self._head, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.on_lost(self)

    def send_400_response(self, msg: str) -> None:
        """Respond to a malformed request, or close the connection if a response has already begun."""
        if not self.is_waiting:
            self.cycle.disconnected = True  # the application's own response is discarded
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def end(self) -> None:
        """Close immediately."""
        self.transport.abort()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self.limits.head_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head = None
        if self.is_taking:  # it still reads the previous response
            self._await_head()
        else:
            self.transport.abort()

    def _await_taking(self) -> None:
        self._left_bytes = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self.limits.stalled_s, self._taking_is_late)

    def _taking_is_late(self) -> None:
        if self.transport.get_write_buffer_size() + _TAKEN_BYTES > self._left_bytes:
            self.transport.abort()
        else:
            self._await_taking()


class _Negotiating:
    """An accepted connection that may be negotiating TLS. `is_owned`: an asyncio transport will close it."""

    is_owned = False
    task: asyncio.Task[None]

    def end(self) -> None:
        """Close immediately."""
        self.task.cancel()


class Acceptor:
    """The replacement of asyncio's server. `make` creates a connection of the library."""

    def __init__(
        self,
        listener: socket.socket,
        limits: ConnectionLimits,
        make: Callable[[], Connection],
        context: ssl.SSLContext | None,
    ) -> None:
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._listener = listener
        self._limits = limits
        self._make = make
        self._context = context
        self._open: dict[Connection | _Negotiating, None] = {}  # in the order of their arrival
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="rootline http")

    def close(self) -> None:
        """Stop accepting, and close connections that are still negotiating."""
        self._accepting.cancel()
        for pending in list(self._open):
            if isinstance(pending, _Negotiating):
                pending.end()

    async def wait_closed(self) -> None:
        """Wait until accepting and negotiating have ended."""
        tasks = [pending.task for pending in self._open if isinstance(pending, _Negotiating)]
        await asyncio.wait([self._accepting, *tasks])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # no descriptors, no memory, or the client has disconnected
                _LOGGER.warning("no connection was accepted: %s", error.strerror)
                await asyncio.sleep(_AGAIN_S)
                continue
            if len(self._open) >= self._limits.connections and not self._made_room():
                accepted.close()
            else:
                self._open[pending := _Negotiating()] = None
                pending.task = loop.create_task(self._negotiate(pending, accepted))
                pending.task.add_done_callback(partial(self._negotiated, pending, accepted))
            await asyncio.sleep(0)  # let other tasks run after each connection

    def _made_room(self) -> bool:
        """Close the connection that has waited longest without a whole request, else one that reads its response
        slowly.

        Returns whether there was one.
        """
        idle = (pending for pending in self._open if isinstance(pending, _Negotiating) or pending.is_idle)
        slow = (pending for pending in self._open if isinstance(pending, Connection) and pending.is_taking)
        chosen = next(idle, None) or next(slow, None)
        if chosen is None:
            _LOGGER.warning("more than %d concurrent requests: new connections are refused", self._limits.connections)
            return False
        del self._open[chosen]
        chosen.end()
        _LOGGER.warning("more than %d connections: those that wait longest are closed", self._limits.connections)
        return True

    async def _negotiate(self, pending: _Negotiating, accepted: socket.socket) -> None:
        def made() -> Connection:
            pending.is_owned = True
            connection = self._make()
            connection.limits, connection.on_lost = self._limits, self._forget
            return connection

        patience_s = None if self._context is None else self._limits.head_s
        with contextlib.suppress(OSError):  # an error or a time-out of TLS is an OSError too
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                made, accepted, ssl=self._context, ssl_handshake_timeout=patience_s
            )
            if not connection.transport.is_closing():
                self._open[connection] = None

    def _negotiated(self, pending: _Negotiating, accepted: socket.socket, _: asyncio.Task[None]) -> None:
        self._open.pop(pending, None)
        if not pending.is_owned:
            accepted.close()

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)
