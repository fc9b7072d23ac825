"""When each object was put, how large it was, and how long the store took: written down beside the requests.

Owns: a store that notes its PUTs, and reading the notes. Does not own: the store.
Invariants: times are of the machine's monotonic clock, so that processes of one machine can compare them; a request is
passed on unchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, PutStatus, StoredObject
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import roots_prefix, version_of_root_key


@dataclass(frozen=True, slots=True)
class Put:
    """One PUT that created an object, seconds of the monotonic clock."""

    key: str
    began_s: float
    ended_s: float
    size: int


@dataclass(slots=True)
class TracingStore:
    """Notes every PUT that created something, in memory, and as a line of `notes` if there is one."""

    store: ObjectStore
    notes: IO[str] | None = None
    puts: list[Put] = field(default_factory=list)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        return await self.store.get(key)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        began_s = time.monotonic()
        reply = await self.store.put_if_absent(key, body, after=after)
        ended_s = time.monotonic()
        if reply.answer is PutStatus.CREATED:
            if self.notes is None:
                self.puts.append(Put(key, began_s, ended_s, len(body)))
            else:
                self.notes.write(json.dumps([key, began_s, ended_s, len(body)]) + "\n")
        return reply

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        return await self.store.list(prefix, limit=limit)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        return await self.store.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        return await self.store.folders(prefix)

    async def close(self) -> None:
        await self.store.close()


def read_notes(file: Path) -> list[Put]:
    """The PUTs noted so far; a line that is still being written does not count."""
    lines = file.read_text().split("\n")[:-1]
    return [Put(*json.loads(line)) for line in lines]


def roots_of(table: TableName, puts: Iterable[Put]) -> dict[int, Put]:
    """The PUT of each version of `table`."""
    prefix = roots_prefix(table)
    found = ((version_of_root_key(put.key), put) for put in puts if put.key.startswith(prefix))
    return {int(version): put for version, put in found if version is not None}
