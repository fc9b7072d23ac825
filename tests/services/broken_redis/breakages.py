"""What is done to a Valkey while others use it, and how it is undone.

Owns: one function for each breakage. Does not own: when they are used, what must hold meanwhile (`ingest`).
Invariants: `mend` leaves a server that runs and takes writes; what was poisoned stays so until it is flushed or killed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

import redis

from rootline.adapters.redis_calls import LakeKeys
from rootline.schemas.identifiers import TableName
from tests.services.valkey_service import ValkeyServer

_VERSIONS: Final = (b"", b"-1", b"0", b"3", b"999999999", b"9" * 400, b"nonsense", b"\xff\xfe")
_FIELDS: Final = (
    b"1-1",
    b"9999999999999 nobody",
    b"99999999999999999 nobody",
    b"0 0",
    b"\x00" * 100,
    b"1 1 1",
    b"a b c",
)
_LOOKS: Final = ("root", "leaves", "rows", "history", "of none", "")


class Valkey:
    """A server, and the keys of one lake in it."""

    def __init__(self, server: ValkeyServer, url: str, keys: LakeKeys, tables: tuple[TableName, ...]) -> None:
        self._server, self._url, self._keys, self._tables = server, url, keys, tables
        self._rng = random.Random(7)
        self._undo: Callable[[], None] | None = None

    def mend(self) -> None:
        """Undo what was done."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def kill(self) -> None:
        """It is gone until it is mended."""
        if self._undo is None:
            self._server.kill()
            self._undo = self._server.start_again

    def hang(self) -> None:
        """It takes connections, and answers nothing."""
        if self._undo is None:
            self._server.hang()
            self._undo = self._server.go_on

    def forget(self) -> None:
        """Everything that it held is gone, again and again."""
        with self._client() as client:
            client.flushall()

    def fill_up(self) -> None:
        """It answers reads, and refuses every write for want of memory."""
        if self._undo is None:
            self._configure("1")
            self._undo = lambda: self._configure("0")

    def lie(self) -> None:
        """Values of the right type that no process of ours has written, and others that one may have."""
        choose = self._rng.choice
        with self._client() as client:
            for table in self._tables:
                client.set(self._keys.head(table), choose(_VERSIONS))
            for key in (self._keys.queued, self._keys.leases, self._keys.done, self._keys.dead):
                if client.type(key) not in (b"hash", b"none"):
                    client.delete(key)
                for table in self._tables:
                    client.hset(key, f"{choose(_LOOKS)} {table}", choose(_FIELDS))
            if client.type(self._keys.tasks) not in (b"stream", b"none"):
                client.delete(self._keys.tasks)
            client.xadd(self._keys.tasks, {choose(_FIELDS): choose(_VERSIONS)})
            named = {"kind": choose(_LOOKS), "table": choose(self._tables), "version": choose(_VERSIONS)}
            client.xadd(self._keys.tasks, named)

    def confuse(self) -> None:
        """Every key has a value of another type."""
        with self._client() as client:
            keys = self._keys
            for key in (keys.tasks, keys.queued, keys.leases, keys.done, keys.dead, *map(keys.head, self._tables)):
                client.delete(key)
                if self._rng.random() < 0.5:
                    client.lpush(key, b"of another type")
                elif key in (keys.tasks, keys.queued):
                    client.set(key, b"of another type")
                else:
                    client.sadd(key, b"of another type")

    def _configure(self, memory: str) -> None:
        with self._client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", memory)

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self._url, socket_timeout=10)


BREAKAGES: Final[Mapping[str, Callable[[Valkey], None]]] = {
    "killed": Valkey.kill,
    "hung": Valkey.hang,
    "wrong values": Valkey.lie,
    "wrong types": Valkey.confuse,
    "flushed": Valkey.forget,
    "out of memory": Valkey.fill_up,
}
"""Each is done again and again until the server is mended."""
