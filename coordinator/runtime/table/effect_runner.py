"""Carries the commit machine's effects out, and says what happened as an event.

Owns: the translation effect → store requests → event, with a deadline around each. Does not own: what to do about
the answer (`machine_handlers`), the order of verdicts (`table_loop`).
Invariants: every effect yields exactly one event whatever the store does and whatever fails, so that no table can
end another; a PUT that was cut off is NO_ANSWER, never a failure; corrupt bytes are told apart from an absent store,
and believed to be corrupt only after a second look, because an answer that was cut off looks the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

import structlog

from rootline.coordinator.protocol.batch_builder import decided_of
from rootline.coordinator.protocol.effects import (
    EncodeLeaves,
    Fetch,
    ListHead,
    LoadHead,
    PutRoot,
    ReadBack,
    StoreObjects,
)
from rootline.coordinator.protocol.events import (
    EncodingFailed,
    Event,
    Fetched,
    HeadListed,
    HeadLoaded,
    LeavesEncoded,
    LoadFailed,
    ObjectsStored,
    PutReplied,
    RequestFailed,
    RootReadBack,
)
from rootline.coordinator.runtime.table.leaf_encoder import LeafEncoder, ThreadLeafEncoder
from rootline.coordinator.runtime.table.object_fetcher import LeavesAhead, fetch_objects
from rootline.ports.head_hints import NO_HINTS, HeadHints
from rootline.ports.intent_feed import Partition
from rootline.ports.object_store import ObjectStore, PutReply, PutStatus
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.errors import Corrupt, Fenced, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import key_of
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.read_cache import hinted_reads
from rootline.storage.metadata.root_reader import HeadKey, at_head, find_head
from rootline.storage.metadata.table_loader import load_to_build_on
from rootline.storage.stored_objects import TimedReads, store_object
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState

StoreEffect = LoadHead | Fetch | StoreObjects | PutRoot | ReadBack | ListHead | EncodeLeaves
HeadCheck = Callable[[RootHeader, Collection[Partition]], Awaitable[None]]
"""Raises `Fenced` when a head has decided records that the log has not, or has others for in these partitions."""


ConfirmedVersion = Callable[[TableName], Awaitable[int | None]]
"""The highest version of a table that is known to have been confirmed."""


StillOwner = Callable[[], Awaitable[None]]
"""Raises `Unavailable` unless the records that the table was given are still this coordinator's to decide."""


async def always_owner() -> None:
    """Nobody else decides them."""


async def nothing_confirmed(_: TableName) -> int | None:
    """No evidence."""
    return None


@dataclass(frozen=True, slots=True)
class EffectRunner:
    """The store requests of one table. `timeout_s` bounds each effect, and of those that read much, each request.

    `encoder` is the process's own, with a deadline of its own.
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
        """The event that answers `effect`; `ahead`: leaves that were read already. Only cancellation escapes."""
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
        except Exception as error:  # a bug of ours or of a store's: the table tries again, its neighbours go on
            structlog.get_logger().exception("request failed", action="retry", table=self.table)
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
        if effect.known is None:  # asked before the store, which is therefore not behind it
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
        """The table was there before this, so that no one who owns its records later can find that there is none."""
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
                f"{key}: other bytes are stored under this name; it is tried again, find out who wrote them",
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
    """The store shows less than was confirmed."""
    shown = "no root" if found is None else f"version {found} as the newest root"
    return Fenced(
        "head-lost",
        f"{table}: the store shows {shown}, but version {confirmed} was confirmed, so roots are lost: bring them back, "
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
