"""`rootline explain`: what an error code means, what to do, what not to do.

Owns: how an explanation is shown. Does not own: the explanations (`error_codes`).
Invariants: works without a warehouse.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict
from typing import Annotated

import typer

from rootline.cli.completing import codes
from rootline.cli.failure import ExitCode
from rootline.cli.options import Json, Log, Warehouse


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="The code, as the error shows it. Without it, all codes are listed.",
            autocompletion=codes,
        ),
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Explain an error code: what it means, what to do, what not to do."""
    from rootline.cli import output
    from rootline.schemas.error_codes import CODES, explained

    if code is None:
        records = [asdict(item) for item in CODES.values()]
        output.rows(as_json, records, ["code", "category", "meaning"], empty="no codes")
        return
    found = CODES.get(code.strip("[]"))
    if found is None:
        near = difflib.get_close_matches(code, CODES, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else "; `rootline explain` lists all codes"
        typer.echo(f"error: there is no code {code!r}{hint}", err=True)
        raise typer.Exit(ExitCode.NO)
    told = explained(found)
    output.line(as_json, {**asdict(found), "do_not": told.do_not}, "\n".join(told.lines()))
