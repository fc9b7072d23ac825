"""A warehouse as the REST catalog shows it: namespaces, tables, and a table's export.

Owns: what each question costs, its deadline, what is counted. Does not own: HTTP (`routes`), making exports
(`exporter`), finding tables (`table_directory`).
Invariants: read-only but for the exports themselves; the answer on a table is its newest version at the time of the
request; a caller that stops waiting does not stop what others wait for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from rootline.catalog.manifest.format_version import FormatVersion
from rootline.catalog.rest.answers import SnapshotMode, etag_of, is_known, table_body, view_body
from rootline.catalog.rest.errors import NO_TABLE, no_such_namespace, no_such_table, no_such_view
from rootline.catalog.rest.metrics import CatalogMetrics
from rootline.catalog.rest.table_directory import TableDirectory
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName, namespace_of, table_name
from rootline.schemas.object_keys import root_key
from rootline.schemas.root_header import NameState
from rootline.storage.metadata.root_reader import newest_root, view_of

if TYPE_CHECKING:
    from rootline.catalog.export.exporter import ExportedTable, TableExporter

_LARGE_BYTES: Final = 100_000
"""Metadata of this size or more is parsed in a thread."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """The answer on a table; `body` is `None` if the engine has it already."""

    etag: str
    body: bytes | None


class RestCatalog:
    """One warehouse. All methods run on the event loop of `store`."""

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
        """`storage`: the store's settings that engines get; `default_format`: for an engine that names none."""
        self.metrics = metrics
        self._store = store
        self._exporter = exporter
        self._directory = TableDirectory(store)
        self._storage = dict(storage or {})
        self._default_format = default_format
        self._timeout_s = request_timeout_s
        self._making: set[asyncio.Task[ExportedTable]] = set()
        self._logger = structlog.get_logger()

    async def namespaces(self, parent: str = "") -> list[str]:
        """The namespaces one level below `parent`, ascending. Raises `Refusal`: there is no such parent."""
        found = await self._directory.below(parent)
        if found is None:
            raise no_such_namespace(parent)
        return found

    async def namespace(self, namespace: str) -> dict[str, str]:
        """Its properties. Raises `Refusal`: there is no such namespace."""
        found = await self._directory.properties(namespace)
        if found is None:
            raise no_such_namespace(namespace)
        return found

    async def tables(self, namespace: str) -> list[str]:
        """The names of its tables, ascending. Raises `Refusal`: there is no such namespace."""
        found = await self._directory.tables(namespace)
        if not found:
            await self.namespace(namespace)
        return found

    async def views(self, namespace: str) -> list[str]:
        """The names of its views, ascending. Raises `Refusal`: there is no such namespace."""
        found = await self._directory.views(namespace)
        if not found:
            await self.namespace(namespace)
        return found

    async def view_exists(self, namespace: str, name: str) -> None:
        """Return if the view exists. Raises `Refusal`: it does not."""
        checked = _name(namespace, name)
        if checked is None or not await self._directory.exists(checked, NameState.VIEW):
            raise no_such_view(namespace, name)

    async def view(self, namespace: str, name: str) -> bytes:
        """The answer on a view.

        Raises:
            Refusal: there is no such view.
            Corrupt: it cannot be read.
            Unavailable: the store does not answer.

        """
        checked = _name(namespace, name)
        root = None if checked is None else await newest_root(self._store, checked)
        if checked is None or root is None or root.header.name_is is not NameState.VIEW:
            raise no_such_view(namespace, name)
        key = root_key(checked, root.header.version)
        return view_body(view_of(root.header), f"{self._exporter.base_url}/{key}")

    async def table_exists(self, namespace: str, name: str) -> None:
        """Return if the table exists. Raises `Refusal`: it does not."""
        if not await self._directory.exists(_table(namespace, name)):
            raise no_such_table(namespace, name)

    async def reach(self) -> None:
        """Ask the store for something small. Raises `Unavailable`: it does not answer."""
        await self._store.folders("")

    async def load(
        self, namespace: str, name: str, format_version: FormatVersion | None, mode: SnapshotMode, known: str | None
    ) -> LoadedTable:
        """A table's newest version; `known`: the entity tags that the engine has.

        Raises:
            Refusal: there is no such table.
            Invalid: `export-unsupported`.
            Corrupt: what the export is made from is damaged.
            Unavailable: the store does not answer, or the export is not done in time.

        """
        table = _table(namespace, name)
        making = asyncio.ensure_future(self._export(table, format_version or self._default_format))
        self._making.add(making)
        making.add_done_callback(self._made)
        done, _ = await asyncio.wait({making}, timeout=self._timeout_s)
        if not done:
            raise Unavailable(
                "export-unfinished",
                f"{table}: its export is not done after {self._timeout_s:g} s; it goes on: ask again",
            )
        exported = making.result()
        etag = etag_of(exported, mode, self._storage)
        if is_known(etag, known):
            return LoadedTable(etag, None)
        if mode is SnapshotMode.REFS and len(exported.metadata) > _LARGE_BYTES:
            return LoadedTable(etag, await asyncio.to_thread(table_body, exported, mode, self._storage))
        return LoadedTable(etag, table_body(exported, mode, self._storage))

    async def close(self) -> None:
        """Stop the exports under way; the store stays open."""
        for making in self._making:
            making.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        await self._exporter.close()

    async def _export(self, table: TableName, format_version: FormatVersion | None) -> ExportedTable:
        began = time.monotonic()
        try:
            exported = await self._exporter.export(table, format_version)
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
            making.exception()  # the caller was told, or is gone


def _table(namespace: str, name: str) -> TableName:
    found = _name(namespace, name)
    if found is None:
        raise no_such_table(namespace, name)
    return found


def _name(namespace: str, name: str) -> TableName | None:
    try:
        found = table_name(f"{namespace}.{name}")
    except Invalid:
        return None
    return found if namespace_of(found) == namespace else None  # else the name has a dot
