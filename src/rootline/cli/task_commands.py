"""`rootline tasks list`, `retry` and `drop`: maintenance that workers took and never ended.

Owns: arguments and how dead tasks are shown. Does not own: when a task is dead (`rootline.adapters.redis`).
Invariants: looking changes nothing; nothing here touches a table: a task is only a reason for a worker to look at one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.options import DryRun, Json, Log, TableArgument, Warehouse, required

if TYPE_CHECKING:
    from rootline.ports.dead_tasks import DeadTask, DeadTasks

_T = TypeVar("_T")
app = typer.Typer(
    help="See maintenance tasks that workers took and never ended, and try them again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
OneKind = Annotated[
    str | None,
    typer.Option("--kind", help="Only the task that looks at this: root, leaves, rows or history. Default: all."),
]


@app.command("list")
def list_dead(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """List dead tasks: the table, what of it a worker looked at, and how many workers took the task."""
    from rootline.cli import output

    async def listed(tasks: DeadTasks) -> list[dict[str, Any]]:
        return [_record(dead) for dead in await tasks.listed()]

    columns = ["table", "kind", "version", "attempts", "since"]
    output.rows(as_json, _with_tasks(warehouse, log, listed), columns, empty="no task is dead")


@app.command("retry")
def retry(
    name: TableArgument,
    kind: OneKind = None,
    dry_run: DryRun = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Queue a table's dead tasks again, with all their attempts. Ends with 1 if there is none."""
    from rootline.cli import output

    async def retried(tasks: DeadTasks) -> list[tuple[DeadTask, str]]:
        found = _of(await tasks.listed(), name, kind)
        return [(dead, "dry_run" if dry_run else (await tasks.retry(dead)).value) for dead in found]

    _tell(name, as_json, _with_tasks(warehouse, log, retried))
    output.note(as_json, "nothing was changed" if dry_run else "the next worker that is free takes them")


@app.command("drop")
def drop(
    name: TableArgument,
    kind: OneKind = None,
    dry_run: DryRun = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Forget a table's dead tasks: workers look at it again when it changes. Ends with 1 if there is none."""
    from rootline.cli import output

    async def dropped(tasks: DeadTasks) -> list[tuple[DeadTask, str]]:
        found = _of(await tasks.listed(), name, kind)
        for dead in () if dry_run else found:
            await tasks.drop(dead.task.kind, dead.task.table)
        return [(dead, "dry_run" if dry_run else "dropped") for dead in found]

    _tell(name, as_json, _with_tasks(warehouse, log, dropped))
    if dry_run:
        output.note(as_json, "nothing was changed")


def _with_tasks(warehouse: str | None, log: str | None, use: Callable[[DeadTasks], Awaitable[_T]]) -> _T:
    import asyncio

    from rootline.connect import open_dead_tasks
    from rootline.workers.settings import worker_settings

    place = required(warehouse)
    limits = worker_settings()

    async def run() -> _T:
        async with open_dead_tasks(place, log, limits.tasks_max) as tasks:
            return await use(tasks)

    return asyncio.run(run())


def _of(found: Any, name: str, kind: str | None) -> list[DeadTask]:
    return [dead for dead in found if dead.task.table == name and kind in (None, dead.task.kind.value)]


def _tell(name: str, as_json: bool, found: list[tuple[DeadTask, str]]) -> None:
    from rootline.cli import output

    for dead, outcome in found:
        text = f"{name}: {dead.task.kind.value}, taken by {dead.attempts} workers: {outcome.replace('_', ' ')}"
        output.line(as_json, {**_record(dead), "outcome": outcome}, text)
    if not found:
        output.note(as_json, f"no task of {name} is dead: see `rootline tasks list`")
        raise typer.Exit(ExitCode.NO)


def _record(dead: DeadTask) -> dict[str, Any]:
    from rootline.cli import output

    return {
        "table": dead.task.table,
        "kind": dead.task.kind.value,
        "version": dead.task.noticed_version,
        "attempts": dead.attempts,
        "since": output.moment(dead.since_ms),
    }
