"""`rootline check`: read a table's whole chain and verify what stored bytes can show.

Owns: how findings are printed. Does not own: what is verified (`rootline.storage.check.chain`).
Invariants: reads only; 1 when there is any finding.
"""

from __future__ import annotations

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.open_lake import lake_to_read
from rootline.cli.options import Json, Log, TableArgument, Warehouse


def check(table: TableArgument, warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Read every version of a table and verify all that stored bytes can show; ends with 1 when anything is wrong."""
    from rootline.cli import output

    findings = 0
    with (
        lake_to_read(warehouse, log) as lake,
        output.progress(f"checking {table}") as advance,
    ):
        for finding in lake.table(table).check():
            findings += 1
            advance(1)
            record = {"object": finding.object, "code": finding.code, "reason": finding.reason}
            output.line(as_json, record, f"{finding.object}: {finding.reason} [{finding.code}]")
    if findings:
        raise typer.Exit(ExitCode.NO)
    output.line(as_json, {"table": table, "findings": 0}, f"{table}: no findings")
