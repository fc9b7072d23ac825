"""`rootline config print` and `check`: the settings in force.

Owns: showing them, with secrets masked. Does not own: the settings.
Invariants: a secret's value is never printed, neither as a setting of its own nor inside a URL.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import Any, Final

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.open_lake import check_folder
from rootline.cli.options import Json, Log, Warehouse, required
from rootline.schemas.errors import MASK, Invalid, masked_login

app = typer.Typer(help="Show and check settings.", no_args_is_help=True, rich_markup_mode=None)
_SECRET_NAME: Final = re.compile(r"secret|password|token|credential|private|access_key", re.IGNORECASE)


@app.command("print")
def print_settings(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Print every setting in force; secrets are masked."""
    from rootline.cli import output

    for name, value in _settings(warehouse, log).items():
        output.line(as_json, {"setting": name, "value": value}, f"{name} = {'' if value is None else value}")


@app.command("check")
def check(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """Check that the settings are valid, and that the warehouse and the log can be reached."""
    import asyncio

    from rootline.cli import output

    _refuse_unknown(_settings(warehouse, log))
    place = required(warehouse)
    asyncio.run(_reach(place, log))
    record = {"warehouse": masked("warehouse", place), "log": masked("log", log), "reachable": True}
    output.line(as_json, record, f"settings are valid; {record['warehouse']} and its log can be reached")
    raise typer.Exit(ExitCode.DONE)


def masked(name: str, value: Any) -> Any:
    """`value` of the setting `name` as it may be shown."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    if text and _SECRET_NAME.search(name):
        return MASK
    return masked_login(text)


async def _reach(warehouse: str, log: str | None) -> None:
    import asyncio

    from rootline.connect import is_kafka, open_parts, open_topics

    check_folder(warehouse)
    parts = await open_parts(warehouse, log)
    try:
        await parts.store.folders("")
        if is_kafka(log):
            await asyncio.to_thread(open_topics(log).identities)
    finally:
        await parts.close()


def _settings(warehouse: str | None, log: str | None) -> dict[str, Any]:
    from pydantic import ValidationError

    from rootline.catalog.rest.http_settings import http_settings
    from rootline.catalog.rest.settings import catalog_settings
    from rootline.connect import store_settings
    from rootline.coordinator.settings import CoordinatorSettings
    from rootline.schemas.model_faults import invalid_settings
    from rootline.workers.settings import WorkerSettings

    shown: dict[str, Any] = {"ROOTLINE_WAREHOUSE": warehouse, "ROOTLINE_LOG": log}
    shown |= _flat("ROOTLINE", store_settings().model_dump())
    for prefix, kind in (("ROOTLINE_COORDINATOR", CoordinatorSettings), ("ROOTLINE_WORKER", WorkerSettings)):
        try:
            shown |= _flat(prefix, kind().model_dump())
        except ValidationError as error:
            raise invalid_settings(error, f"{prefix}__") from None
    shown |= _flat("ROOTLINE_CATALOG", catalog_settings().model_dump())
    shown |= _flat("ROOTLINE_HTTP", http_settings().model_dump())
    return {name: masked(name, value) for name, value in shown.items()}


def _refuse_unknown(known: Mapping[str, Any]) -> None:
    """No one reads a misspelt variable, and its setting keeps its default: refuse it."""
    sections = {name.partition("__")[0] for name in known if "__" in name}
    for name in sorted(os.environ):
        section, marks, _ = name.upper().partition("__")
        if marks and section in sections and name.upper() not in known:
            close = difflib.get_close_matches(name.upper(), known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`rootline config print` shows all"
            raise Invalid("setting-invalid", f"{name}: no setting has this name; {hint}")


def _flat(prefix: str, body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in body.items():
        name = f"{prefix}__{key.upper()}" if prefix != "ROOTLINE" else f"ROOTLINE_{key.upper()}"
        if isinstance(value, dict):
            found |= _flat(name, value)
        else:
            found[name] = value
    return found
