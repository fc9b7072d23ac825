"""The chain of a namespace's versions: find the newest, and put the next one after it.

Owns: the LIST, the GET and the conditional PUT. Does not own: what a change is (the caller's function), whether tables
are there (`namespace_directory`).
Invariants: of all who change one version, one wins, and the others look again; a version is never overwritten or
deleted; a change is made once or not at all, or its outcome is said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rootline.ports.environment import Environment
from rootline.ports.object_store import ObjectStore
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import Corrupt, OutcomeUnknown
from rootline.schemas.identifiers import NamespaceName
from rootline.schemas.object_keys import namespace_key, namespace_objects_prefix, version_of_namespace_key
from rootline.storage.metadata.store_object import store_object
from rootline.storage.namespaces.namespace_record import decode_record, encode_record

_LIMITS: Final[tuple[int | None, ...]] = (1, 100, None)
_RETRY: Final = RetryPolicy(delay_s_min=0.01, delay_s_max=0.5)


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """The newest version of a namespace; `version` -1: it has none. A dropped one has no properties."""

    version: int = -1
    is_there: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NextState:
    """What is to follow."""

    properties: Mapping[str, str]
    is_there: bool = True


Change = Callable[[NamespaceState], Awaitable[NextState | None]]
"""What follows a state; `None`: it stays as it is. It is asked again for each state that it meets."""


async def read_namespace(store: ObjectStore, namespace: NamespaceName) -> NamespaceState:
    """The newest version.

    Raises:
        Corrupt: `namespace-unreadable`.
        Unavailable: `store-unavailable`.

    """
    version = await _newest(store, namespace)
    if version is None:
        return NamespaceState()
    found = await store.get(namespace_key(namespace, version))
    if found is None:
        raise Corrupt(
            "namespace-unreadable",
            f"{namespace_key(namespace, version)}: this object does not exist: restore it from a copy",
        )
    record = decode_record(found.body, namespace, version)
    return NamespaceState(version, not record.dropped, {} if record.dropped else record.properties)


async def change_namespace(
    store: ObjectStore, environment: Environment, namespace: NamespaceName, change: Change, *, timeout_s: float
) -> None:
    """Put what `change` makes of the newest version after it, and again while others are faster.

    Raises:
        Invalid: as `change` says, and `namespace-invalid`; nothing was changed.
        OutcomeUnknown: `namespace-unconfirmed`.
        Unavailable: `store-unavailable`; perhaps it was changed.

    """
    try:
        async with asyncio.timeout(timeout_s):
            losses = 0
            while not await _changed(store, environment, namespace, change):
                losses += 1
                await asyncio.sleep(_RETRY.after_failure(losses, environment.jitter()))
    except TimeoutError as error:
        raise OutcomeUnknown(
            "namespace-unconfirmed",
            f"{namespace}: its change was not confirmed within {timeout_s:g} s: see what is there and repeat what is "
            "missing",
        ) from error


async def _changed(store: ObjectStore, environment: Environment, namespace: NamespaceName, change: Change) -> bool:
    state = await read_namespace(store, namespace)
    wanted = await change(state)
    if wanted is None:
        return True
    body = encode_record(
        namespace,
        state.version + 1,
        wanted.properties,
        change_id=environment.fresh_id(),
        dropped=not wanted.is_there,
    )
    return await store_object(store, namespace_key(namespace, state.version + 1), body) == body


async def _newest(store: ObjectStore, namespace: NamespaceName) -> int | None:
    for limit in _LIMITS:
        listing = await store.list(namespace_objects_prefix(namespace), limit=limit)
        for key in listing.keys:
            version = version_of_namespace_key(key)
            if version is not None and key == namespace_key(namespace, version):
                return version
        if limit is None or len(listing.keys) < limit:
            return None
    return None
