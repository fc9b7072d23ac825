"""`rootline demo`: the idea on real data, in about ten seconds.

Owns: arguments, the report. Does not own: the story (`demo`).
Invariants: 1 when anything that was read differs from what pandas computes; says where its files are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.options import Json, Log, Warehouse


def demo(
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of the lake. Default: --warehouse, else ./demo-lake.")
    ] = None,
    months: Annotated[int, typer.Option("--months", min=1, max=12, help="How many months of flights to load.")] = 2,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Try Rootline on flights of New York: append, delete, overwrite, flush, scan; results are compared with pandas."""
    from dataclasses import asdict

    from rootline.cli import output
    from rootline.demo.quick_demo import run_demo

    folder = str(root) if root is not None else warehouse or "demo-lake"
    with output.progress("flights of New York", total=8) as advance:
        report = run_demo(folder, log, months, lambda: advance(1))
    if as_json:
        output.line(True, asdict(report) | {"agrees": report.agrees}, "")
    else:
        for text in report.lines():
            output.note(False, text)
    if not report.agrees:
        raise typer.Exit(ExitCode.NO)
