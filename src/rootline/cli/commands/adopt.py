"""`rootline adopt`: make an Iceberg table a table of this lake.

Owns: what is printed. Does not own: the plan (`rootline.catalog.adopt.adoption_plan`), publishing (`rootline.client`).
Invariants: a dry run publishes nothing and hosts no coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.definition_text import column_lines, members_text
from rootline.cli.open_lake import lake_to_change, lake_to_read
from rootline.cli.options import DryRun, Json, Log, Timeout, Warehouse

if TYPE_CHECKING:
    from rootline.catalog.adopt.adoption_plan import AdoptionPlan


def adopt(
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
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Make an Iceberg table (V1 to V3) a table of this lake, without rewriting a file. Stop its writers first."""
    from rootline.cli import output

    with lake_to_read(warehouse, log) if dry_run else lake_to_change(warehouse, log) as lake:
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
        f"{plan.manifest_bytes:,} bytes; each becomes a leaf as it is",
        f"files: {totals.data_files:,} with {totals.rows:,} rows, {totals.data_bytes:,} bytes; none is rewritten",
        f"deletes: {shown or 'none'}",
        f"numbers: sequence numbers go on after {plan.sequence_number:,}, row ids from {plan.next_row_id:,}",
        f"before adoption: {plan.snapshots_before:,} snapshots, which stay readable through {plan.location}",
    ]
    return [*lines, *(f"warning: {text}" for text in plan.warnings)]
