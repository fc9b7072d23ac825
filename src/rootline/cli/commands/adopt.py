"""`rootline adopt`: make an Iceberg table a table of this lake.

Owns: what is printed. Does not own: the plan (`rootline.catalog.adopt.adoption_plan`), publishing (`rootline.client`).
Invariants: a dry run publishes nothing and hosts no coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.options import Json, Log, Timeout, Warehouse, required

if TYPE_CHECKING:
    from rootline.catalog.adopt.adoption_plan import AdoptionPlan


def add_to(app: typer.Typer) -> None:
    """Hang the command into `app`."""
    app.command("adopt")(adopt)


def adopt(
    metadata: Annotated[
        str,
        typer.Argument(
            metavar="METADATA_JSON",
            help="Its current metadata.json: a path, file:// or s3:// URL.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The new name, namespace.table.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be, and change nothing.")] = False,
    timeout_s: Timeout = 600.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Make an Iceberg table (V1 to V3) a table of this lake, without rewriting a file. Stop its writers first."""
    from rootline.cli import output
    from rootline.connect import connect

    with connect(required(warehouse), log=log, coordinator="elsewhere" if dry_run else "auto") as lake:
        adopted = lake.adopt(metadata, name, dry_run=dry_run, timeout_s=timeout_s)
    record = {**_record(adopted.plan), "adopted": adopted.commit is not None}
    lines = _lines(adopted.plan)
    if adopted.commit is None:
        lines.append("dry run: nothing was written")
    else:
        record["version"] = adopted.commit.version
        lines.append(f"adopted as {name}, version {adopted.commit.version}; its old metadata is as it was")
    output.line(as_json, record, "\n".join(lines))


def _record(plan: AdoptionPlan) -> dict[str, Any]:
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


def _lines(plan: AdoptionPlan) -> list[str]:
    definition, totals, deletes = plan.definition, plan.totals, plan.deletes
    names = {field.tracked_id: field.name for field in definition.tracked_fields}
    lines = [
        f"{plan.table}  from {plan.location}",
        f"  Iceberg V{plan.format_version}, uuid {definition.table_uuid}, "
        + (f"snapshot {plan.snapshot_id}" if plan.snapshot_id is not None else "no snapshot: an empty table"),
        f"schemas: {len(definition.schemas)}, current {definition.current_schema_id}",
    ]
    lines += [f"  {field.field_id:>4}  {field.name}  {field.field_type}" for field in definition.schema.fields]
    lines.append(f"partition specs: {len(definition.partition_specs)}, default {definition.default_spec_id}")
    for spec in definition.partition_specs:
        said = []
        for member in spec.expr_ids:
            found = definition.expressions_by_id.get(member)
            text = names[member] if found is None else f"{found.transform} of {names[found.source_ids[0]]}"
            said.append(text if found is None else f"{text} (expression {member})")
        lines.append(f"  {spec.spec_id:>4}  {', '.join(said) or 'unpartitioned'}")
    kinds = {
        "deletion vectors": deletes.vectors,
        "position delete files": deletes.position_delete_files,
        "equality delete files": deletes.equality_delete_files,
    }
    shown = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    lines += [
        f"manifests: {totals.data_manifests:,} of data, {totals.delete_manifests:,} of deletes, "
        f"{plan.manifest_bytes:,} bytes; each becomes a leaf as it is",
        f"files: {totals.data_files:,} with {totals.rows:,} rows, {totals.data_bytes:,} bytes; none is rewritten",
        f"deletes: {shown or 'none'}",
        f"numbers: sequence numbers go on after {plan.sequence_number:,}, row ids from {plan.next_row_id:,}",
        f"before adoption: {plan.snapshots_before:,} snapshots, which stay readable through {plan.location}",
    ]
    return [*lines, *(f"warning: {text}" for text in plan.warnings)]
