"""`rootline up`, `coordinator`, `worker`: the services.

Owns: their arguments. Does not own: running them (`services`).
Invariants: the first line that is printed says where the service listens; it ends with 0 after a signal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rootline.cli.options import Json, Log, LogLevel, Warehouse, required

if TYPE_CHECKING:
    from rootline.cli.services import Role

Port = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        min=0,
        max=65535,
        help="Port of /healthz, /readyz and /metrics; 0 lets the system pick one. "
        "Default: the setting ROOTLINE_COORDINATOR__HTTP_PORT.",
    ),
]
WorkerPort = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        min=0,
        max=65535,
        help="Port of /healthz, /readyz and /metrics; 0 lets the system pick one. "
        "Default: the setting ROOTLINE_WORKER__HTTP_PORT.",
    ),
]


def up(
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of the lake. Default: --warehouse, else ./lake.")
    ] = None,
    http_port: Port = None,
    log_level: LogLevel = "info",
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Run coordinator, worker and HTTP in one process, until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    where = str(root) if root is not None else warehouse or "lake"
    _run(where, log, Role.COORDINATOR | Role.WORKER, http_port, log_level, as_json)


def coordinator(
    http_port: Port = None,
    log_level: LogLevel = "info",
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Run the coordinator, which groups intents and commits them, until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    _run(required(warehouse), log, Role.COORDINATOR, http_port, log_level, as_json)


def worker(
    http_port: WorkerPort = None,
    log_level: LogLevel = "info",
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Run the worker, which keeps metadata trees small, until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    _run(required(warehouse), log, Role.WORKER, http_port, log_level, as_json)


def _run(warehouse: str, log: str | None, roles: Role, http_port: int | None, level: str, as_json: bool) -> None:
    import asyncio
    from functools import partial

    from rootline.cli import output
    from rootline.cli.services import log_to_stderr, run_services

    log_to_stderr(level)
    asyncio.run(run_services(warehouse, log, roles, partial(output.line, as_json), http_port=http_port))
