"""Performs the store requests of the commit machine (its effects), and reports each outcome as an event.

Owns: the translation effect → store requests → event, with a deadline around each, the comparison of a head (the
newest root) with the log, the thread that encodes leaves when a root is too long. Does not own: the reaction to an
event (`rootline.coordinator.protocol.commit`), the order of verdicts (`table_loop`), the contents of leaves
(`rootline.maintenance.flush_plan`), the decision to encode them (`rootline.coordinator.protocol.held_rules`).
Invariants:

* Every effect yields exactly one event, whatever fails, so an error in one table cannot stop the others.
* An interrupted PUT is NO_ANSWER, never a failure.
* Corrupt bytes are distinguished from an unavailable store. They are reported as corrupt only after a second read,
  because a truncated response looks the same.
* A head is refused if the log ends before the last record that the head has decided, or if another record is at that
  offset. The check is skipped if retention has removed the record, or if this reader cannot read it.
* Leaves are encoded for one table at a time in the whole process. No single call blocks the interpreter for more than
  some milliseconds. No caller waits longer than the deadline, and the encoding stops when its caller stops waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from typing_extensions import override

from rootline.coordinator.protocol.commit import decided_of
from rootline.coordinator.protocol.messages import (
    EncodeLeaves,
    EncodingFailed,
    Event,
    Fetch,
    Fetched,
    HeadListed,
    HeadLoaded,
    LeavesEncoded,
    ListHead,
    LoadFailed,
    LoadHead,
    ObjectsStored,
    PutReplied,
    PutRoot,
    ReadBack,
    RequestFailed,
    RootReadBack,
    StoreObjects,
)
from rootline.coordinator.runtime.table.object_fetcher import LeavesAhead, fetch_objects
from rootline.library_log import library_logger
from rootline.maintenance.flush_plan import flush_in_steps
from rootline.ports.head_hints import NO_HINTS, HeadHints
from rootline.ports.intent_feed import IntentFeed, Partition
from rootline.ports.object_store import ObjectStore, PutReply, PutStatus
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.errors import Corrupt, Fenced, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.object_keys import key_of
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.read_cache import hinted_reads
from rootline.storage.metadata.root_reader import HeadKey, at_head, find_head
from rootline.storage.metadata.table_loader import load_to_build_on
from rootline.storage.stored_objects import TimedReads, store_object
from rootline.tree.commit.verdicts import is_last_decided, log_went_back
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.state.table_state import PendingObject, TableState

_READER: Final = "\0marks"
"""The reader's name. It is not a valid table name."""


class LogCheck:
    """Compares heads with the log, for all tables of one process. They share one reader, so the reads take turns."""

    def __init__(self, log: IntentFeed) -> None:
        self._log = log
        self._turn = asyncio.Lock()

    async def check(self, header: RootHeader, decided: Collection[Partition]) -> None:
        """Check that the log has not lost records that the head has decided.

        The log must reach every offset in the head. In the `decided` partitions, the record at the last decided offset
        must be the one that the head has decided.

        Raises:
            Fenced: `log-behind-root`. Unavailable: the log does not answer.
        """
        for log, partition, applied in header.log.offsets:
            end = await self._log.end_offset(log, partition)
            if end is None:
                continue
            last = LogPosition(log, partition, applied - 1)
            if applied > end:
                raise Fenced("log-behind-root", log_went_back(header, last, end))
            if (log, partition) in decided:
                await self._compare(header, last)

    async def _compare(self, header: RootHeader, position: LogPosition) -> None:
        if header.log.mark_at(position.log, position.partition) is None:
            return
        try:
            async with self._turn:
                found = (await self._log.read_again(_READER, PartitionOffset(*position), limit=1)).records
        except Fenced as error:
            if error.code != "offset-out-of-range":
                raise
            return
        same = [raw for raw in found if raw.position == position]
        if same and same[0].not_read:
            return
        if not same or not is_last_decided(header, position, same[0].value, same[0].appended_ms):
            raise Fenced("log-behind-root", log_went_back(header, position))


ENCODING_S_MAX: Final = 300.0
"""Deadline of one table, with its wait for other tables: fifty times as long as 50,000 entries take when idle."""
_PAUSE_S: Final = 0.002


class LeafEncoder(Protocol):
    """Makes the leaves for the effect `EncodeLeaves`."""

    async def encode(self, head: TableState) -> OwnFlush:
        """Encode leaves for the rows of `head`. The result is empty when no row can move to a leaf.

        Raises:
            TimeoutError: it took too long.
            RootlineError: the table cannot be planned or encoded.
        """
        ...


class ThreadLeafEncoder(LeafEncoder):
    """Encodes leaves on a thread, for one table at a time. A process has one encoder."""

    def __init__(self, encoding_s_max: float = ENCODING_S_MAX) -> None:
        self._encoding_s_max = encoding_s_max
        self._one_at_a_time = asyncio.Lock()

    @override
    async def encode(self, head: TableState) -> OwnFlush:
        is_over = threading.Event()
        try:
            async with asyncio.timeout(self._encoding_s_max), self._one_at_a_time:
                return await asyncio.to_thread(_encode, head, is_over)
        finally:
            is_over.set()


def _encode(head: TableState, is_over: threading.Event) -> OwnFlush:
    steps = flush_in_steps(head)
    while not is_over.is_set():
        try:
            next(steps)
        except StopIteration as end:
            found: OwnFlush = end.value
            return found
        time.sleep(_PAUSE_S)
    return OwnFlush()


StoreEffect = LoadHead | Fetch | StoreObjects | PutRoot | ReadBack | ListHead | EncodeLeaves
HeadCheck = Callable[[RootHeader, Collection[Partition]], Awaitable[None]]
"""Raises `Fenced` if the log lacks records that the head has decided, or has others in these partitions."""


ConfirmedVersion = Callable[[TableName], Awaitable[int | None]]
"""The highest version of a table that is known to have been confirmed."""


StillOwner = Callable[[], Awaitable[None]]
"""Raises `Unavailable` unless this coordinator still owns the partitions of the delivered records."""


async def always_owner() -> None:
    """Pass every check of ownership. For a process without other coordinators."""


async def nothing_confirmed(_: TableName) -> int | None:
    """`None`, for a log that has no record of confirmed versions."""
    return None


@dataclass(frozen=True, slots=True)
class EffectRunner:
    """The store requests of one table.

    `timeout_s` is the deadline of an effect, or of each of its requests if the effect makes many. `encoder` is shared
    by the process, and has its own deadline.
    """

    store: ObjectStore
    table: TableName
    timeout_s: float
    check_head: HeadCheck
    encoder: LeafEncoder = field(default_factory=ThreadLeafEncoder)
    confirmed_version: ConfirmedVersion = nothing_confirmed
    still_owner: StillOwner = always_owner
    hints: HeadHints = NO_HINTS

    async def run(self, effect: StoreEffect, ahead: LeavesAhead | None = None) -> Event:
        """Carry out `effect`, and return the event with its outcome. Raises only on cancellation.

        `ahead`: prefetched leaves and checked files.
        """
        try:
            async with asyncio.timeout(None if isinstance(effect, LoadHead | Fetch | EncodeLeaves) else self.timeout_s):
                try:
                    return await self._carry_out(effect, ahead)
                except Corrupt:
                    return await self._carry_out(effect, ahead)
        except TimeoutError:
            return _failed(
                effect,
                "it took too long" if isinstance(effect, EncodeLeaves) else f"no answer within {self.timeout_s} s",
            )
        except (Unavailable, OutcomeUnknown) as error:
            return _failed(effect, str(error))
        except RootlineError as error:
            return (
                LoadFailed(True, str(error)) if isinstance(effect, LoadHead | ReadBack) else _failed(effect, str(error))
            )
        except Exception as error:  # our bug or a store adapter's: the table retries, other tables continue
            library_logger().exception("request failed", action="retry", table=self.table)
            return _failed(effect, f"{type(error).__name__}: {error}")

    async def _carry_out(self, effect: StoreEffect, ahead: LeavesAhead | None) -> Event:
        match effect:
            case LoadHead():
                return await self._load_head(effect)
            case Fetch():
                return Fetched(await fetch_objects(self._timed, self.table, effect.needs, ahead))
            case StoreObjects():
                for item in effect.objects:
                    await self._store_object(item)
                return ObjectsStored()
            case PutRoot():
                reply = await self.store.put_if_absent(effect.key, effect.body, after=effect.after)
                if effect.version == 0 and reply.answer is PutStatus.CREATED:
                    await self._seen_first()
                return PutReplied(reply)
            case ReadBack():
                return await self._read_back(effect)
            case EncodeLeaves():
                return LeavesEncoded(await self.encoder.encode(effect.head))
            case ListHead():
                head = await find_head(self.store, self.table)
                return HeadListed(None, None) if head is None else HeadListed(head.version, head.store_ms)

    async def _load_head(self, effect: LoadHead) -> Event:
        async with hinted_reads(self._timed, self.table, self.hints if effect.known is None else NO_HINTS) as reads:
            return await self._load_head_of(reads, effect)

    async def _load_head_of(self, reads: ObjectStore, effect: LoadHead) -> Event:
        confirmed = None
        if effect.known is None:  # read before the store, so the store must be at least as new
            async with asyncio.timeout(self.timeout_s):
                confirmed = await self.confirmed_version(self.table)
        head = await find_head(reads, self.table)
        if confirmed is not None and (head is None or head.version < confirmed):
            raise head_lost(self.table, None if head is None else head.version, confirmed)
        if head is None:
            return HeadLoaded(None, None)

        async def load(at: HeadKey) -> tuple[TableState, HeadKey]:
            return await load_to_build_on(reads, self.table, at.version, effect.known), at

        loaded = await at_head(reads, self.table, load, head)
        assert loaded is not None, "there was a head"
        state, head = loaded
        decided = decided_of(state.header, effect.lowest)
        if effect.known is None or decided:
            async with asyncio.timeout(self.timeout_s):
                await self.check_head(state.header, decided)
        if effect.known is None:
            await self._seen_first()
        return HeadLoaded(state, head.store_ms)

    async def _seen_first(self) -> None:
        """Check that this process still owns the table's partitions, after it has seen the table for the first time.

        Another owner may have searched for the table earlier, found none, and rejected the same records.
        """
        async with asyncio.timeout(self.timeout_s):
            await self.still_owner()

    @property
    def _timed(self) -> ObjectStore:
        return TimedReads(self.store, self.timeout_s)

    async def _store_object(self, item: PendingObject) -> None:
        key = key_of(self.table, item.location)
        if await store_object(self.store, key, item.body) != item.body:
            raise Unavailable(
                "store-unavailable",
                f"{key}: other bytes are stored under this name. The PUT is retried: find out who wrote them",
            )

    async def _read_back(self, effect: ReadBack) -> Event:
        found = await self.store.get(effect.key)
        if found is None:
            return RootReadBack(None, None, None)
        header = decode_root(found.body, name=effect.key).header
        if effect.version == 0:
            await self._seen_first()
        return RootReadBack(header.commit_id, found.store_ms, found.last_modified_ms)


def head_lost(table: TableName, found: int | None, confirmed: int) -> Fenced:
    """The error for a store whose newest root is older than a confirmed version."""
    shown = "no root" if found is None else f"version {found} as the newest root"
    return Fenced(
        "head-lost",
        f"{table}: the store shows {shown}, but version {confirmed} was confirmed, so roots are lost: restore them, "
        f"or accept the loss (`rootline table accept {table}`); then start the coordinator again",
    )


def _failed(effect: StoreEffect, detail: str) -> Event:
    match effect:
        case PutRoot():
            return PutReplied(PutReply(PutStatus.NO_ANSWER, detail=detail))
        case LoadHead():
            return LoadFailed(False, detail)
        case EncodeLeaves():
            return EncodingFailed(detail)
        case _:
            return RequestFailed(detail)
