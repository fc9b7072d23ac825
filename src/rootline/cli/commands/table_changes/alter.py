"""`rootline table alter`: change columns, partitioning, sort order and properties.

Owns: the options, and turning them into steps. Does not own: what is legal (`rootline.tree.evolution`), planning again
when another change came first (`rootline.client.change.alter_table`).
Invariants: all options of one call are one commit; they are carried out in the order of the help text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_change
from rootline.cli.options import Json, Log, TableArgument, Timeout, Warehouse

Texts = list[str] | None


def alter(
    name: TableArgument,
    add: Annotated[
        Texts,
        typer.Option(
            "--add",
            help="A new column, as gate=string, or at.gate=string for a field of a struct; repeat. Default: none.",
        ),
    ] = None,
    rename: Annotated[
        Texts, typer.Option("--rename", help="A new name for a column, as old=new; repeat. Default: none.")
    ] = None,
    widen: Annotated[
        Texts,
        typer.Option(
            "--type", help="A wider type, as flight=long: int, float, fewer digits become wider; repeat. Default: none."
        ),
    ] = None,
    identifiers: Annotated[
        str | None,
        typer.Option(
            "--identifier-fields", help="The columns that identify a row, as a,b; '' for none. Default: as they are."
        ),
    ] = None,
    drop: Annotated[
        Texts, typer.Option("--drop", help="A column to drop; its values stay in files; repeat. Default: none.")
    ] = None,
    optional: Annotated[
        Texts, typer.Option("--optional", help="A required column that may be null now; repeat. Default: none.")
    ] = None,
    doc: Annotated[
        Texts, typer.Option("--doc", help="A column's comment, as gate='of the terminal'; repeat. Default: none.")
    ] = None,
    first: Annotated[
        Texts, typer.Option("--first", help="A column to move to the front; repeat. Default: none.")
    ] = None,
    after: Annotated[
        Texts, typer.Option("--after", help="A column to move behind another, as gate=id; repeat. Default: none.")
    ] = None,
    add_field: Annotated[
        Texts,
        typer.Option(
            "--add-partition-field",
            help="Partition new files by month(ts), bucket(8, id), … too; repeat. Default: none.",
        ),
    ] = None,
    drop_field: Annotated[
        Texts,
        typer.Option(
            "--drop-partition-field",
            help="A partition field that new files are to lack: its name, or month(ts); repeat. Default: none.",
        ),
    ] = None,
    rename_field: Annotated[
        Texts,
        typer.Option(
            "--rename-partition-field", help="A new name for a partition field, as old=new; repeat. Default: none."
        ),
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option(
            "--set-sort-order",
            help="How rows of new files are sorted, as 'city, -ts nulls first'; '' for not. Default: as it is.",
        ),
    ] = None,
    properties: Annotated[
        Texts, typer.Option("--property", help="A property to set, as key=value; repeat. Default: none.")
    ] = None,
    remove: Annotated[
        Texts, typer.Option("--remove-property", help="A table property to remove; repeat. Default: none.")
    ] = None,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Change columns, partitioning, sort order and properties in one commit. Files stay as they are, and writers may
    go on as they are.

    Options are carried out in the order of this text; a later one sees what the earlier ones made.
    """
    from rootline.cli import output
    from rootline.client.write.sort_terms import split_terms

    with lake_to_change(warehouse, log) as lake, lake.table(name).alter(timeout_s=timeout_s) as change:
        for path, kind in _pairs("--add", add):
            change.add_column(path, kind)
        for path, new in _pairs("--rename", rename):
            change.rename_column(path, new)
        for path, kind in _pairs("--type", widen):
            change.update_column(path, kind)
        if identifiers is not None:
            change.set_identifier_fields(*(path.strip() for path in identifiers.split(",") if path.strip()))
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
        output.line(as_json, {"table": name, "changed": False}, f"{name}: nothing to change")
        return
    version = change.commit.version
    output.line(as_json, {"table": name, "changed": True, "version": version}, f"{name}: changed, version {version}")


def _pairs(option: str, items: Texts) -> Iterator[tuple[str, str]]:
    from rootline.schemas.errors import Invalid

    for item in items or ():
        left, equals, right = item.partition("=")
        if not left.strip() or not equals:
            raise Invalid("setting-invalid", f"{option} {item!r}: write it with an equals sign, as in name=value")
        yield left.strip(), right.strip()
