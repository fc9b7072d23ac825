"""`rootline namespace`: create, list, describe, change and drop namespaces.

Owns: arguments and what is printed. Does not own: namespaces (`rootline.client.namespaces`).
Invariants: `list` and `describe` only read; a change has been stored when its command ends with 0.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_change, lake_to_read
from rootline.cli.options import Json, Log, Timeout, Warehouse
from rootline.schemas.errors import Invalid

app = typer.Typer(
    help="Create, list, describe, change and drop namespaces.", no_args_is_help=True, rich_markup_mode=None
)
Name = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="The namespace: a, or several levels, a.b.", show_default=False)
]
Properties = Annotated[
    list[str] | None, typer.Option("--property", help="A property, as key=value; repeat for more. Default: none.")
]


@app.command("create")
def create(
    name: Name,
    properties: Properties = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A namespace of this name is what is wanted.")
    ] = False,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Create a namespace. A table needs none: it makes its own."""
    from rootline.cli import output
    from rootline.cli.key_values import key_values

    pairs = key_values(properties)
    with lake_to_change(warehouse, log) as lake:
        lake.create_namespace(name, pairs, if_not_exists=if_not_exists, timeout_s=timeout_s)
    output.line(as_json, {"namespace": name, "created": True}, f"{name} exists")


@app.command("list")
def list_namespaces(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """List the namespaces of the warehouse: those that were created, and those that have a table."""
    from rootline.cli import output

    with lake_to_read(warehouse, log) as lake:
        records = [{"namespace": name} for name in lake.namespaces()]
    output.rows(as_json, records, ["namespace"], empty="no namespaces; `rootline namespace create` makes one")


@app.command("describe")
def describe(name: Name, warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Show the properties of a namespace."""
    from rootline.cli import output

    with lake_to_read(warehouse, log) as lake:
        properties = lake.namespace_properties(name)
    lines = "".join(f"\n  {key}={properties[key]}" for key in sorted(properties)) or " no properties"
    output.line(as_json, {"namespace": name, "properties": properties}, f"{name}:{lines}")


@app.command("set")
def set_properties(
    name: Name,
    properties: Properties = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="A property to remove; repeat for more. Default: none.")
    ] = None,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Set properties of a namespace, or remove some."""
    from rootline.cli import output
    from rootline.cli.key_values import key_values
    from rootline.client import checks
    from rootline.client.namespaces import change_properties

    pairs, removed = key_values(properties), list(remove or [])
    if both := sorted(set(pairs) & set(removed)):
        raise Invalid("setting-invalid", f"{both[0]!r} is both set and removed: give it once")
    if not pairs and not removed:
        raise Invalid("setting-invalid", "nothing is to change: give --property key=value, or --remove key")
    checked = checks.namespace(name)
    with lake_to_change(warehouse, log) as lake:
        lake.holder.run(lambda session: change_properties(session, checked, pairs, removed, timeout_s=timeout_s))
        properties_now = lake.namespace_properties(name)
    output.line(as_json, {"namespace": name, "properties": properties_now}, f"changed {name}")


@app.command("drop")
def drop(
    name: Name, timeout_s: Timeout = 30.0, warehouse: Warehouse = None, log: Log = None, as_json: Json = False
) -> None:
    """Drop a namespace that is empty."""
    from rootline.cli import output

    with lake_to_change(warehouse, log) as lake:
        lake.drop_namespace(name, timeout_s=timeout_s)
    output.line(as_json, {"namespace": name, "dropped": True}, f"dropped {name}")
