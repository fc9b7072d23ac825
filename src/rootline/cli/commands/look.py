"""`rootline history`, `tree`, `files`: look at a table's metadata.

Owns: what is shown of it, and how. Does not own: reading it (`rootline.client`).
Invariants: reads only; hosts no coordinator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_read
from rootline.cli.options import AtVersion, Json, Log, TableArgument, Warehouse, Where


def history(
    table: TableArgument,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many versions to list at most, the newest first.")
    ] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="Also versions that only record rejections and duplicates.")
    ] = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """List the newest versions of a table."""
    from rootline.catalog.adopt.adopted_definition import ADOPTED_FROM
    from rootline.cli import output
    from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT

    with lake_to_read(warehouse, log) as lake:
        found = lake.table(table).history(limit=limit, everything=everything)
        before = None
        if ADOPTED_SNAPSHOT in found[-1].snapshot.summary:
            before = lake.table(table).definition().properties.get(ADOPTED_FROM)
    tags = found[0].tags
    records = [
        {
            "version": item.version,
            "snapshot_id": item.snapshot.snapshot_id,
            "sequence_number": item.snapshot.sequence_number,
            "timestamp": output.moment(item.snapshot.timestamp_ms),
            "operation": str(item.snapshot.operation),
            "rows": item.totals.rows,
            "deleted_rows": item.totals.deleted_rows,
            "data_files": item.totals.data_files,
            "summary": dict(item.snapshot.summary),
            "tags": sorted(tag for tag, version in tags.items() if version == item.version),
        }
        for item in found
    ]
    shown = ["version", "timestamp", "operation", "rows", "deleted_rows", "data_files", "snapshot_id"]
    if before is not None:
        records[-1]["adopted_from"] = before
    output.rows(as_json, records, shown, empty=f"{table}: no versions")
    if before is not None:
        output.note(as_json, f"its history before version {found[-1].version} is in {before}")


def tree(
    table: TableArgument,
    version: AtVersion = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write an SVG picture to this file instead of printing text.")
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Show the metadata tree: the root's rows, the leaves below them, the vectors beside them."""
    from rootline.cli import output
    from rootline.tree.view.outline import outline_json

    with lake_to_read(warehouse, log) as lake:
        picture = lake.table(table).tree(version=version)
    if svg is not None:
        svg.write_text(picture.svg(), encoding="utf-8")
        output.line(as_json, {"table": table, "svg": str(svg)}, f"wrote {svg}")
        return
    output.line(as_json, outline_json(picture.outline()) if as_json else {}, picture.text())


def files(
    table: TableArgument,
    where: Where = None,
    version: AtVersion = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what finding the files took (requests, leaves read), not the files.")
    ] = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """List the live data files; with --where only those that may hold rows that match."""
    from rootline.cli import output

    with lake_to_read(warehouse, log) as lake:
        tasks = lake.table(table).scan(where=where, version=version).plan()
    if plan:
        output.plan(as_json, table, tasks)
        return
    records = [
        {
            "location": task.data.location,
            "format": str(task.data.file_format),
            "rows": task.data.record_count,
            "deleted_rows": sum(vector.record_count for vector in task.vectors),
            "bytes": task.data.file_size_in_bytes,
            "sequence_number": task.data.version_info.sequence_number,
            "delete_files": len(task.deletes.equality) + len(task.deletes.positions),
            "residual": None if task.residual is None else task.residual.text,
        }
        for task in tasks
    ]
    columns = ["rows", "deleted_rows", "bytes", "sequence_number", "location"]
    output.rows(as_json, records, columns, empty=f"{table}: no files")
