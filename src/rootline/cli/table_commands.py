"""`rootline table create`, `describe`, `alter`, `drop`, `replace` and `accept`.

Owns: arguments, turning the options of `alter` into steps, printing a definition. Does not own: definitions and changes
(`rootline.client`), the rules of a change (`rootline.tree.evolution`), `table list` and `restore` (`command_table`).
Invariants: a change waits for its verdict. All options of one call are one commit, and `alter` carries them out in the
order of its help. `accept` changes nothing without `--yes`, and ends with 1 while there is something to accept. A purge
cannot be undone, so it needs `--yes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rootline.cli.options import (
    Given,
    TableArgument,
    Timeout,
    Yes,
    key_values,
)
from rootline.cli.output import ExitCode
from rootline.schemas.errors import Invalid

Texts = list[str] | None


def create(
    given: Given,
    name: TableArgument,
    schema: Annotated[
        Path,
        typer.Option(
            "--schema",
            help='JSON file with the columns: {"carrier": "string not null", "flight": "int"}, or an Iceberg schema.',
            show_default=False,
        ),
    ],
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            help="Partition by carrier, month(time_hour), bucket(8, carrier), …. Repeat for more. "
            "Default: not partitioned.",
        ),
    ] = None,
    expressions: Annotated[
        list[str] | None,
        typer.Option(
            "--expression", help="Keep statistics of lower(name), day(time_hour), …. Repeat for more. Default: none."
        ),
    ] = None,
    sort_by: Annotated[
        str,
        typer.Option(
            "--sort-by", help="How rows are sorted inside files, as 'city, -ts nulls first'. Default: they are not."
        ),
    ] = "",
    identifiers: Annotated[
        str | None,
        typer.Option("--identifier-fields", help="The columns that identify a row, as a,b. Default: the schema's."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", help="A table property, as key=value. Repeat for more. Default: none."),
    ] = None,
    timeout_s: Timeout = 30.0,
) -> None:
    """Create a table and wait until it exists."""
    from rootline.cli.definition_text import read_schema
    from rootline.client.layout_terms import split_terms

    pairs = key_values(properties)
    columns = read_schema(schema)
    with given.lake_to_change() as lake:
        handle = lake.create_table(
            name,
            schema=columns,
            partition_by=partition_by or (),
            expressions=expressions or (),
            sort_by=split_terms(sort_by),
            identifier_fields=None if identifiers is None else _paths(identifiers),
            properties=pairs,
            timeout_s=timeout_s,
        )
        record = {"table": name, "table_uuid": str(handle.definition().table_uuid), "created": True}
    given.line(record, f"created {name}")


def _paths(text: str) -> list[str]:
    return [path.strip() for path in text.split(",") if path.strip()]


def describe(given: Given, name: TableArgument) -> None:
    """Show a table's columns, partitioning, sort order, properties and totals, and the size of its roots."""
    from rootline.cli.definition_text import column_lines, layout_lines, members_text
    from rootline.client.session import Session
    from rootline.client.time_travel import read_head
    from rootline.schemas.bytes.root.root_codec import Root

    async def newest(session: Session) -> Root:
        return await read_head(session.store, handle.name)

    with given.lake_to_read() as lake:
        handle = lake.table(name)
        definition, root = handle.definition(), lake.holder.run(newest)
    header = root.header
    roots = {
        "bytes": root.size_in_bytes,
        "retained": header.version - header.versions.oldest + 1,
        "retained_bytes": header.kept_bytes + root.size_in_bytes,
    }
    totals = {key: getattr(header.totals, key) for key in header.totals.__slots__}
    record: dict[str, Any] = {
        "table": name,
        "version": header.version,
        "snapshot_id": header.snapshot.snapshot_id,
        "totals": totals,
        "roots": roots,
        "definition": json.loads(definition.to_json()),
    }
    lines = [f"{name}  version {header.version}  uuid {definition.table_uuid}", "columns:", *column_lines(definition)]
    spec = definition.spec_by_id(definition.default_spec_id)
    lines.append(f"partitioned by: {members_text(definition, spec) or 'nothing'}")
    lines += layout_lines(definition)
    lines += [f"property {key} = {value}" for key, value in sorted(definition.properties.items())]
    lines.append("totals: " + ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in totals.items()))
    lines.append(
        f"roots: {roots['bytes']:,} bytes the newest; {roots['retained']:,} kept, {roots['retained_bytes']:,} bytes"
    )
    given.line(record, "\n".join(lines))


def accept(
    given: Given,
    name: TableArgument,
    yes: Yes = False,
) -> None:
    """Accept the loss after `head-lost` or `log-behind-root`. Start the coordinator again afterwards.

    After `head-lost`, the table continues from the newest root in the store. After `log-behind-root`, the log becomes
    another one: its records without a verdict are decided for all tables, and those that a table has already are
    duplicates. This works only with an embedded log. Without --yes nothing is changed. Ends with 1 while there is
    something to accept.
    """
    import asyncio

    from rootline.connect import accept_log, is_kafka, log_behind_root, open_stored_log, open_warehouse
    from rootline.schemas.identifiers import TableName
    from rootline.storage.metadata.root_reader import newest_root

    if is_kafka(given.log):
        raise Invalid(
            "setting-invalid",
            f"{name}: `table accept` is for an embedded log. On Kafka only the running coordinators know the "
            "confirmed versions. Restore the roots and run "
            f"`rootline quarantine lift {name}`; to continue without them, start the coordinators again",
        )

    async def compare() -> tuple[int | None, int | None, str | None]:
        store, stored_log = open_warehouse(given.place), open_stored_log(given.log, given.place)
        try:
            confirmed = await stored_log.confirmed_version(name)
            head = await newest_root(store, TableName(name))
            found = None if head is None else int(head.header.version)
            if yes and is_lost(found, confirmed):
                await stored_log.accept_head(name, found)
            behind = None if head is None else log_behind_root(given.log, given.place, head.header)
            if yes and behind is not None:
                await accept_log(given.log, given.place, stored_log)
            return found, confirmed, behind
        finally:
            await stored_log.close()
            await store.close()

    def is_lost(found: int | None, confirmed: int | None) -> bool:
        return confirmed is not None and (found is None or found < confirmed)

    found, confirmed, behind = asyncio.run(compare())
    if behind is None and not is_lost(found, confirmed):
        given.note(f"there is nothing to accept: no version of {name} is known to be lost")
        return
    record = {"table": name, "head": found, "confirmed": confirmed, "log_behind_root": behind, "accepted": yes}
    if behind is not None:
        given.line(record, behind)
    else:
        shown = "the store has no root" if found is None else f"the store's newest root is version {found}"
        given.line(record, f"{name}: {shown}, version {confirmed} was confirmed: the versions between are lost")
    if not yes:
        given.note("nothing was changed; to continue without it, stop the coordinator and repeat with --yes")
        raise typer.Exit(ExitCode.NO)


def alter(
    given: Given,
    name: TableArgument,
    add: Annotated[
        Texts,
        typer.Option(
            "--add",
            help="A new column, as gate=string, or at.gate=string for a field of a struct. Repeat for more. "
            "Default: none.",
        ),
    ] = None,
    rename: Annotated[
        Texts, typer.Option("--rename", help="A new name for a column, as old=new. Repeat for more. Default: none.")
    ] = None,
    widen: Annotated[
        Texts,
        typer.Option(
            "--type",
            help="A wider type, as flight=long: int, float, fewer digits become wider. Repeat for more. Default: none.",
        ),
    ] = None,
    identifiers: Annotated[
        str | None,
        typer.Option(
            "--identifier-fields", help="The columns that identify a row, as a,b, or '' for none. Default: unchanged."
        ),
    ] = None,
    drop: Annotated[
        Texts,
        typer.Option("--drop", help="A column to drop. Its values stay in files. Repeat for more. Default: none."),
    ] = None,
    optional: Annotated[
        Texts,
        typer.Option("--optional", help="A required column that may be null now. Repeat for more. Default: none."),
    ] = None,
    doc: Annotated[
        Texts,
        typer.Option("--doc", help="A column's comment, as gate='of the terminal'. Repeat for more. Default: none."),
    ] = None,
    first: Annotated[
        Texts, typer.Option("--first", help="A column to move to the front. Repeat for more. Default: none.")
    ] = None,
    after: Annotated[
        Texts,
        typer.Option("--after", help="A column to move behind another, as gate=id. Repeat for more. Default: none."),
    ] = None,
    add_field: Annotated[
        Texts,
        typer.Option(
            "--add-partition-field",
            help="Partition new files by month(ts), bucket(8, id), … too. Repeat for more. Default: none.",
        ),
    ] = None,
    drop_field: Annotated[
        Texts,
        typer.Option(
            "--drop-partition-field",
            help="A partition field that new files are to lack: its name, or month(ts). Repeat for more. "
            "Default: none.",
        ),
    ] = None,
    rename_field: Annotated[
        Texts,
        typer.Option(
            "--rename-partition-field",
            help="A new name for a partition field, as old=new. Repeat for more. Default: none.",
        ),
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option(
            "--set-sort-order",
            help="How rows of new files are sorted, as 'city, -ts nulls first', or '' for not at all. "
            "Default: unchanged.",
        ),
    ] = None,
    properties: Annotated[
        Texts, typer.Option("--property", help="A property to set, as key=value. Repeat for more. Default: none.")
    ] = None,
    remove: Annotated[
        Texts, typer.Option("--remove-property", help="A table property to remove. Repeat for more. Default: none.")
    ] = None,
    timeout_s: Timeout = 30.0,
) -> None:
    """Change columns, partitioning, sort order and properties in one commit. Files stay unchanged, and
    writers may continue.

    Options are carried out in the order of this text. A later one sees the result of the earlier ones.
    """
    from rootline.client.layout_terms import split_terms

    with given.lake_to_change() as lake, lake.table(name).alter(timeout_s=timeout_s) as change:
        for path, kind in _pairs("--add", add):
            change.add_column(path, kind)
        for path, new in _pairs("--rename", rename):
            change.rename_column(path, new)
        for path, kind in _pairs("--type", widen):
            change.update_column(path, kind)
        if identifiers is not None:
            change.set_identifier_fields(*_paths(identifiers))
        for path in drop or ():
            change.drop_column(path)
        for path in optional or ():
            change.update_column(path, required=False)
        for path, text in _pairs("--doc", doc):
            change.update_column(path, doc=text)
        for path in first or ():
            change.move_column(path, first=True)
        for path, other in _pairs("--after", after):
            change.move_column(path, after=other)
        for term in add_field or ():
            change.add_partition_field(term)
        for name_or_term in drop_field or ():
            change.drop_partition_field(name_or_term)
        for field, new in _pairs("--rename-partition-field", rename_field):
            change.rename_partition_field(field, new)
        if sort_by is not None:
            change.set_sort_order(split_terms(sort_by))
        if properties:
            change.set_properties(dict(_pairs("--property", properties)))
        if remove:
            change.remove_properties(*remove)
    if change.commit is None:
        given.line({"table": name, "changed": False}, f"{name}: nothing to change")
        return
    version = change.commit.version
    given.line({"table": name, "changed": True, "version": version}, f"{name}: changed, version {version}")


def _pairs(option: str, items: Texts) -> Iterator[tuple[str, str]]:
    for item in items or ():
        left, equals, right = item.partition("=")
        if not left.strip() or not equals:
            raise Invalid("setting-invalid", f"{option} {item!r}: write it with an equals sign, as in name=value")
        yield left.strip(), right.strip()


def drop(
    given: Given,
    name: TableArgument,
    purge: Annotated[
        bool, typer.Option("--purge", help="Expire its files too. The table cannot be restored then. Needs --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it, even if it cannot be undone.")] = False,
    timeout_s: Timeout = 30.0,
) -> None:
    """Drop a table, so that its name is free. `rootline table restore` restores it, unless it was purged."""
    if purge and not yes:
        raise Invalid("setting-invalid", f"a purged table cannot be restored: repeat with --yes to purge {name}")
    with given.lake_to_change() as lake:
        commit = lake.drop_table(name, purge=purge, timeout_s=timeout_s)
    done = "purged" if purge else "dropped"
    given.line({"table": name, done: True, "version": commit.version}, f"{done} {name}, version {commit.version}")


def replace(
    given: Given,
    name: TableArgument,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="JSON file with the new columns, as for `table create`. Default: they stay."),
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="Parquet file with the new rows. Default: the table is empty.")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            help="Partition by month(ts), …, or '' for not at all. Repeat for more. Default: unchanged.",
        ),
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option(
            "--sort-by", help="How rows are sorted, as 'city, -ts', or '' for not at all. Default: unchanged."
        ),
    ] = None,
    timeout_s: Timeout = 30.0,
) -> None:
    """Empty a table, and give it other columns and rows, in one commit.

    Its history stays, and `rootline restore` returns to it.
    """
    from rootline.cli.definition_text import read_schema
    from rootline.client.layout_terms import split_terms

    columns = None if schema is None else read_schema(schema)
    data = None if rows is None else _rows_of(rows)
    terms = None if partition_by is None else [term for term in partition_by if term.strip()]
    with given.lake_to_change() as lake:
        commit = lake.table(name).replace(
            data,
            schema=columns,
            partition_by=terms,
            sort_by=None if sort_by is None else split_terms(sort_by),
            timeout_s=timeout_s,
        )
    given.line(
        {"table": name, "replaced": True, "version": commit.version},
        f"replaced {name}, version {commit.version}",
    )


def _rows_of(path: Path) -> object:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise Invalid("rows-invalid", f"--rows {path}: it cannot be read as Parquet: {error!s:.200}") from error
