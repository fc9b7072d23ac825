"""Namespaces: create, list, describe, change and drop them.

Owns: when each is refused. Does not own: the chain of versions (`namespace_chain`), what is in a namespace
(`namespace_directory`).
Invariants: a refusal changes nothing; two who change different properties both succeed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rootline.client.session.session import Session
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import NamespaceName
from rootline.storage.metadata.namespaces import (
    NamespaceState,
    NextState,
    change_namespace,
    list_namespaces,
    name_inside,
    namespace_below,
    read_namespace,
)


async def namespace_names(session: Session) -> list[str]:
    """Every namespace that exists, ascending."""
    return [str(name) for name in await list_namespaces(session.store)]


async def properties_of(session: Session, namespace: NamespaceName) -> dict[str, str]:
    """Its properties. Raises `Invalid` (`namespace-unknown`)."""
    state = await read_namespace(session.store, namespace)
    await _check_there(session, namespace, state)
    return dict(state.properties)


async def create_namespace(
    session: Session, namespace: NamespaceName, properties: Mapping[str, str], *, may_exist: bool, timeout_s: float
) -> None:
    """Create it with these properties.

    Raises:
        Invalid: `namespace-exists`, unless it may; then its properties stay as they are. `namespace-invalid`.
        OutcomeUnknown: `namespace-unconfirmed`.

    """

    async def change(state: NamespaceState) -> NextState | None:
        inside = None if state.is_there else await name_inside(session.store, namespace)
        if not state.is_there and inside is None:
            return NextState(properties)
        if may_exist:
            return None
        reason = "" if inside is None else f" ({inside} is in it)"
        raise Invalid("namespace-exists", f"{namespace}: this namespace exists{reason}: use it, or choose another name")

    await change_namespace(session.store, session.environment, namespace, change, timeout_s=timeout_s)


async def change_properties(
    session: Session,
    namespace: NamespaceName,
    properties: Mapping[str, str],
    removed: Sequence[str],
    *,
    timeout_s: float,
) -> None:
    """Set these properties, and remove those; one that is not there is removed as it is.

    Raises:
        Invalid: `namespace-unknown`, `namespace-invalid`.
        OutcomeUnknown: `namespace-unconfirmed`.

    """

    async def change(state: NamespaceState) -> NextState | None:
        await _check_there(session, namespace, state)
        kept = {key: value for key, value in state.properties.items() if key not in removed}
        after = {**kept, **properties}
        return None if after == state.properties else NextState(after)

    await change_namespace(session.store, session.environment, namespace, change, timeout_s=timeout_s)


async def drop_namespace(session: Session, namespace: NamespaceName, *, timeout_s: float) -> None:
    """Drop it, with its properties.

    Raises:
        Invalid: `namespace-unknown`, `namespace-not-empty`.
        OutcomeUnknown: `namespace-unconfirmed`.

    """

    async def change(state: NamespaceState) -> NextState | None:
        if (inside := await name_inside(session.store, namespace)) is not None:
            raise Invalid("namespace-not-empty", f"{namespace}: {inside} is in this namespace: drop it first")
        if not state.is_there:
            raise _unknown(namespace)
        if (below := await namespace_below(session.store, namespace)) is not None:
            raise Invalid("namespace-not-empty", f"{namespace}: namespace {below} is below it: drop that one first")
        return NextState({}, is_there=False)

    await change_namespace(session.store, session.environment, namespace, change, timeout_s=timeout_s)


async def _check_there(session: Session, namespace: NamespaceName, state: NamespaceState) -> None:
    if not state.is_there and await name_inside(session.store, namespace) is None:
        raise _unknown(namespace)


def _unknown(namespace: NamespaceName) -> Invalid:
    return Invalid(
        "namespace-unknown",
        f"{namespace}: no namespace has this name in this warehouse; `rootline namespace list` shows all",
    )
