"""`rootline table`: create, list, describe, accept; the others are in `table_changes`.

Owns: arguments and how definitions are shown. Does not own: definitions (`rootline.client`).
Invariants: a change waits for its verdict; `accept` changes nothing without `--yes`, and ends with 1 while there is
something to accept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rootline.cli.commands.table_changes.alter import alter
from rootline.cli.commands.table_changes.drop import drop, restore
from rootline.cli.commands.table_changes.replace import replace
from rootline.cli.definition_text import column_lines, layout_lines, members_text
from rootline.cli.open_lake import lake_to_change, lake_to_read
from rootline.cli.options import Json, Log, TableArgument, Timeout, Warehouse

app = typer.Typer(help="Create, change, list and describe tables.", no_args_is_help=True, rich_markup_mode=None)
app.command("alter")(alter)
app.command("drop")(drop)
app.command("restore")(restore)
app.command("replace")(replace)


@app.command("create")
def create(
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
            help="Partition by carrier, month(time_hour), bucket(8, carrier), …; repeat for more. "
            "Default: not partitioned.",
        ),
    ] = None,
    expressions: Annotated[
        list[str] | None,
        typer.Option(
            "--expression", help="Keep statistics of lower(name), day(time_hour), …; repeat for more. Default: none."
        ),
    ] = None,
    sort_by: Annotated[
        str,
        typer.Option(
            "--sort-by", help="How rows are sorted inside files, as 'city, -ts nulls first'. Default: they are not."
        ),
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", help="A table property, as key=value; repeat for more. Default: none."),
    ] = None,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Create a table and wait until it exists."""
    from rootline.cli import output
    from rootline.cli.schema_file import read_schema
    from rootline.client.write.sort_terms import split_terms
    from rootline.schemas.errors import Invalid

    pairs: dict[str, str] = {}
    for item in properties or []:
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise Invalid("setting-invalid", f"--property {item!r}: write key=value")
        pairs[key] = value
    columns = read_schema(schema)
    with lake_to_change(warehouse, log) as lake:
        handle = lake.create_table(
            name,
            schema=columns,
            partition_by=partition_by or (),
            expressions=expressions or (),
            sort_by=split_terms(sort_by),
            properties=pairs,
            timeout_s=timeout_s,
        )
        record = {"table": name, "table_uuid": str(handle.definition().table_uuid), "created": True}
    output.line(as_json, record, f"created {name}")


@app.command("list")
def list_tables(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """List the tables of the warehouse."""
    from rootline.cli import output

    with lake_to_read(warehouse, log) as lake:
        records = [{"table": name} for name in lake.list_tables()]
    output.rows(as_json, records, ["table"], empty="no tables; `rootline table create` makes one")


@app.command("describe")
def describe(name: TableArgument, warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Show a table's columns, partitioning, sort order, properties and totals, and the size of its roots."""
    import json

    from rootline.cli import output
    from rootline.client.read.time_travel import read_head
    from rootline.client.session.session import Session
    from rootline.schemas.bytes.root.root_codec import Root

    async def newest(session: Session) -> Root:
        return await read_head(session.store, handle.name)

    with lake_to_read(warehouse, log) as lake:
        handle = lake.table(name)
        definition, root = handle.definition(), lake.holder.run(newest)
    header = root.header
    roots = {
        "bytes": root.size_in_bytes,
        "retained": header.version - header.oldest_version + 1,
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
    output.line(as_json, record, "\n".join(lines))


@app.command("accept")
def accept(
    name: TableArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without --yes, only show what would be done.")] = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Go on after `head-lost` or `log-behind-root`, with what is there. Start the coordinator again afterwards.

    After `head-lost`, from the newest root that the store still has. After `log-behind-root`, the log becomes another
    one: its records without a verdict are decided for all tables, and those that a table has already are duplicates.
    For an embedded log. Without --yes nothing is changed; ends with 1 while there is something to accept.
    """
    import asyncio

    from rootline.cli import output
    from rootline.cli.failure import ExitCode
    from rootline.cli.options import required
    from rootline.connect import accept_log, is_kafka, log_behind_root, open_stored_log, open_warehouse
    from rootline.schemas.errors import Invalid
    from rootline.schemas.identifiers import TableName
    from rootline.storage.metadata.table_head import newest_root

    if is_kafka(log):
        raise Invalid(
            "setting-invalid",
            f"{name}: this is for an embedded log. On Kafka only the coordinators that run know what was "
            "confirmed. Bring the roots back and run "
            f"`rootline quarantine lift {name}`; to go on without them, start the coordinators again",
        )

    async def held() -> tuple[int | None, int | None, str | None]:
        store, kept = open_warehouse(required(warehouse)), open_stored_log(log, required(warehouse))
        try:
            confirmed = await kept.confirmed_version(name)
            head = await newest_root(store, TableName(name))
            found = None if head is None else int(head.header.version)
            if yes and is_lost(found, confirmed):
                await kept.accept_head(name, found)
            behind = None if head is None else log_behind_root(log, required(warehouse), head.header)
            if yes and behind is not None:
                await accept_log(log, required(warehouse), kept)
            return found, confirmed, behind
        finally:
            await kept.close()
            await store.close()

    def is_lost(found: int | None, confirmed: int | None) -> bool:
        return confirmed is not None and (found is None or found < confirmed)

    found, confirmed, behind = asyncio.run(held())
    if behind is None and not is_lost(found, confirmed):
        output.note(as_json, f"there is nothing to accept: no version of {name} is known to be lost")
        return
    record = {"table": name, "head": found, "confirmed": confirmed, "log_behind_root": behind, "accepted": yes}
    if behind is not None:
        output.line(as_json, record, behind)
    else:
        shown = "the store has no root" if found is None else f"the store's newest root is version {found}"
        output.line(as_json, record, f"{name}: {shown}, version {confirmed} was confirmed: what came between is lost")
    if not yes:
        output.note(as_json, "nothing was changed; to go on without it, stop the coordinator and repeat with --yes")
        raise typer.Exit(ExitCode.NO)
