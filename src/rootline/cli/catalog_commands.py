"""`rootline namespace`, `view`, `adopt` and `export`: names of a lake, and tables from and for other engines.

Owns: arguments and printing. Does not own: namespaces and views (`rootline.client`), the plan of an adoption
(`rootline.catalog.adoption_plan`), exports (`rootline.catalog`), the commands of one call (`command_table`).
Invariants: a change was stored when its command ends with 0. A dry run of `adopt` publishes nothing and hosts no
coordinator. `export` needs no log and no coordinator, and changes nothing but add an export to the warehouse.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.options import (
    AtVersion,
    DryRun,
    ExportFormat,
    Given,
    NamespaceArgument,
    Properties,
    TableArgument,
    Timeout,
    ViewArgument,
    format_version,
    key_values,
)
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from rootline.catalog.adoption_plan import AdoptionPlan


def create_namespace(
    given: Given,
    name: NamespaceArgument,
    properties: Properties = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the namespace exists already.")
    ] = False,
    timeout_s: Timeout = 30.0,
) -> None:
    """Create a namespace. Before a table is created, this is not needed: a namespace with a table in it exists."""
    pairs = key_values(properties)
    with given.lake_to_change() as lake:
        lake.create_namespace(name, pairs, if_not_exists=if_not_exists, timeout_s=timeout_s)
    given.line({"namespace": name, "created": True}, f"{name} exists")


def set_properties(
    given: Given,
    name: NamespaceArgument,
    properties: Properties = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="A property to remove. Repeat for more. Default: none.")
    ] = None,
    timeout_s: Timeout = 30.0,
) -> None:
    """Set properties of a namespace, or remove some."""
    from rootline.client import checks
    from rootline.client.lake_names import change_properties

    pairs, removed = key_values(properties), list(remove or [])
    if both := sorted(set(pairs) & set(removed)):
        raise Invalid("setting-invalid", f"{both[0]!r} is both set and removed: give it once")
    if not pairs and not removed:
        raise Invalid("setting-invalid", "nothing to change: give --property key=value, or --remove key")
    checked = checks.namespace(name)
    with given.lake_to_change() as lake:
        lake.holder.run(lambda session: change_properties(session, checked, pairs, removed, timeout_s=timeout_s))
        properties_now = lake.namespace_properties(name)
    given.line({"namespace": name, "properties": properties_now}, f"changed {name}")


Sql = Annotated[
    str, typer.Option("--sql", help="The SQL text. It is stored, and neither run nor checked.", show_default=False)
]
Dialect = Annotated[str, typer.Option("--dialect", help="The dialect of the SQL text.")]
Columns = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="JSON file with the columns, as of `rootline table create`. Default: none are named."
    ),
]


def create_view(
    given: Given,
    name: ViewArgument,
    sql: Sql,
    dialect: Dialect = "spark",
    schema: Columns = None,
    properties: Properties = None,
    timeout_s: Timeout = 30.0,
) -> None:
    """Create a view and wait until it exists."""
    with given.lake_to_change() as lake:
        lake.create_view(
            name,
            sql,
            dialect=dialect,
            schema=_columns(schema),
            properties=key_values(properties),
            timeout_s=timeout_s,
        )
    given.line({"view": name, "created": True}, f"created {name}")


def replace_view(
    given: Given,
    name: ViewArgument,
    sql: Sql,
    dialect: Dialect = "spark",
    schema: Columns = None,
    timeout_s: Timeout = 30.0,
) -> None:
    """Give a view another version."""
    with given.lake_to_change() as lake:
        view = lake.view(name)
        view.replace(sql, dialect=dialect, schema=_columns(schema), timeout_s=timeout_s)
        version = view.metadata().current_version_id
    given.line({"view": name, "version": version}, f"{name} is at version {version}")


def show_view(given: Given, name: ViewArgument) -> None:
    """Show a view's SQL in each dialect, its columns and its properties."""
    with given.lake_to_read() as lake:
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
    given.line(record, "\n".join(lines))


def _columns(path: Path | None) -> Schema | None:
    from rootline.cli.definition_text import read_schema

    return None if path is None else read_schema(path)


def adopt(
    given: Given,
    metadata: Annotated[
        str,
        typer.Argument(
            metavar="METADATA_JSON",
            help="The Iceberg table's current metadata.json: a path, or a file:// or s3:// URL.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="Its name in this lake, as namespace.table.", show_default=False)
    ],
    dry_run: DryRun = False,
    timeout_s: Timeout = 600.0,
) -> None:
    """Make an Iceberg table (V1 to V3) a table of this lake, without rewriting a file. Stop its writers first."""
    with given.lake_to_read() if dry_run else given.lake_to_change() as lake:
        adopted = lake.adopt(metadata, name, dry_run=dry_run, timeout_s=timeout_s)
    record = {**_plan_record(adopted.plan), "adopted": adopted.commit is not None}
    lines = _plan_lines(adopted.plan)
    if adopted.commit is None:
        lines.append("dry run: nothing was written")
    else:
        record["version"] = adopted.commit.version
        lines.append(f"adopted as {name}, version {adopted.commit.version}; its old metadata is unchanged")
    given.line(record, "\n".join(lines))


def _plan_record(plan: AdoptionPlan) -> dict[str, Any]:
    definition, totals, deletes = plan.definition, plan.totals, plan.deletes
    return {
        "table": plan.table,
        "metadata": plan.location,
        "format_version": plan.format_version,
        "table_uuid": str(definition.table_uuid),
        "snapshot_id": plan.snapshot_id,
        "snapshots_before": plan.snapshots_before,
        "schemas": [schema.schema_id for schema in definition.schemas],
        "current_schema_id": definition.current_schema_id,
        "columns": [{"id": field.field_id, "name": field.name} for field in definition.schema.fields],
        "expressions": [
            {"id": one.expr_id, "transform": one.transform, "source_ids": list(one.source_ids), "name": one.name}
            for one in definition.expressions
        ],
        "partition_specs": [
            {"id": spec.spec_id, "members": list(spec.expr_ids), "names": list(spec.names)}
            for spec in definition.partition_specs
        ],
        "default_spec_id": definition.default_spec_id,
        "data_manifests": totals.data_manifests,
        "delete_manifests": totals.delete_manifests,
        "manifest_bytes": plan.manifest_bytes,
        "data_files": totals.data_files,
        "data_bytes": totals.data_bytes,
        "rows": totals.rows,
        "deletion_vectors": deletes.vectors,
        "position_delete_files": deletes.position_delete_files,
        "equality_delete_files": deletes.equality_delete_files,
        "deleted_rows": totals.deleted_rows,
        "last_sequence_number": plan.sequence_number,
        "next_row_id": plan.next_row_id,
        "warnings": list(plan.warnings),
    }


def _plan_lines(plan: AdoptionPlan) -> list[str]:
    from rootline.cli.definition_text import column_lines, members_text

    definition, totals, deletes = plan.definition, plan.totals, plan.deletes
    lines = [
        f"{plan.table}  from {plan.location}",
        f"  Iceberg V{plan.format_version}, uuid {definition.table_uuid}, "
        + (f"snapshot {plan.snapshot_id}" if plan.snapshot_id is not None else "no snapshot: an empty table"),
        f"schemas: {len(definition.schemas)}, current {definition.current_schema_id}",
    ]
    lines += column_lines(definition)
    lines.append(f"partition specs: {len(definition.partition_specs)}, default {definition.default_spec_id}")
    for spec in definition.partition_specs:
        lines.append(f"  {spec.spec_id:>4}  {members_text(definition, spec, with_ids=True) or 'unpartitioned'}")
    kinds = {
        "deletion vectors": deletes.vectors,
        "position delete files": deletes.position_delete_files,
        "equality delete files": deletes.equality_delete_files,
    }
    shown = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    lines += [
        f"manifests: {totals.data_manifests:,} of data, {totals.delete_manifests:,} of deletes, "
        f"{plan.manifest_bytes:,} bytes; each becomes a leaf unchanged",
        f"files: {totals.data_files:,} with {totals.rows:,} rows, {totals.data_bytes:,} bytes; none is rewritten",
        f"deletes: {shown or 'none'}",
        f"numbers: sequence numbers continue after {plan.sequence_number:,}, row ids from {plan.next_row_id:,}",
        f"before adoption: {plan.snapshots_before:,} snapshots, which stay readable through {plan.location}",
    ]
    return [*lines, *(f"warning: {text}" for text in plan.warnings)]


def export(
    given: Given,
    table: TableArgument,
    export_format: ExportFormat = None,
    version: AtVersion = None,
) -> None:
    """Write Iceberg metadata of a version of a table, and print where its metadata.json is."""
    with given.lake_to_read() as lake:
        handle = lake.table(table)
        began = time.monotonic()
        exported = handle.export(format_version(export_format), version)
        elapsed_s = time.monotonic() - began
    cost = exported.cost
    record = {
        "table": table,
        "location": exported.metadata_location,
        "format_version": int(exported.format_version),
        "version": exported.version,
        "snapshot_id": json.loads(exported.metadata)["current-snapshot-id"],
        "requests": cost.lists + cost.gets + cost.puts,
        "lists": cost.lists,
        "gets": cost.gets,
        "puts": cost.puts,
        "bytes": cost.bytes_written,
        "seconds": round(elapsed_s, 3),
    }
    given.line(record, exported.metadata_location)
