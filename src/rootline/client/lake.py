"""A lake: tables, producers, and the connection they share.

Owns: the public entry to the client, creating tables. Does not own: namespaces and views (`lake_names`), the choice of
adapters (`rootline.connect`), the behaviour of tables (`table_handle`).
Invariants: every method may be called from any thread. A lake may be pickled or forked into another process, where it
opens its own connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from rootline.client import checks
from rootline.client.checks import DEFAULT_TARGET_BYTES, DEFAULT_TIMEOUT_S
from rootline.client.lake_names import LakeNames
from rootline.client.session import Session, SessionHolder, WriterStamp
from rootline.schemas.errors import Invalid
from rootline.storage.metadata.root_reader import root_if_readable

if TYPE_CHECKING:
    from rootline.client.async_table import AsyncTableHandle
    from rootline.client.iceberg_tables import Adopted
    from rootline.client.layout_terms import SortBy
    from rootline.client.producer import AsyncProducer, Producer
    from rootline.client.session import Commit
    from rootline.client.table_handle import TableHandle

CLOSE_PATIENCE_S: Final = 30.0


class LakeAddress(Protocol):
    """The address of a lake and the way to open it. It can be pickled."""

    @property
    def name(self) -> str:
        """The lake's name in messages."""
        ...

    async def open(self) -> Session:
        """Open it in this process."""
        ...


class Lake(LakeNames):
    """A warehouse and its log, opened by `rootline.connect`. Close it, or use it in a `with` statement.

    Every method may be called from any thread. After `close`, each raises `Invalid` (`lake-closed`).
    """

    def __init__(self, address: LakeAddress) -> None:
        self._address = address
        self.holder = SessionHolder(f"lake {address.name}", address.open)
        self.stamp = WriterStamp()

    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        partition_by: Sequence[str] = (),
        expressions: Sequence[str] = (),
        sort_by: SortBy = (),
        identifier_fields: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> TableHandle:
        """Create the table `name` (`namespace.table`) and wait until it exists.

        Args:
            name: letters, digits, `_` and `-` on both sides of a dot. The namespace may have several levels (`a.b.t`).
            schema: an Arrow schema, an Iceberg one (its ids are kept), a data frame of pandas or Polars (its columns,
                not its rows), or a dict of names and types: words such as `long`, `string not null`, `list<double>`,
                Arrow types, and dicts for structs.
            partition_by: `column`, `month(column)`, `bucket(8, column)`, `bucket(8, one, other)`, …, each with an
                optional `as name`.
            expressions: derived values for which files have statistics: the same terms, and `lower(column)`.
            sort_by: the order of rows inside new files: `["city", "-ts", "bucket(16, id)"]`, with `nulls first` or
                `nulls last` behind a term to change the default (first ascending, last descending), or PyIceberg's
                `SortOrder`.
            identifier_fields: the columns that identify a row: `["id"]`, `["route.id"]` for a member of a struct. They
                must be required. `upsert` finds rows by them. By default an Iceberg schema states them.
            properties: the table's properties, text to text.
            if_not_exists: accept an existing table of this name that has all of these columns. It is not changed, even
                if its types, partitioning, sort order, identifier fields or properties differ.
            timeout_s: the waiting time for the verdict, in seconds.

        Returns:
            The table, empty unless it already existed.

        Raises:
            Invalid: `table-exists` (with `if_not_exists`: and lacks columns), `definition-invalid`,
                `table-name-invalid`, `property-invalid`.
            OutcomeUnknown: `verdict-timeout`. `table` shows whether it exists.
        """
        from rootline.client.create_drop import build_definition, create_table, is_there
        from rootline.client.given_schema import given_schema
        from rootline.client.layout_terms import given_order
        from rootline.client.table_handle import TableHandle

        checked, wait_s = checks.table(name), checks.seconds(timeout_s)
        may_be_there = checks.truth(if_not_exists, "if_not_exists")
        identifiers = None if identifier_fields is None else checks.texts(identifier_fields, "identifier_fields")
        definition = build_definition(
            given_schema(schema),
            partition_by=checks.texts(partition_by, "partition_by"),
            expressions=checks.texts(expressions, "expressions"),
            sort_by=given_order(sort_by),
            identifier_fields=identifiers,
            properties=checks.table_properties(properties),
            table_uuid=uuid.uuid4(),
        )

        async def operation(session: Session) -> None:
            if may_be_there and await is_there(session, checked, definition):
                return
            try:
                await create_table(session, self.stamp, checked, definition, timeout_s=wait_s)
            except Invalid as error:  # another caller may have created it first
                if error.code != "table-exists" or not (may_be_there and await is_there(session, checked, definition)):
                    raise

        self.holder.run(operation)
        return TableHandle(self, checked)

    def adopt(
        self, metadata_location: str, name: str, *, dry_run: bool = False, timeout_s: float | None = None
    ) -> Adopted:
        """Make an Iceberg table of V1 to V3 the table `name` of this lake, without rewriting a file.

        Stop its writers first: their later commits are not in this table. The old table's files and metadata are not
        moved or changed. Its history until now can be read through its own metadata.

        Args:
            metadata_location: its current metadata.json: a URL (`file:`, `s3:`), or a local path.
            name: the table's name in this lake, `namespace.table`.
            dry_run: only plan the adoption, and change nothing.
            timeout_s: the waiting time for the verdict, in seconds. `None`: 600.

        Returns:
            The plan, and the commit, which is `None` after a dry run.

        Raises:
            Invalid: `table-exists`, `adoption-unsupported`, `adoption-invalid`, `metadata-unreadable`,
                `file-unreadable`, `table-name-invalid`.
            Corrupt: `object-missing`, `leaf-corrupt`: an object that the metadata names is missing or damaged.
            OutcomeUnknown: `verdict-timeout`.
        """
        from rootline.client.iceberg_tables import ADOPTION_TIMEOUT_S, adopt_table

        checked, location = checks.table(name), checks.place(metadata_location, "metadata_location")
        is_plan_only = checks.truth(dry_run, "dry_run")
        wait_s = ADOPTION_TIMEOUT_S if timeout_s is None else checks.seconds(timeout_s)
        return self.holder.run(
            lambda session: adopt_table(session, self.stamp, checked, location, dry_run=is_plan_only, timeout_s=wait_s)
        )

    def table(self, name: str) -> TableHandle:
        """The table `name` (`namespace.table`).

        Raises:
            Invalid: `table-unknown`, the warehouse has no table of this name; `table-dropped`; `table-name-invalid`.
            Unavailable: `store-unavailable`.

        """
        from rootline.client.table_handle import TableHandle

        checked = checks.table(name)

        async def operation(session: Session) -> None:
            root = await root_if_readable(session.store, checked, session.cache.root(checked))
            if root is not None:
                session.cache.keep_root(root)  # for the first scan

        self.holder.run(operation)
        return TableHandle(self, checked)

    def async_table(self, name: str) -> AsyncTableHandle:
        """The table `name` (`namespace.table`), for coroutines. Nothing is read before its methods are called.

        Raises:
            Invalid: `table-name-invalid`. Methods of a table that is not there raise `table-unknown`.
        """
        from rootline.client.async_table import AsyncTableHandle

        return AsyncTableHandle(self, checks.table(name))

    def replace_table(
        self,
        name: str,
        schema: Any = None,
        data: Any = None,
        *,
        partition_by: Sequence[str] = (),
        sort_by: SortBy = (),
        properties: Mapping[str, str] | None = None,
        create: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        target_file_size_bytes: int = DEFAULT_TARGET_BYTES,
    ) -> TableHandle:
        """Replace the columns and rows of the table `name` in one commit. Its UUID and history are kept.

        `table.replace` describes the effect on other writers. Unlike there, partitioning and sort order that are not
        given are dropped. Arguments are as in `create_table`, and:

        Args:
            name: the table's name.
            schema: its columns, or `None` for those of `data`.
            data: the new rows, as in `append`, or `None` for an empty table.
            partition_by: as in `create_table`.
            sort_by: as in `create_table`.
            properties: properties to set in addition to the existing ones.
            create: create the table if there is none. It exists, empty, before its rows are committed.
            timeout_s: the waiting time for the verdict, in seconds.
            target_file_size_bytes: the approximate size of a data file.

        Raises:
            Invalid: `table-unknown`, `table-dropped` (without `create`), `name-is-view`, `definition-invalid`,
                `evolution-illegal`, `rows-invalid`, `property-invalid`, `setting-invalid`.
            OutcomeUnknown: `verdict-timeout`.
        """
        from rootline.client.given_rows import GivenRows
        from rootline.client.replace_table import Replacement, create_or_replace, replace_table
        from rootline.client.table_handle import TableHandle

        rows = None if data is None else GivenRows.of(data)
        if schema is None and rows is None:
            raise Invalid("definition-invalid", f"{name}: give the columns as schema, or rows that have them as data")
        columns = rows.own_columns if schema is None and rows is not None else schema
        becomes = Replacement.of(columns, partition_by, sort_by, properties)
        checked, options = checks.table(name), checks.write_options(timeout_s, target_file_size_bytes, None)
        change = create_or_replace if checks.truth(create, "create") else replace_table
        self.holder.run(lambda session: change(session, self.stamp, checked, becomes, rows, *options))
        return TableHandle(self, checked)

    def drop_table(self, name: str, *, purge: bool = False, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Drop a table, and wait until its name is free.

        Its files stay. `restore_table` restores it unchanged, as long as no new table has its name.

        Args:
            name: the table's name.
            purge: also delete its files, once no reader can be using them. The table cannot be restored then. This
                works for a table that was dropped before, too.
            timeout_s: the waiting time for the verdict, in seconds.

        Raises:
            Invalid: `table-unknown`, `table-dropped`; `table-uuid-mismatch`, another table took the name meanwhile.
            OutcomeUnknown: `verdict-timeout`. `table` shows whether it still exists.
        """
        from rootline.client.create_drop import drop_table

        checked, wait_s = checks.table(name), checks.seconds(timeout_s)
        is_purge = checks.truth(purge, "purge")
        return self.holder.run(
            lambda session: drop_table(session, self.stamp, checked, is_purge=is_purge, timeout_s=wait_s)
        )

    def restore_table(self, name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> TableHandle:
        """Restore the table that was last dropped under this name, unchanged, and return it.

        Raises:
            Invalid: `table-unknown`; `table-exists`, a table has the name; `table-dropped`, it was purged.
            OutcomeUnknown: `verdict-timeout`. `table` shows whether it exists.
        """
        from rootline.client.create_drop import restore_table
        from rootline.client.table_handle import TableHandle

        checked, wait_s = checks.table(name), checks.seconds(timeout_s)
        self.holder.run(lambda session: restore_table(session, self.stamp, checked, timeout_s=wait_s))
        return TableHandle(self, checked)

    def list_tables(self) -> list[str]:
        """The names of all tables, sorted. Raises `Unavailable` (`store-unavailable`)."""
        return self.holder.run(_table_names)

    def producer(self, writer_id: str | None = None) -> Producer:
        """A producer of intents.

        Without `writer_id`, the producer gets a fresh id and numbers its intents itself. With one (1 to 256
        characters), the caller numbers them, per table, and passes `writer_sequence` to every `publish`. A restarted
        program can then continue its sequence. Raises `Invalid` (`setting-invalid`) for an invalid id.
        """
        from rootline.client.producer import Producer

        return Producer(self.holder, _writer(writer_id))

    def async_producer(self, writer_id: str | None = None) -> AsyncProducer:
        """The same as `producer`, for coroutines."""
        from rootline.client.producer import AsyncProducer

        return AsyncProducer(self.holder, _writer(writer_id))

    def close(self, *, patience_s: float = CLOSE_PATIENCE_S) -> None:
        """Refuse new calls, let running ones end, drain a coordinator hosted here, close all connections.

        A second call does nothing. Calls still running after `patience_s` seconds are cancelled and raise
        `OutcomeUnknown`.
        """
        self.holder.close(checks.seconds(patience_s, "patience_s"))

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Lake {self._address.name}>"

    def __reduce__(self) -> tuple[type[Lake], tuple[LakeAddress]]:
        return Lake, (self._address,)


def _writer(writer_id: str | None) -> str | None:
    return None if writer_id is None else checks.text(writer_id, "writer_id")


async def _table_names(session: Session) -> list[str]:
    from rootline.storage.metadata.root_reader import list_tables

    return sorted(await list_tables(session.store))
