"""Namespaces and views of a lake.

Owns: their public methods, and when a change of a namespace is refused. Does not own: the chain of a namespace's
versions (`namespaces`), views (`view_handle`), tables (`lake`).
Invariants: every method may be called from any thread. A refusal changes nothing. Two callers who change different
properties both succeed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rootline.client import checks
from rootline.client.producer import DEFAULT_TIMEOUT_S
from rootline.client.session import Session, SessionHolder, WriterStamp
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

if TYPE_CHECKING:
    from rootline.client.session import Commit
    from rootline.client.view_handle import ViewHandle


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


class LakeNames:
    """The part of a lake that is about namespaces and views."""

    holder: SessionHolder
    stamp: WriterStamp

    def create_view(
        self,
        name: str,
        sql: str | Mapping[str, str],
        *,
        dialect: str = "spark",
        schema: Any = None,
        properties: Mapping[str, str] | None = None,
        default_catalog: str | None = None,
        default_namespace: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> ViewHandle:
        """Create the view `name` (`namespace.view`) and wait until it exists. No SQL is run or checked here.

        Args:
            name: as a table's; a name is a table or a view.
            sql: the text that an engine runs; or several, one for each dialect: `{"spark": …, "trino": …}`.
            dialect: of `sql`, if it is one text.
            schema: of the view's rows, in any form that `create_table` takes; None: it does not say.
            properties: text to text, such as `comment`. `version.history.num-entries` says how many versions are kept
                (10).
            default_catalog: where names in `sql` without a catalog are; None: the SQL names all.
            default_namespace: where names in `sql` without a namespace are; None: in the view's own.
            timeout_s: how many seconds to wait for the verdict.

        Raises:
            Invalid: `view-exists`, `table-exists`, `view-invalid`, `view-dialect-twice`, `view-too-large`,
                `intent-too-large`, `definition-invalid` (the schema), `table-name-invalid`.
            OutcomeUnknown: `verdict-timeout`; `view` tells whether it exists.

        """
        from rootline.client.view_handle import SqlGiven, ViewHandle, create_view

        given = SqlGiven.of(sql, dialect, schema, default_catalog, default_namespace)
        checked, wait_s = checks.table(name), checks.seconds(timeout_s)
        kept = checks.text_map(properties, "properties")
        self.holder.run(lambda session: create_view(session, self.stamp, checked, given, kept, timeout_s=wait_s))
        return ViewHandle(self, checked)

    def view(self, name: str) -> ViewHandle:
        """The view `name`.

        Raises:
            Invalid: `view-unknown`; `name-is-table`, a table has the name; `table-name-invalid`.
            Unavailable: `store-unavailable`.

        """
        from rootline.client.view_handle import ViewHandle
        from rootline.storage.metadata.root_reader import view_root

        checked = checks.table(name)
        self.holder.run(lambda session: view_root(session.store, checked))
        return ViewHandle(self, checked)

    def drop_view(self, name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Drop a view: its name is free, and it does not come back.

        Raises:
            Invalid: `view-unknown`; `name-is-table`, a table has the name; `table-name-invalid`.
            OutcomeUnknown: `verdict-timeout`; `view` tells whether it is there.

        """
        wait_s = checks.seconds(timeout_s)
        return self.view(name).drop(timeout_s=wait_s)

    def views(self, namespace: str | None = None) -> list[str]:
        """The names of all views, or of those in one namespace, sorted. Raises `Unavailable` (`store-unavailable`)."""
        from rootline.client.view_handle import view_names

        checked = None if namespace is None else checks.namespace(namespace)
        return self.holder.run(lambda session: view_names(session, checked))

    def create_namespace(
        self,
        name: str,
        properties: Mapping[str, str] | None = None,
        *,
        if_not_exists: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Create the namespace `name`, of one or several levels (`a`, `a.b`). A table needs none: it makes its own.

        Args:
            name: parts of letters, digits, `_` and `-`, with dots between them; at most 255 bytes.
            properties: text to text.
            if_not_exists: a namespace of this name is what is wanted; its properties stay as they are.
            timeout_s: how many seconds to try while others change it too.

        Raises:
            Invalid: `namespace-exists`, `namespace-invalid`, `setting-invalid` (a property), `name-differs-in-case`.
            OutcomeUnknown: `namespace-unconfirmed`.

        """
        checked, wanted = checks.namespace(name), checks.text_map(properties, "properties")
        may_exist, wait_s = checks.truth(if_not_exists, "if_not_exists"), checks.seconds(timeout_s)
        self.holder.run(
            lambda session: create_namespace(session, checked, wanted, may_exist=may_exist, timeout_s=wait_s)
        )

    def namespaces(self) -> list[str]:
        """The namespaces that were created or have a table, sorted. Raises `Unavailable` (`store-unavailable`)."""
        return self.holder.run(namespace_names)

    def namespace_properties(self, name: str) -> dict[str, str]:
        """The properties of a namespace; one that was not created has none. Raises `Invalid` (`namespace-unknown`)."""
        checked = checks.namespace(name)
        return self.holder.run(lambda session: properties_of(session, checked))

    def set_namespace_properties(
        self, name: str, properties: Mapping[str, str], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Set these properties of a namespace; the others stay.

        Raises:
            Invalid: `namespace-unknown`, `namespace-invalid`, `setting-invalid`.
            OutcomeUnknown: `namespace-unconfirmed`.

        """
        self._change_namespace(name, checks.text_map(properties, "properties"), (), timeout_s)

    def remove_namespace_properties(
        self, name: str, keys: Sequence[str], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Remove these properties of a namespace, if it has them. Raises as `set_namespace_properties`."""
        self._change_namespace(name, {}, checks.texts(keys, "keys"), timeout_s)

    def drop_namespace(self, name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Drop a namespace that is empty: no table is in it, and no namespace is below it.

        Raises:
            Invalid: `namespace-not-empty`, `namespace-unknown`.
            OutcomeUnknown: `namespace-unconfirmed`.

        """
        checked, wait_s = checks.namespace(name), checks.seconds(timeout_s)
        self.holder.run(lambda session: drop_namespace(session, checked, timeout_s=wait_s))

    def _change_namespace(
        self, name: str, properties: Mapping[str, str], removed: Sequence[str], timeout_s: float
    ) -> None:

        checked, wait_s = checks.namespace(name), checks.seconds(timeout_s)
        self.holder.run(lambda session: change_properties(session, checked, properties, removed, timeout_s=wait_s))
