"""The parts that every writing request uses: the open lake, the catalog that answers, the deadline of a verdict.

Owns: these parts, reading a table's head, the response after a commit, one run for all copies of a request. Does not
own: opening the lake (`rootline.cli`), requests (`namespaces`, `tables`, `views`).
Invariants: all of them run on the catalog's event loop. A request without a verdict in time is an unknown outcome, and
never a refusal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from weakref import WeakValueDictionary

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.catalog.rest.catalog import RestCatalog
from rootline.catalog.rest.responses import SnapshotMode, no_such_table
from rootline.client.session import Session, WriterStamp
from rootline.rest.bodies import Updates
from rootline.rest.refusals import about, after_commit
from rootline.schemas.bytes.manifest_codec import ListedManifest
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, Version, name_in_namespace, namespace_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.read_cache import PlanningReads
from rootline.storage.metadata.root_reader import read_definition, table_root

RunningCommits = dict[tuple[str, FormatVersion | None], asyncio.Task[bytes]]
READ_AT_ONCE: Final = 64
READ_OF_ONE_TABLE: Final = 32
LARGE_LISTS_AT_ONCE: Final = 16
LARGE_LISTS_OF_ONE_TABLE: Final = 8
SMALL_BYTES: Final = 128 * 1024
_NO_TABLE: Final = frozenset({"table-unknown", "table-dropped", "name-is-view"})


class FairTurns:
    """At most `turns` at once. One table uses or awaits at most `of_one_table` of them, and its other requests queue
    for these. So many requests for one table do not delay those for another one.
    """

    def __init__(self, turns: int = 1, of_one_table: int = 1) -> None:
        self._all, self._of_one_table = asyncio.Semaphore(turns), of_one_table
        self._tables: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, table: TableName) -> AsyncIterator[None]:
        """Have a turn in the block."""
        own = self._tables.setdefault(table, asyncio.Semaphore(self._of_one_table))
        async with own, self._all:
            yield


@dataclass(frozen=True, slots=True)
class CommitsAtOnce:
    """The commits with files that run now, bounded in number and in memory.

    `running`: digest of a request and format of its response → its task, whose result is the response. `reading`: the
    commits whose manifests are read. `large`: one commit at a time may have many files. `large_lists`: the manifest
    lists above `SMALL_BYTES` that are in memory. `bases`: manifest list of an export → its manifests.
    """

    running: RunningCommits = field(default_factory=dict)
    reading: FairTurns = field(default_factory=lambda: FairTurns(READ_AT_ONCE, READ_OF_ONE_TABLE))
    large: FairTurns = field(default_factory=FairTurns)
    large_lists: FairTurns = field(default_factory=lambda: FairTurns(LARGE_LISTS_AT_ONCE, LARGE_LISTS_OF_ONE_TABLE))
    bases: dict[str, Mapping[str, ListedManifest]] = field(default_factory=dict)
    _small_turn: FairTurns = field(default_factory=FairTurns)
    _turn: FairTurns = field(default_factory=FairTurns)

    def turn(self, table: TableName, size_in_bytes: int) -> AbstractAsyncContextManager[None]:
        """The turn to decode a list or a manifest of this size on a thread.

        They are decoded one at a time, because threads would only compete for one interpreter. A small one does not
        wait for the large ones of other clients.
        """
        return (self._small_turn if size_in_bytes <= SMALL_BYTES else self._turn).of(table)


@dataclass(frozen=True, slots=True)
class Writing:
    """The lake, and the catalog that serves it. `timeout_s` is the longest wait for a verdict, in seconds."""

    session: Session
    catalog: RestCatalog
    timeout_s: float
    stamp: WriterStamp = field(default_factory=WriterStamp)
    commits: CommitsAtOnce = field(default_factory=CommitsAtOnce)

    async def head(self, table: TableName) -> Root:
        """The newest root of a table. Raises `Refusal` if the table does not exist."""
        with about(table):
            try:
                cache = self.session.cache
                root = await table_root(self.session.store, table, cache.root(table))
                cache.keep_root(root)
                return root
            except Invalid as error:
                if error.code in _NO_TABLE:
                    raise no_such_table(namespace_of(table), name_in_namespace(table)) from None
                raise

    async def definition(self, root: Root) -> TableDefinition:
        """The definition that a root names. It is cached."""
        reads = PlanningReads(self.session.store, self.session.cache)
        found = await read_definition(reads, root.header)
        reads.keep()
        return found

    async def answer(
        self, table: TableName, format_version: FormatVersion | None, committed: Version | None = None
    ) -> bytes:
        """The response for a table whose change is committed, in version `committed` if that is known."""
        with after_commit(table):
            return await self.load(table, format_version, committed)

    async def load(
        self, table: TableName, format_version: FormatVersion | None, committed: Version | None = None
    ) -> bytes:
        """The response for a table. `committed`: see `TableExporter.export`."""
        namespace, name = namespace_of(table), name_in_namespace(table)
        loaded = await self.catalog.load(namespace, name, format_version, SnapshotMode.ALL, None, committed)
        assert loaded.body is not None, "no entity tag was given"
        return loaded.body

    async def metadata(self, table: TableName, format_version: FormatVersion | None) -> dict[str, Any]:
        """The metadata of a table, as engines see it."""
        found: dict[str, Any] = json.loads(await self.load(table, format_version))["metadata"]
        return found

    async def refs(self, table: TableName, format_version: FormatVersion | None) -> dict[str, int]:
        """The branch and the tags of a table, as engines see them."""
        refs = (await self.metadata(table, format_version)).get("refs", {})
        return {name: each["snapshot-id"] for name, each in refs.items()}

    def check_shown(self, definition: TableDefinition, format_version: FormatVersion | None) -> ExportedDefinition:
        """The definition in the form for engines. It is checked before it is published.

        Raises:
            Invalid: `export-unsupported`; `definition-invalid`, it has no column.
        """
        if not definition.schema.fields:
            raise Invalid("definition-invalid", "a table needs at least one column, and the schema has none")
        return ExportedDefinition.of(definition, self.catalog.format_of(format_version, definition.properties))


async def once(
    writing: Writing,
    table: TableName,
    asked: Updates,
    shown: FormatVersion | None,
    work: Callable[[str], Awaitable[bytes]],
) -> bytes:
    """The response of `work`, which gets the digest of the request. A running copy of the request shares it.

    `shown`: the format of the response, as the client asked for it.
    """
    request = await asyncio.to_thread(_digest_of, table, asked)
    running, key = writing.commits.running, (request, shown)
    task = running.get(key)
    if task is None:
        task = running[key] = asyncio.ensure_future(work(request))
        task.add_done_callback(lambda done: _forget(running, key, done))
    return await asyncio.shield(task)


def _forget(running: RunningCommits, key: tuple[str, FormatVersion | None], done: asyncio.Task[bytes]) -> None:
    running.pop(key, None)
    if not done.cancelled():
        done.exception()  # retrieved: its callers have it, or wait no longer


def _digest_of(table: TableName, asked: Updates) -> str:
    return sha256(f"{table}\0{asked.model_dump_json()}".encode()).hexdigest()
