"""Namespaces and views of a lake.

Owns: their public methods, and the conditions that refuse a change of a namespace. Does not own: the stored versions of
a namespace (`namespaces`), views (`view_handle`), tables (`lake`).
Invariants: every method may be called from any thread. A refusal changes nothing. Two callers who change different
properties both succeed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rootline.client import checks
from rootline.client.checks import DEFAULT_TIMEOUT_S, ForeignNames
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
    """The names of all existing namespaces, ascending."""
    return [str(name) for name in await list_namespaces(session.store)]


async def properties_of(session: Session, namespace: NamespaceName) -> dict[str, str]:
    """The namespace's properties. Raises `Invalid` (`namespace-unknown`)."""
    state = await read_namespace(session.store, namespace)
    await _check_there(session, namespace, state)
    return dict(state.properties)


async def create_namespace(
    session: Session, namespace: NamespaceName, properties: Mapping[str, str], *, may_exist: bool, timeout_s: float
) -> None:
    """Create the namespace with these properties.

    Raises:
        Invalid: `namespace-exists`, unless `may_exist`, which keeps the existing properties; `namespace-invalid`.
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
    """Set `properties` and remove the names in `removed`. A name that is not set is ignored.

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
    """Drop the namespace with its properties.

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


class LakeNames(ForeignNames):
    """The methods of a lake for namespaces and views."""

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
        """Create the view `name` (`namespace.view`) and wait until it exists. The SQL is neither run nor checked.

        Args:
            name: a name in the form of a table's. A table and a view cannot have the same name.
            sql: the text that an engine runs, or several, one for each dialect: `{"spark": …, "trino": …}`.
            dialect: the dialect of `sql`, if it is one text.
            schema: the columns of the view's rows, in any form that `create_table` accepts. `None`: not stated.
            properties: text to text, such as `comment`. `version.history.num-entries` is the number of retained
                versions (10).
            default_catalog: the catalog of names in `sql` without one. `None`: the SQL names every catalog.
            default_namespace: the namespace of names in `sql` without one. `None`: the view's own.
            timeout_s: the waiting time for the verdict, in seconds.

        Raises:
            Invalid: `view-exists`, `table-exists`, `view-invalid`, `view-dialect-twice`, `view-too-large`,
                `intent-too-large`, `definition-invalid` (the schema), `table-name-invalid`.
            OutcomeUnknown: `verdict-timeout`. `view` shows whether it exists.
        """
        from rootline.client.view_handle import SqlGiven, ViewHandle, create_view

        given = SqlGiven.of(sql, dialect, schema, default_catalog, default_namespace)
        checked, wait_s = checks.table(name), checks.seconds(timeout_s)
        version, kept = given.version(checked), checks.text_map(properties, "properties")
        self.holder.run(lambda session: create_view(session, self.stamp, checked, version, kept, timeout_s=wait_s))
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
        """Drop a view. Its name is free then, and it cannot be restored.

        Raises:
            Invalid: `view-unknown`; `name-is-table`, a table has the name; `table-name-invalid`.
            OutcomeUnknown: `verdict-timeout`. `view` shows whether it still exists.
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
        """Create the namespace `name`, of one or several levels (`a`, `a.b`).

        A table does not need this: its namespace exists as soon as the table does.

        Args:
            name: parts of letters, digits, `_` and `-`, with dots between them, at most 255 bytes.
            properties: text to text.
            if_not_exists: accept an existing namespace of this name. Its properties are not changed.
            timeout_s: the time in which the change is retried if other callers change the namespace too, in seconds.

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
        """The properties of a namespace, empty if it was never created explicitly. Raises `Invalid`
        (`namespace-unknown`).
        """
        checked = checks.namespace(name)
        return self.holder.run(lambda session: properties_of(session, checked))

    def set_namespace_properties(
        self, name: str, properties: Mapping[str, str], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Set these properties of a namespace. The others are kept.

        Raises:
            Invalid: `namespace-unknown`, `namespace-invalid`, `setting-invalid`.
            OutcomeUnknown: `namespace-unconfirmed`.
        """
        self._change_namespace(name, checks.text_map(properties, "properties"), (), timeout_s)

    def remove_namespace_properties(
        self, name: str, keys: Sequence[str], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Remove these properties of a namespace, if set. Raises the errors of `set_namespace_properties`."""
        self._change_namespace(name, {}, checks.texts(keys, "keys"), timeout_s)

    def drop_namespace(self, name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Drop an empty namespace: it contains no table, and no namespace is below it.

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
