"""Namespaces in the store: one version as JSON, the chain of versions, and the namespaces of a warehouse.

Owns: a version's value and bytes, the LIST, the GET and the conditional PUT of the chain, finding namespaces by their
folders and objects. Does not own: the meaning of a change (the caller's function), valid names (`identifiers`), keys
(`object_keys`).
Invariants: of several writers who change one version, one stores the next, and the others re-read that version. A
version is never overwritten or deleted. A change is made once or not at all, or its outcome is reported as unknown. A
record is used only for the name and version that it states. Two records of the same content differ in their change id,
so that a writer recognizes its own. Namespace `a` exists if it was created and not dropped since, or if it contains a
table or view. Namespace `a.b` does not make `a` exist, but prevents its drop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rootline.ports.environment import Environment
from rootline.ports.object_store import ObjectStore
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import Corrupt, Invalid, OutcomeUnknown
from rootline.schemas.identifiers import NamespaceName, TableName
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.object_keys import (
    namespace_in,
    namespace_key,
    namespace_objects_prefix,
    table_in,
    version_of_namespace_key,
)
from rootline.schemas.parts.name import NameState
from rootline.storage.metadata.root_reader import name_state
from rootline.storage.stored_objects import gather_bounded, store_object

RECORD_BYTES_MAX: Final = 1_000_000
FORMAT_VERSION: Final = 1


class NamespaceRecord(BaseModel):
    """One stored version of a namespace."""

    model_config = ConfigDict(frozen=True, strict=True, alias_generator=lambda name: name.replace("_", "-"))

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    namespace: str
    version: Annotated[int, Field(ge=0)]
    change_id: str
    dropped: bool
    properties: Mapping[str, str]


def encode_record(
    namespace: NamespaceName, version: int, properties: Mapping[str, str], *, change_id: str, dropped: bool = False
) -> bytes:
    """The bytes of version `version`. Raises `Invalid` (`namespace-invalid`): the properties are too long."""
    body = {
        "format-version": FORMAT_VERSION,
        "namespace": namespace,
        "version": version,
        "change-id": change_id,
        "dropped": dropped,
        "properties": dict(properties),
    }
    found = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(found) > RECORD_BYTES_MAX:
        raise Invalid(
            "namespace-invalid",
            f"{namespace}: its properties have {len(found)} bytes, at most {RECORD_BYTES_MAX} are allowed: "
            "shorten them",
        )
    return found


def decode_record(body: bytes, namespace: NamespaceName, version: int) -> NamespaceRecord:
    """The record that was stored as version `version` of `namespace`.

    Raises:
        Corrupt: `namespace-unreadable`.

    """
    key = namespace_key(namespace, version)
    try:
        found = NamespaceRecord.model_validate_json(body)
    except ValidationError as error:
        raise Corrupt(
            "namespace-unreadable", f"{key}: this object is damaged: {fault_of_model(error)}: restore it from a copy"
        ) from error
    if (found.namespace, found.version) != (namespace, version):
        raise Corrupt(
            "namespace-unreadable",
            f"{key}: contains version {found.version} of {found.namespace[:80]}: restore it from a copy",
        )
    return found


_LIMITS: Final[tuple[int | None, ...]] = (1, 100, None)
_RETRY: Final = RetryPolicy(delay_s_min=0.01, delay_s_max=0.5)


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """The state of a namespace by its newest version, -1 if it has none. A dropped namespace has no properties."""

    version: int = -1
    is_there: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NextState:
    """The state after a change."""

    properties: Mapping[str, str]
    is_there: bool = True


Change = Callable[[NamespaceState], Awaitable[NextState | None]]
"""Returns the state after a given one, or `None` for no change. After a lost race it is called again."""


async def read_namespace(store: ObjectStore, namespace: NamespaceName) -> NamespaceState:
    """The newest version of a namespace.

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
    """Apply `change` to the newest version, and store the result as the next version.

    If another writer has stored that version first, `change` is applied to the other writer's version.

    Raises:
        Invalid: an error of `change`, or `namespace-invalid`. Nothing was changed.
        OutcomeUnknown: `namespace-unconfirmed`.
        Unavailable: `store-unavailable`. The namespace may have been changed.
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
            f"{namespace}: the change was not confirmed within {timeout_s:g} s: read the namespace, and repeat the "
            "change if it is missing",
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


_READS_AT_ONCE: Final = 16


async def list_namespaces(store: ObjectStore) -> list[NamespaceName]:
    """Every namespace that exists, ascending.

    A namespace whose properties cannot be read is included, and `read_namespace` reports the error. Raises
    `Unavailable` (`store-unavailable`).
    """
    names = [name for folder in await store.folders("") if (name := namespace_in(folder)) is not None]

    async def is_there(name: NamespaceName) -> bool:
        return await namespace_exists(store, name)

    found = await gather_bounded(names, is_there, _READS_AT_ONCE)
    return sorted(name for name, there in zip(names, found, strict=True) if there)


async def namespace_exists(store: ObjectStore, namespace: NamespaceName) -> bool:
    """Whether the namespace was created, or contains a table or view. Raises the errors of `list_namespaces`."""
    return await is_created(store, namespace) or await name_inside(store, namespace) is not None


async def is_created(store: ObjectStore, namespace: NamespaceName) -> bool:
    """Whether the namespace was created and not dropped since. It counts as created if it cannot be read.

    Raises `Unavailable`.
    """
    try:
        return (await read_namespace(store, namespace)).is_there
    except Corrupt:
        return True


async def name_inside(store: ObjectStore, namespace: NamespaceName) -> TableName | None:
    """A table or view of this namespace, or `None`. A name whose newest root cannot be read counts as a table.

    Raises `Unavailable`.
    """
    for folder in await store.folders(f"{namespace}/"):
        name = table_in(folder)
        if name is None:
            continue
        try:
            if await name_state(store, name) in (NameState.TABLE, NameState.VIEW):
                return name
        except Corrupt:
            return name
    return None


async def namespace_below(store: ObjectStore, namespace: NamespaceName) -> NamespaceName | None:
    """An existing namespace whose name begins with this one's and a dot. Raises the errors of `list_namespaces`."""
    for folder in await store.folders(""):
        name = namespace_in(folder)
        if name is not None and name.startswith(f"{namespace}.") and await namespace_exists(store, name):
            return name
    return None
