"""`rootline upgrade`: older versions of Rootline cannot go on with a lake, and what they do not know may come.

Owns: how it is asked for and shown. Does not own: the steps (`rootline.adapters`).
Invariants: nothing changes with `--dry-run` or `--status`; `--status` ends with 1 while the lake is not upgraded.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.options import Json, Log, Warehouse

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Status = Annotated[bool, typer.Option("--status", help="Say whether it was done; ends with 1 while it was not.")]
_WORDS = {
    "not yet": "not upgraded: coordinators of older versions may run, so nothing that they do not know is committed",
    "now": "upgraded: coordinators of older versions cannot start any more",
    "before": "was upgraded before",
}


def upgrade(
    dry_run: DryRun = False,
    status: Status = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Let a lake have what older versions of Rootline do not know, and keep these out for ever.

    Stop all coordinators first. It refuses while one runs, and names it. Safe to repeat.
    """
    from rootline.cli import output
    from rootline.connect import upgrade_lake

    found = upgrade_lake(warehouse, log, apply=not (dry_run or status))
    record = {"log": found.log, "upgraded": found.upgraded, "members": list(found.members)}
    output.line(as_json, record, f"{found.log}: {_WORDS[found.upgraded]}")
    if found.upgraded == "now" and found.members:
        output.note(as_json, f"restart these, which started meanwhile: {', '.join(found.members)}")
    if found.upgraded == "not yet":
        if found.members:
            output.note(as_json, f"stop these first: {', '.join(found.members)}")
        if status:
            raise typer.Exit(ExitCode.NO)
        output.note(as_json, "nothing was changed; without --dry-run, it is upgraded")
