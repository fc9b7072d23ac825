"""`rootline up`, `coordinator`, `worker`: the services.

Owns: their arguments. Does not own: running them (`services`).
Invariants: says where it listens before anything else; ends with 0 after a signal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rootline.cli.options import Json, Log, Warehouse, required

if TYPE_CHECKING:
    from rootline.cli.services import Role

Port = Annotated[
    int | None, typer.Option("--http-port", min=0, max=65535, help="Of /healthz, /readyz, /metrics; 0 picks one.")
]
Level = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option("--log-level", help="Of the lines on stderr.")
]


def add_to(app: typer.Typer) -> None:
    """Hang the commands into `app`."""
    app.command("up")(up)
    app.command("coordinator")(coordinator)
    app.command("worker")(worker)


def up(
    root: Annotated[
        Path | None, typer.Option("--root", help="The lake's folder; else the warehouse; else ./lake.")
    ] = None,
    http_port: Port = None,
    log_level: Level = "info",
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Everything in one process: coordinator, worker, HTTP; until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    where = str(root) if root is not None else warehouse or "lake"
    _run(where, log, Role.COORDINATOR | Role.WORKER, http_port, log_level, as_json)


def coordinator(
    http_port: Port = None,
    log_level: Level = "info",
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """The coordinator: groups intents and commits them; until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    _run(required(warehouse), log, Role.COORDINATOR, http_port, log_level, as_json)


def worker(log_level: Level = "info", warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """The worker: keeps metadata trees small; until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    _run(required(warehouse), log, Role.WORKER, None, log_level, as_json)


def _run(warehouse: str, log: str | None, roles: Role, http_port: int | None, level: str, as_json: bool) -> None:
    import asyncio
    from functools import partial

    from rootline.cli import output
    from rootline.cli.services import log_to_stderr, run_services

    log_to_stderr(level)
    asyncio.run(run_services(warehouse, log, roles, partial(output.line, as_json), http_port=http_port))
