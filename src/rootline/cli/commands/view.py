"""`rootline view`: create, replace, show, list, roll back and drop views.

Owns: arguments and what is printed. Does not own: views (`rootline.client`).
Invariants: `show`, `list` and `history` only read; a change waits for its verdict.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.open_lake import lake_to_change, lake_to_read
from rootline.cli.options import Json, Log, Timeout, Warehouse

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

app = typer.Typer(help="Create, change, list and show views.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="VIEW", help="The view, as namespace.view.", show_default=False)]
Sql = Annotated[
    str, typer.Option("--sql", help="The SQL text; it is stored, and neither run nor checked.", show_default=False)
]
Dialect = Annotated[str, typer.Option("--dialect", help="The dialect of the SQL text.")]
Columns = Annotated[
    Path | None,
    typer.Option("--schema", help="JSON file with the columns, as of `rootline table create`. Default: it names none."),
]
Properties = Annotated[
    list[str] | None, typer.Option("--property", help="A property, as key=value; repeat for more. Default: none.")
]


@app.command("create")
def create(
    name: Name,
    sql: Sql,
    dialect: Dialect = "spark",
    schema: Columns = None,
    properties: Properties = None,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Create a view and wait until it exists."""
    from rootline.cli import output
    from rootline.cli.key_values import key_values

    with lake_to_change(warehouse, log) as lake:
        lake.create_view(
            name,
            sql,
            dialect=dialect,
            schema=_columns(schema),
            properties=key_values(properties),
            timeout_s=timeout_s,
        )
    output.line(as_json, {"view": name, "created": True}, f"created {name}")


@app.command("replace")
def replace(
    name: Name,
    sql: Sql,
    dialect: Dialect = "spark",
    schema: Columns = None,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Give a view another version."""
    from rootline.cli import output

    with lake_to_change(warehouse, log) as lake:
        view = lake.view(name)
        view.replace(sql, dialect=dialect, schema=_columns(schema), timeout_s=timeout_s)
        version = view.metadata().current_version_id
    output.line(as_json, {"view": name, "version": version}, f"{name} is at version {version}")


@app.command("rollback")
def rollback(
    name: Name,
    version: Annotated[int, typer.Option("--version", min=1, help="The version to make current.", show_default=False)],
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Make an earlier version of a view current again."""
    from rootline.cli import output

    with lake_to_change(warehouse, log) as lake:
        lake.view(name).rollback(version, timeout_s=timeout_s)
    output.line(as_json, {"view": name, "version": version}, f"{name} is at version {version}")


@app.command("show")
def show(name: Name, warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Show a view's SQL in each dialect, its columns and its properties."""
    import json

    from rootline.cli import output

    with lake_to_read(warehouse, log) as lake:
        view = lake.view(name).metadata()
    current = view.current_version
    lines = [f"{name}, version {current.version_id}"]
    for text in current.sql_texts:
        lines += [f"{text.dialect}:", *(f"  {line}" for line in text.sql.splitlines())]
    schema = None if current.named_schema_id is None else view.schema_by_id(current.named_schema_id)
    if schema is not None:
        lines += ["columns:", *(f"  {field.name} {field.field_type}" for field in schema.fields)]
    properties = view.properties or {}
    if properties:
        lines += ["properties:", *(f"  {key}={properties[key]}" for key in sorted(properties))]
    record: dict[str, Any] = {"view": name, **json.loads(view.to_json())}
    output.line(as_json, record, "\n".join(lines))


@app.command("history")
def history(name: Name, warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Show which version of a view was current from when on."""
    from rootline.cli import output

    with lake_to_read(warehouse, log) as lake:
        view = lake.view(name).metadata()
    records = [
        {
            "from": output.moment(entry.timestamp_ms),
            "version": entry.version_id,
            "dialects": ",".join(text.dialect for text in view.version_by_id(entry.version_id).sql_texts),
        }
        for entry in view.version_log
    ]
    output.rows(as_json, records, ["from", "version", "dialects"], empty=f"{name}: no history")


@app.command("list")
def list_views(
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="Only the views of this namespace. Default: all.")
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """List the views of the warehouse."""
    from rootline.cli import output

    with lake_to_read(warehouse, log) as lake:
        records = [{"view": name} for name in lake.views(namespace)]
    output.rows(as_json, records, ["view"], empty="no views; `rootline view create` makes one")


@app.command("drop")
def drop(
    name: Name, timeout_s: Timeout = 30.0, warehouse: Warehouse = None, log: Log = None, as_json: Json = False
) -> None:
    """Drop a view: its name is free."""
    from rootline.cli import output

    with lake_to_change(warehouse, log) as lake:
        lake.view(name).drop(timeout_s=timeout_s)
    output.line(as_json, {"view": name, "dropped": True}, f"dropped {name}")


def _columns(path: Path | None) -> Schema | None:
    from rootline.cli.schema_file import read_schema

    return None if path is None else read_schema(path)
