"""A warehouse in the form of the REST catalog: namespaces, tables, views, a table's export, and metrics.

Owns: finding names with few requests and caching them, the cost and deadline of each request, names and labels of the
metrics. Does not own: HTTP (`routes`), making exports (`exporter`), the rules for existing namespaces (`namespaces`).
Invariants: read-only except for exports, and a folder for metadata of clients. The response for a table is its newest
version at the time of the request, or after a commit the version of the commit or a newer one. A caller that stops
waiting does not stop an export that others wait for. Every response lists folders and heads again, so a removed or
dropped name disappears. Engines descend level by level, so for them a namespace also exists if one below it does. The
`table` label has at most `TABLES_MAX` values, all for tables exported here. Metrics may be set in one thread and read
in another.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rootline.catalog.export_keys import ExportFolder, FormatVersion, format_of
from rootline.catalog.rest.responses import (
    NO_TABLE,
    Refusal,
    SnapshotMode,
    etag_of,
    is_known,
    json_body,
    no_such_namespace,
    no_such_table,
    no_such_view,
    table_body,
    view_body,
)
from rootline.library_log import library_logger
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import (
    NamespaceName,
    SnapshotId,
    TableName,
    Version,
    name_in_namespace,
    namespace_of,
    table_name,
)
from rootline.schemas.object_keys import key_of, namespace_in, root_key, table_in
from rootline.schemas.parts.name import NameState
from rootline.storage.metadata.namespaces import is_created, read_namespace
from rootline.storage.metadata.root_reader import at_head, find_head, newest_root, read_root, view_of

if TYPE_CHECKING:
    from rootline.catalog.exporter import ExportCost, ExportedTable, TableExporter

_READS_AT_ONCE: Final = 16


class _Seen(NamedTuple):
    """The state of a name in the newest version that was read."""

    version: Version
    state: NameState


class TableDirectory:
    """The tables and views of one warehouse.

    A root is read once to learn whether its name is a table or a view. Later requests only list roots.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._places = asyncio.Semaphore(_READS_AT_ONCE)
        self._known: dict[TableName, _Seen] = {}

    async def namespaces(self) -> list[str]:
        """Every namespace that was created or contains a table or view, ascending, including unreadable ones.

        Raises:
            Unavailable: `store-unavailable`.
        """
        names = [name for folder in await self._store.folders("") if (name := namespace_in(folder)) is not None]
        there = await asyncio.gather(*(self._is_namespace(name) for name in names))
        return sorted(name for name, is_there in zip(names, there, strict=True) if is_there)

    async def below(self, parent: str) -> list[str] | None:
        """The full names of namespaces one level below `parent`, ascending, or `None` if `parent` does not exist.

        An empty `parent` is the root of all namespaces. Raises the errors of `namespaces`.
        """
        names, prefix = await self.namespaces(), f"{parent}." if parent else ""
        level = prefix.count(".") + 1
        found = {".".join(name.split(".")[:level]) for name in names if name.startswith(prefix)}
        return sorted(found) if found or not parent or parent in names else None

    async def properties(self, namespace: str) -> dict[str, str] | None:
        """A namespace's properties, or `None` if there is no such namespace.

        Raises:
            Corrupt: `namespace-unreadable`.
            Unavailable: `store-unavailable`.
        """
        name = namespace_in(namespace)
        if name is None:
            return None
        async with self._places:
            state = await read_namespace(self._store, name)
        if state.is_there or await self._has_names(name) or await self.below(name):
            return dict(state.properties)
        return None

    async def names(self, namespace: str, states: Container[NameState] = (NameState.TABLE,)) -> list[str]:
        """The names of the tables or views in `namespace`, without it, ascending. Empty if there is no such namespace.

        Raises:
            Unavailable: `store-unavailable`.
        """
        if namespace_in(namespace) is None:
            return []
        async with self._places:
            folders = await self._store.folders(f"{namespace}/")
        names = [name for folder in folders if (name := table_in(folder)) is not None]
        found = await asyncio.gather(*(self._state_in_turn(name) for name in names))
        return sorted(name_in_namespace(name) for name, there in zip(names, found, strict=True) if there in states)

    async def exists(self, name: TableName, state: NameState = NameState.TABLE) -> bool:
        """Whether the warehouse has the table or view `name` now.

        Raises:
            Unavailable: `store-unavailable`.
        """
        return await self._state_of(name) is state

    async def _state_of(self, name: TableName) -> NameState | None:
        head = await find_head(self._store, name)
        if head is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is not None and known.version == head.version:
            return known.state
        try:
            root = await at_head(self._store, name, lambda found: read_root(self._store, name, found.version), head)
        except Corrupt:
            return NameState.TABLE  # it exists, and loading it reports the error
        if root is None:
            return None
        self._known[name] = _Seen(root.header.version, root.header.name.state)
        return root.header.name.state

    async def _has_names(self, namespace: NamespaceName) -> bool:
        return bool(await self.names(namespace, (NameState.TABLE, NameState.VIEW)))

    async def _state_in_turn(self, name: TableName) -> NameState | None:
        async with self._places:
            return await self._state_of(name)

    async def _is_namespace(self, name: NamespaceName) -> bool:
        for known, seen in self._known.items():  # check a known name first: it usually still exists
            if seen.state is not NameState.TOMBSTONE and namespace_of(known) == name:
                if await self._state_in_turn(known) in (NameState.TABLE, NameState.VIEW):
                    return True
                break
        async with self._places:
            if await is_created(self._store, name):
                return True
        return await self._has_names(name)


TABLES_MAX: Final = 200
_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(slots=True)
class _Freshness:
    """The distance between one table's newest export and its head, as far as this process knows."""

    exported: Version
    head: Version
    behind_since_ms: int | None = None


class CatalogMetrics:
    """The metrics of one process, in `registry`, which may contain other metrics too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._guard = threading.Lock()
        self._fresh: dict[TableName, _Freshness] = {}
        self._lag = Gauge(
            "rootline_export_lag_seconds",
            "How long a table's newest version has been newer than the newest one exported here, even if no engine "
            "reads it now.",
            ("table",),
            registry=registry,
        )
        self._seconds = Histogram(
            "rootline_export_seconds",
            "Time to make what an export lacked; exports that were complete are not counted.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._requests = Counter(
            "rootline_export_requests_total", "Requests to the store for exports.", ("kind",), registry=registry
        )
        self._failures = Counter(
            "rootline_export_failures_total", "Exports that could not be made.", ("code",), registry=registry
        )
        self._answers = Counter(
            "rootline_catalog_requests_total",
            "Responses of the REST catalog.",
            ("route", "code"),
            registry=registry,
        )
        self._answer_seconds = Histogram(
            "rootline_catalog_request_seconds",
            "Time to respond to a request, exports that it waits for included.",
            ("route",),
            registry=registry,
            buckets=_SECONDS,
        )

    def answered(self, route: str, status: int, elapsed_s: float) -> None:
        """Count one response."""
        self._answers.labels(route, str(status)).inc()
        self._answer_seconds.labels(route).observe(elapsed_s)

    def exported(self, table: TableName, version: Version, cost: ExportCost, elapsed_s: float) -> None:
        """Count an export of the newest version. `cost`: its requests, zero if it was complete."""
        for kind, count in (("list", cost.lists), ("get", cost.gets), ("put", cost.puts)):
            if count:
                self._requests.labels(kind).inc(count)
        if cost.puts:
            self._seconds.observe(elapsed_s)
        with self._guard:
            fresh = self._fresh.get(table)
            if fresh is None:
                if len(self._fresh) < TABLES_MAX:
                    self._fresh[table] = _Freshness(version, version)
                return
            fresh.exported = max(fresh.exported, version)
            if fresh.exported >= fresh.head:
                fresh.head, fresh.behind_since_ms = fresh.exported, None

    def failed(self, code: str) -> None:
        """Count a failed export."""
        self._failures.labels(code).inc()

    def head_seen(self, table: TableName, version: Version, timestamp_ms: int) -> None:
        """Record the newest version of `table` and its commit time. Tables that were not exported here are ignored."""
        with self._guard:
            fresh = self._fresh.get(table)
            if fresh is None or version <= fresh.head:
                return
            fresh.head = version
            if fresh.behind_since_ms is None and version > fresh.exported:
                fresh.behind_since_ms = timestamp_ms

    def measure(self, now_ms: int, heads: Mapping[TableName, tuple[Version, int]] | None = None) -> None:
        """Update the gauge before it is read.

        The gauge is how long the export of a table has been behind the table's newest version.

        `heads`: the newest versions and their commit times, for the tables whose commits this process sees. No lag is
        reported for other tables. `None`: this process sees no commits, only requests.
        """
        for table, (version, timestamp_ms) in (heads or {}).items():
            self.head_seen(table, version, timestamp_ms)
        with self._guard:
            if heads is not None:
                for table in self._fresh.keys() - heads.keys():
                    del self._fresh[table]
            lags = {
                table: 0 if fresh.behind_since_ms is None else max(0, now_ms - fresh.behind_since_ms)
                for table, fresh in self._fresh.items()
            }
        self._lag.clear()
        for table, lag_ms in lags.items():
            self._lag.labels(table).set(lag_ms / 1000)


_LARGE_BYTES: Final = 100_000
"""Larger metadata is parsed in a thread."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """The response for a table. `body` is `None` if the engine already has it."""

    etag: str
    body: bytes | None


class RestCatalog:
    """The catalog of one warehouse. All methods run on the event loop of `store`."""

    def __init__(
        self,
        store: ObjectStore,
        exporter: TableExporter,
        metrics: CatalogMetrics,
        *,
        storage: Mapping[str, str] | None = None,
        default_format: FormatVersion | None = None,
        request_timeout_s: float = 60.0,
    ) -> None:
        """`storage`: the store's settings for engines. `default_format`: for an engine that requests none."""
        self.metrics = metrics
        self._store = store
        self._exporter = exporter
        self._directory = TableDirectory(store)
        self._storage = dict(storage or {})
        self._default_format = default_format
        self._timeout_s = request_timeout_s
        self._making: set[asyncio.Task[ExportedTable]] = set()
        self._logger = library_logger("rootline.catalog")

    async def namespaces(self, parent: str = "") -> list[str]:
        """The namespaces one level below `parent`, ascending. Raises `Refusal`: there is no such parent."""
        found = await self._directory.below(parent)
        if found is None:
            raise no_such_namespace(parent)
        return found

    async def namespace(self, namespace: str) -> dict[str, str]:
        """The namespace's properties. Raises `Refusal`: there is no such namespace."""
        found = await self._directory.properties(namespace)
        if found is None:
            raise no_such_namespace(namespace)
        return found

    async def names(self, namespace: str, state: NameState) -> list[str]:
        """The names of the namespace's tables or views, ascending. Raises `Refusal`: there is no such namespace."""
        found = await self._directory.names(namespace, (state,))
        if not found:
            await self.namespace(namespace)
        return found

    async def view_exists(self, namespace: str, name: str) -> None:
        """Return if the view exists. Raises `Refusal` if it does not."""
        if not await self._directory.exists(known_name(namespace, name, no_such_view), NameState.VIEW):
            raise no_such_view(namespace, name)

    async def view(self, namespace: str, name: str) -> bytes:
        """The response for a view.

        Raises:
            Refusal: there is no such view.
            Corrupt: it cannot be read.
            Unavailable: the store does not respond.
        """
        checked = known_name(namespace, name, no_such_view)
        root = await newest_root(self._store, checked)
        if root is None or root.header.name.state is not NameState.VIEW:
            raise no_such_view(namespace, name)
        key = root_key(checked, root.header.version)
        return view_body(view_of(root.header), f"{self._exporter.base_url}/{key}")

    async def table_exists(self, namespace: str, name: str) -> None:
        """Return if the table exists. Raises `Refusal` if it does not."""
        if not await self._directory.exists(known_name(namespace, name)):
            raise no_such_table(namespace, name)

    async def reach(self) -> None:
        """Send a small request to the store. Raises `Unavailable` if it does not respond."""
        await self._store.folders("")

    async def load(
        self,
        namespace: str,
        name: str,
        format_version: FormatVersion | None,
        mode: SnapshotMode,
        known: str | None,
        committed: Version | None = None,
    ) -> LoadedTable:
        """A table's newest version. `known`: the entity tags that the engine has. `committed`: as in an export.

        Raises:
            Refusal: there is no such table, or a view has its name.
            Invalid: `export-unsupported`.
            Corrupt: an object that the export is made from is damaged.
            Unavailable: the store does not respond, or the export is not done in time.
        """
        table = known_name(namespace, name)
        making = asyncio.ensure_future(self._export(table, format_version or self._default_format, committed))
        self._making.add(making)
        making.add_done_callback(self._made)
        done, _ = await asyncio.wait({making}, timeout=self._timeout_s)
        if not done:
            raise Unavailable(
                "export-unfinished",
                f"{table}: its export is not done after {self._timeout_s:g} s and continues: retry",
            )
        try:
            exported = making.result()
        except Invalid as error:
            if error.code in NO_TABLE:
                raise no_such_table(namespace, name) from None
            raise
        etag = etag_of(exported, mode, self._storage)
        if is_known(etag, known):
            return LoadedTable(etag, None)
        if mode is SnapshotMode.REFS and len(exported.metadata) > _LARGE_BYTES:
            return LoadedTable(etag, await asyncio.to_thread(table_body, exported, mode, self._storage))
        return LoadedTable(etag, table_body(exported, mode, self._storage))

    async def snapshot(
        self, table: TableName, format_version: FormatVersion, version: Version, snapshot_id: SnapshotId
    ) -> Mapping[str, Any] | None:
        """A version's snapshot as engines see it. `None`: it changed no entries. Raises the errors of an export."""
        return await self._exporter.snapshot(table, format_version, version, snapshot_id)

    def recent_root(self, table: TableName) -> Root | None:
        """A root that was a table's newest one some seconds ago, if it is known."""
        return self._exporter.recent_root(table)

    def format_of(self, asked: FormatVersion | None, properties: Mapping[str, str]) -> FormatVersion:
        """The format in which a table with these properties is shown to an engine that asked for `asked`."""
        return asked or self._default_format or format_of(properties)

    def folder(self, table: TableName, format_version: FormatVersion) -> ExportFolder:
        """The folder of a table's exports in one format. Its `base` is the table's location for engines."""
        return ExportFolder.of(self._exporter.base_url, table, format_version)

    async def make_folder(self, table: TableName) -> None:
        """Make the folder of clients' metadata in a warehouse on a disk, where DuckDB does not make it itself."""
        if self._exporter.base_url.startswith("file:"):
            key = key_of(table, "rest/metadata/folder.json")
            with suppress(Unavailable):
                if await self._store.get(key) is None:
                    await self._store.put_if_absent(key, b"{}")

    def staged(self, metadata: Mapping[str, Any]) -> bytes:
        """The response for a table that is described, but not created yet."""
        return json_body({"metadata": metadata, "config": self._storage})

    async def close(self) -> None:
        """Stop running exports. The store stays open."""
        for making in self._making:
            making.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        await self._exporter.close()

    async def _export(
        self, table: TableName, format_version: FormatVersion | None, committed: Version | None
    ) -> ExportedTable:
        began = time.monotonic()
        try:
            exported = await self._exporter.export(table, format_version, committed=committed)
        except RootlineError as error:
            if error.code not in NO_TABLE:
                self.metrics.failed(error.code)
                self._logger.warning("export failed", action="export-failed", table=table, reason=str(error))
            raise
        except Exception:
            self.metrics.failed("unexpected")
            raise
        self.metrics.exported(table, exported.asked_version, exported.cost, time.monotonic() - began)
        return exported

    def _made(self, making: asyncio.Task[ExportedTable]) -> None:
        self._making.discard(making)
        if not making.cancelled():
            making.exception()  # retrieved: the caller has it, or has stopped waiting


def known_name(namespace: str, name: str, missing: Callable[[str, str], Refusal] = no_such_table) -> TableName:
    """The name of an existing table or view. Raises what `missing` returns: none can have it."""
    with suppress(Invalid):
        found = table_name(f"{namespace}.{name}")
        if namespace_of(found) == namespace:  # else `name` has a dot
            return found
    raise missing(namespace, name)
