"""The connections of an HTTP server, limited in number and in time, and the names of this machine.

Owns: accepting, the limit of open connections, time-outs of slow clients, the rate of the server library's log lines,
and whether a request that arrives at a loopback address names this machine. Does not own: requests and responses
(`serving`), the library's reading of HTTP (uvicorn's `H11Protocol`).
Invariants: the descriptors of connections, TLS negotiations included, are at most a quarter of the process's limit. A
client that has sent a whole request is answered before one that only keeps a connection, or reads its answer slowly.
No wait for a client is endless. A client that reads its answer, however slowly, gets all of it unless others need its
place (decision 0108).

Theory. The library limits requests, not connections: it accepts every one, and a client that sends a byte now and then
stays for ever. So accepting is done here, where a connection is counted from its first moment. When there is no room,
the connection that has waited longest without a whole request is closed for the new one, and if there is none, one
whose answer waits for its client: a probe or a scrape sends its request at once and reads a short answer, and is
served however many connections others keep open. The library is done with an answer when the transport has it, so the
transport is asked how much its client has read.

A browser asks an address of this machine for every name that a page's DNS server gives it ("DNS rebinding"). So the
host that a request names shows whether a foreign page sent it. Requests at other addresses are the operator's to open
or not.
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
    "without a token this server answers at its loopback address only under a name of this machine: ask for localhost, "
    "or set ROOTLINE_HTTP__TOKEN"
)


def is_foreign(scope: Scope) -> bool:
    """Whether a request arrived at a loopback address under a name that is not this machine's.

    A request without a name is not: no browser sends one.
    """
    server = scope.get("server") or ("", None)
    names_host = "host" in Headers(scope=scope)
    return names_host and is_loopback(str(server[0])) and not is_loopback(named_host(scope))


def named_host(scope: Scope) -> str:
    """The host that a request names, without its port, or empty if it names no host that can be read."""
    try:
        return urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether this is a name or an address of this machine that no other can have."""
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
    """The number of a server's connections, and the seconds that a client may take.

    `head_s`: for TLS, and for the head of each request. `stalled_s`: for 64 KB of an answer.
    """

    connections: int
    head_s: float = 10.0
    stalled_s: float = 30.0


def connection_limits() -> ConnectionLimits:
    """Those of this process, by the number of descriptors that it may have open."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = _MOST if descriptors == resource.RLIM_INFINITY else descriptors // _SHARE
    return ConnectionLimits(max(_LEAST, min(_MOST, share)))


class SeldomLines(logging.Filter):
    """Lets a line of the same text pass once a minute: strangers cause them."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged. The library's texts are few, and none has anything of a client's in it."""
        now_s, text = self._clock(), str(record.msg)
        if now_s - self._said.get(text, -_SAME_LINE_S) < _SAME_LINE_S:
            return False
        self._said[text] = now_s
        return True


_LOGGER: Final = logging.getLogger("rootline.http")
_LOGGER.addFilter(SeldomLines())


class Connection(H11Protocol):
    """A connection of the library that ends when its client is too slow."""

    limits: ConnectionLimits
    gone: Callable[[Connection], None]
    _head: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _left_bytes: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a request nor an answer that its client takes."""
        return self.is_waiting and not self.is_taking

    @property
    def is_taking(self) -> bool:
        """Whether an answer waits for its client to take it."""
        return self._stalled is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client has so long for its first request."""
        super().connection_made(transport)
        self.logger = _LOGGER
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Receive part of a request, and end the wait for its head once all of it is there."""
        super().data_received(data)
        if not self.is_waiting and self._head is not None:
            self._head.cancel()
            self._head = None

    def on_response_complete(self) -> None:
        """The client has so long for its next request."""
        self._await_head()
        super().on_response_complete()  # which may take the next request at once
        if not self.is_waiting and self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        if self._stalled is None:
            self._await_taking()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        for timer in (self._head, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.gone(self)

    def send_400_response(self, msg: str) -> None:
        """Answer damage in a request, if it has no answer yet: what follows an answer ends the connection."""
        if not self.is_waiting:
            self.cycle.disconnected = True  # the application's own answer goes nowhere
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def end(self) -> None:
        """Close at once."""
        self.transport.abort()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self.limits.head_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head = None
        if self.is_taking:  # the answer before
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
    """A connection that is accepted, and perhaps negotiates TLS. `is_owned`: a transport of asyncio closes it."""

    is_owned = False
    task: asyncio.Task[None]

    def end(self) -> None:
        """Close at once."""
        self.task.cancel()


class Acceptor:
    """In the place of asyncio's server. `make`: a connection of the library."""

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
        self._open: dict[Connection | _Negotiating, None] = {}  # in the order in which they came
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="rootline http")

    def close(self) -> None:
        """Accept no more, and end what is not yet a connection."""
        self._accepting.cancel()
        for held in list(self._open):
            if isinstance(held, _Negotiating):
                held.end()

    async def wait_closed(self) -> None:
        """Until that has ended."""
        tasks = [held.task for held in self._open if isinstance(held, _Negotiating)]
        await asyncio.wait([self._accepting, *tasks])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # no descriptors, no memory, or the client has gone again
                _LOGGER.warning("no connection was accepted: %s", error.strerror)
                await asyncio.sleep(_AGAIN_S)
                continue
            if len(self._open) >= self._limits.connections and not self._made_room():
                accepted.close()
            else:
                self._open[held := _Negotiating()] = None
                held.task = loop.create_task(self._negotiate(held, accepted))
                held.task.add_done_callback(partial(self._negotiated, held, accepted))
            await asyncio.sleep(0)  # where many wait, a turn for all others after each

    def _made_room(self) -> bool:
        """End the connection that has waited longest without a whole request, else one that takes its answer slowly.

        Returns whether there was one.
        """
        idle = (held for held in self._open if isinstance(held, _Negotiating) or held.is_idle)
        slow = (held for held in self._open if isinstance(held, Connection) and held.is_taking)
        chosen = next(idle, None) or next(slow, None)
        if chosen is None:
            _LOGGER.warning("more than %d requests at once: new connections are refused", self._limits.connections)
            return False
        del self._open[chosen]
        chosen.end()
        _LOGGER.warning("more than %d connections: those that wait longest end", self._limits.connections)
        return True

    async def _negotiate(self, held: _Negotiating, accepted: socket.socket) -> None:
        def made() -> Connection:
            held.is_owned = True
            connection = self._make()
            connection.limits, connection.gone = self._limits, self._forget
            return connection

        patience_s = None if self._context is None else self._limits.head_s
        with contextlib.suppress(OSError):  # an error of TLS, or no end of it in time, is one too
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                made, accepted, ssl=self._context, ssl_handshake_timeout=patience_s
            )
            if not connection.transport.is_closing():
                self._open[connection] = None

    def _negotiated(self, held: _Negotiating, accepted: socket.socket, _: asyncio.Task[None]) -> None:
        self._open.pop(held, None)
        if not held.is_owned:
            accepted.close()

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)
