"""Creating, changing, registering and dropping tables for engines.

Owns: the specification's requests about tables, the order of their checks. Does not own: requirements and updates
(`table_changes`), exports (`rootline.catalog`), the rules of changes (`rootline.tree`).
Invariants: a table's location is always the catalog's own. Nothing is published before the whole request was checked.
A change whose intent was committed is never answered with a 4xx.
"""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from rootline.catalog.export_keys import FormatVersion, version_of_metadata
from rootline.catalog.metadata_log import shown_at
from rootline.catalog.rest.catalog import known_name
from rootline.catalog.rest.responses import Refusal, bad_request
from rootline.catalog.table_metadata import VERSION, staged_metadata
from rootline.client.create_drop import create_table, drop_table, restore_table
from rootline.client.iceberg_tables import adopt_table
from rootline.client.planned_change import commit_planned
from rootline.client.session import Commit
from rootline.library_log import library_logger
from rootline.rest.appends import ClientAppend
from rootline.rest.bodies import Renaming, TableToCreate, TableToRegister, Updates
from rootline.rest.refusals import about, refusal_of_change, requirement_failed, table_exists
from rootline.rest.table_changes import (
    ShownTable,
    TableCommit,
    bound_uuid,
    new_definition,
    parsed_commit,
    updates_of,
)
from rootline.rest.writing import Writing, once
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid, RootlineError
from rootline.schemas.identifiers import TableName, Version, name_in_namespace, namespace_of, snapshot_id_of, table_name
from rootline.schemas.intent import Intent, IntentKind, Isolation
from rootline.schemas.object_keys import is_absolute
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import name_state, newest_root, read_root
from rootline.tree.evolution.changes import DefinitionChanges, SetCurrentSchema
from rootline.tree.evolution.next_definition import evolved, replaced_definition

_UNREADABLE: Final = frozenset({"metadata-unreadable", "file-unreadable", "object-missing", "leaf-corrupt"})
_log: Final = library_logger("rootline.catalog")


async def create(writing: Writing, namespace: str, asked: TableToCreate, format_version: FormatVersion | None) -> bytes:
    """Create a table, or only describe it if it is to be staged. Raises `Refusal`."""
    table = (await _free_name(writing, namespace, asked.name)).table
    with about(table):
        fresh = _fresh_uuid(writing)
        definition = new_definition(bound_uuid(fresh, table) if asked.stage_create else fresh, updates_of(table, asked))
        stated = writing.check_shown(definition, format_version).metadata()
        if not asked.stage_create:
            await create_table(writing.session, writing.stamp, table, definition, timeout_s=writing.timeout_s)
            await writing.catalog.make_folder(table)
            return await writing.answer(table, format_version)
    await writing.catalog.make_folder(table)
    folder = writing.catalog.folder(table, writing.catalog.format_of(format_version, definition.properties))
    metadata = staged_metadata(definition.table_uuid, stated, folder, writing.session.environment.now_ms())
    return writing.catalog.staged(metadata)


async def register(
    writing: Writing, namespace: str, asked: TableToRegister, format_version: FormatVersion | None
) -> bytes:
    """Adopt an Iceberg table, or restore the table that was dropped last under the name. Raises `Refusal`."""
    if asked.overwrite:
        raise bad_request(f"{asked.name:.80}: overwrite is not supported: drop the table first")
    session, location = writing.session, asked.metadata_location
    if not location.startswith("/") and not is_absolute(location):
        raise bad_request(f"{asked.name:.80}: metadata-location {location[:200]!r} is relative: give a URL")
    table = (await _free_name(writing, namespace, asked.name)).table
    with about(table):
        dropped = await newest_root(session.store, table)
        if dropped is not None and await _is_last_export(writing, dropped, location):
            await restore_table(session, writing.stamp, table, timeout_s=writing.timeout_s)
        else:
            await _adopt(writing, table, location)
    return await writing.answer(table, format_version)


async def commit(
    writing: Writing, namespace: str, name: str, asked: Updates, format_version: FormatVersion | None
) -> bytes:
    """Commit an engine's updates as one intent, or none if they change nothing. Raises `Refusal`."""
    table = known_name(namespace, name)
    with about(table):
        wanted = parsed_commit(table, asked)

        async def work(request: str = "") -> bytes:
            appending = ClientAppend(writing, table, wanted, format_version, request)
            if wanted.is_create:
                await _create_staged(writing, table, wanted, format_version, appending)
                return await writing.answer(table, format_version)
            if wanted.snapshots and (done := await appending.commit()) is not None:
                return await writing.answer(table, format_version, done.version)
            if await _change(writing, table, wanted, format_version) is None:
                return await writing.load(table, format_version)
            return await writing.answer(table, format_version)

        async def repeatable(request: str) -> bytes:
            try:
                return await work(request)
            except (Refusal, RootlineError) as error:
                if wanted.snapshots:
                    appending = ClientAppend(writing, table, wanted, format_version, request)
                    is_done = not await appending.refused(refusal_of_change(error, table), error)
                else:
                    is_done = await _is_created(writing, table, wanted, format_version)
                if not is_done:
                    raise
                return await writing.answer(table, format_version)

        if wanted.snapshots or wanted.is_create:
            return await once(writing, table, asked, format_version, repeatable)
        return await work()


async def drop(writing: Writing, namespace: str, name: str, *, is_purge: bool) -> None:
    """Drop a table. A purge deletes its files too. Raises `Refusal`."""
    table = known_name(namespace, name)
    await writing.head(table)
    with about(table):
        await drop_table(writing.session, writing.stamp, table, is_purge=is_purge, timeout_s=writing.timeout_s)


async def rename(writing: Writing, asked: Renaming) -> None:
    """Refuse to rename a table, with the reason that an engine expects."""
    source, destination = known_name(asked.source.parent, asked.source.name), asked.destination.dotted
    await writing.head(source)
    try:
        await _free_name(writing, asked.destination.parent, asked.destination.name)
    except Refusal as refusal:
        if refusal.status == 409:
            what = "View" if await _state(writing, table_name(destination)) is NameState.VIEW else "Table"
            words = f"Cannot rename {source} to {destination}. {what} already exists"
            raise Refusal(refusal.status, refusal.kind, words) from None
        raise
    raise Refusal(
        406,
        "UnsupportedOperationException",
        f"{source}: a table cannot be renamed, because its name is the folder of its files; create a table of the new "
        "name from its rows",
    )


async def _adopt(writing: Writing, table: TableName, location: str) -> None:
    """Adopt the table at `location`.

    Raises:
        Refusal: it cannot be read. The words do not show whether the server has a file there.
    """
    try:
        await adopt_table(writing.session, writing.stamp, table, location, dry_run=False, timeout_s=writing.timeout_s)
    except (Invalid, Corrupt) as error:
        if error.code not in _UNREADABLE:
            raise
        _log.warning("a table was not registered", action="catalog-register", table=table, reason=error.message)
        raise bad_request(
            f"{table}: no Iceberg table can be read at {location[:200]}: the server's log has the reason; check the "
            "location, the files that it names, and that the server may read them"
        ) from error


async def _check_is_there(
    writing: Writing, table: TableName, wanted: TableCommit, format_version: FormatVersion | None
) -> None:
    """Check that `main` is set to a commit that is in the table: the newest, or one that a client knows by its own id.

    A client sends this after a refused attempt, when it finds that its commit is there. It means no rollback.
    """
    metadata = await writing.metadata(table, format_version)
    listed = {each["snapshot-id"]: each for each in metadata["snapshots"]}
    found = None if wanted.main is None else listed.get(wanted.main)
    if found is not None and not wanted.definitions:
        version = Version(int(found["summary"].get(VERSION, 0)))
        is_own = found["snapshot-id"] == snapshot_id_of(uuid.UUID(metadata["table-uuid"]), version)
        if not is_own or wanted.main == metadata["current-snapshot-id"]:
            return
    raise bad_request(
        f"{table}: set-snapshot-ref {wanted.main}: this catalog does not move main to an older snapshot: restore the "
        "version with rootline.connect"
    )


async def _create_staged(
    writing: Writing,
    table: TableName,
    wanted: TableCommit,
    format_version: FormatVersion | None,
    appending: ClientAppend,
) -> None:
    try:
        free = await _free_name(writing, namespace_of(table), name_in_namespace(table))
    except Refusal as refusal:
        if refusal.status == 409 and await _state(writing, table) is NameState.TABLE:
            raise requirement_failed("table already exists") from None
        if refusal.status == 404 and wanted.snapshots:  # the namespace was there when the create was staged
            raise Refusal(
                500, "CommitStateUnknownException", f"{table}: {refusal.message}: load it to find out"
            ) from None
        raise
    shown_by_default = writing.catalog.format_of(format_version, {})
    wanted.check_location(table, writing.catalog.folder(table, shown_by_default).base)
    wanted.check_uuid(table)
    wanted.check_served()
    definition = wanted.first_definition(_fresh_uuid(writing), shown_by_default)
    writing.check_shown(definition, format_version)
    try:
        if wanted.snapshots and await appending.create(definition, free.version):
            return
        await create_table(writing.session, writing.stamp, table, definition, timeout_s=writing.timeout_s)
    except Invalid as error:
        if error.code == "table-dropped":  # the uuid is one of a table that was dropped; not the table of the request
            raise bad_request(error.message) from error
        raise


async def _is_created(
    writing: Writing, table: TableName, wanted: TableCommit, format_version: FormatVersion | None
) -> bool:
    """Whether the table is the one that the request creates: it has the assigned UUID, and the same definition."""
    root, staged = await newest_root(writing.session.store, table), wanted.table_uuid
    if root is None or root.header.is_tombstone or staged is None or root.header.table_uuid != staged:
        return False
    made = wanted.first_definition(staged, writing.catalog.format_of(format_version, {}))
    return made.to_json() == (await writing.definition(root)).to_json()


async def _change(
    writing: Writing, table: TableName, wanted: TableCommit, asked: FormatVersion | None
) -> Commit | None:
    """Commit the updates. Returns `None` if they change nothing, so that nothing was published."""
    session = writing.session

    async def plan() -> Intent | None:
        root = await writing.head(table)
        header, before = root.header, await writing.definition(root)
        format_version = writing.catalog.format_of(asked, before.properties)
        shown = ShownTable(table, before, format_version, writing.catalog.folder(table, format_version).base)
        wanted.check_requirements(shown, await writing.refs(table, asked) if wanted.needs_refs else {})
        wanted.check_served()
        if wanted.main is not None and not wanted.snapshots:
            await _check_is_there(writing, table, wanted, asked)
        is_replace = wanted.is_replace or (wanted.may_replace and not await writing.refs(table, asked))
        changes = wanted.changes_of(shown, header.definition.digest, is_replace=is_replace)
        if is_replace:
            planned = _replace(writing, header, before, changes, asked)
        else:
            after = before if changes is None else evolved(before, changes)
            if changes is None or after is before:
                return None
            writing.check_shown(after, asked)
            planned = Intent(
                intent_id=session.environment.fresh_id(),
                table=table,
                table_uuid=header.table_uuid,
                kind=IntentKind.ALTER,
                definition=changes.to_json(),
            )
        if not wanted.needs_refs and (wanted.is_replace or not is_replace):
            return planned
        # no row may be added or removed between this check and the commit
        number = header.snapshot.sequence_number
        read = {"isolation": Isolation.SERIALIZABLE, "read_sequence_number": number, "filter": "true"}
        return planned.model_copy(update=read)

    return await commit_planned(session, writing.stamp, plan, timeout_s=writing.timeout_s)


def _replace(
    writing: Writing,
    header: RootHeader,
    before: TableDefinition,
    changes: DefinitionChanges | None,
    asked: FormatVersion | None,
) -> Intent:
    """The intent that removes all rows, and makes these changes of the definition."""
    kept = SetCurrentSchema(before.current_schema_id)
    made = DefinitionChanges(header.definition.digest, (kept,) if changes is None else changes.changes)
    after = replaced_definition(before, made)
    writing.check_shown(after, asked)
    return Intent(
        intent_id=writing.session.environment.fresh_id(),
        table=header.table,
        table_uuid=header.table_uuid,
        kind=IntentKind.REPLACE,
        schema_id=after.current_schema_id,
        definition=made.to_json(),
    )


async def _state(writing: Writing, table: TableName) -> NameState | None:
    return await name_state(writing.session.store, table)


class _FreeName(NamedTuple):
    """A name that a new table may have. `version`: the newest version of the name, 0 if it was never used."""

    table: TableName
    version: Version


async def _free_name(writing: Writing, namespace: str, name: str) -> _FreeName:
    """The name for a new table. Raises `Refusal`: it is invalid or taken, or the namespace does not exist."""
    await writing.catalog.namespace(namespace)
    with about(f"{namespace}.{name}"):
        table = table_name(f"{namespace}.{name}")
        if name_in_namespace(table) != name:
            raise bad_request(f"{name[:80]!r} has a dot; a table's name has none")
        root = await newest_root(writing.session.store, table)
        state = None if root is None else root.header.name.state
        if state is NameState.TABLE:
            raise table_exists(table)
        if state is NameState.VIEW:
            raise Invalid("name-is-view", f"{table} is a view: choose another name")
    return _FreeName(table, Version(0) if root is None else root.header.version)


def _fresh_uuid(writing: Writing) -> uuid.UUID:
    return uuid.UUID(writing.session.environment.fresh_id())


async def _is_last_export(writing: Writing, dropped: Root, location: str) -> bool:
    """Whether `location` is an export of the last version of the table that was dropped last under its name.

    Raises:
        Refusal: it is an export of an earlier version, which a restore would not give back.
    """
    header, store = dropped.header, writing.session.store
    own = f"{writing.catalog.folder(header.table, FormatVersion.V3).base}/export/"
    version = version_of_metadata(location) if location.startswith(own) else None
    if version is None or not header.name.drops:
        return False

    async def read(at: Version) -> Root:
        return await read_root(store, header.table, at)

    try:
        last = await read(Version(header.name.drops[-1].version - 1))
    except Corrupt as error:
        if error.code == "object-missing":  # it has expired, so nothing shows which version its exports show
            return False
        raise
    shown = await shown_at(last, last.header.versions.oldest, read)
    if version < shown.header.version:
        raise bad_request(
            f"{header.table}: {location[:200]} is an export of version {version}, and the table was dropped at version "
            f"{shown.header.version}: `rootline table restore {header.table}` restores it"
        )
    return True
