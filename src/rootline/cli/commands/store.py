"""`rootline store probe URL`: whether a store does conditional PUTs as Rootline needs them.

Owns: how the judgement is shown. Does not own: the trial (`rootline.storage.store_probe`).
Invariants: 0 it may hold tables, 1 it lies, 3 it does not answer.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.options import Json, Log, Warehouse

app = typer.Typer(help="Check object stores.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _room() -> None:
    """Check object stores."""


@app.command("probe")
def probe(
    url: Annotated[str, typer.Argument(metavar="URL", help="The store: a path, or a file:// or s3:// URL.")],
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="How many races to run, each of 32 writers for one object.")
    ] = 3,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Check that a store can hold tables: writers race for one object, and exactly one may win.

    Leaves a few small objects outside every table. Ends with 1 when the store failed, with 3 when it did not answer.
    """
    import asyncio
    import uuid

    from rootline.cli import output
    from rootline.connect import open_warehouse
    from rootline.storage.store_probe import probe_store

    async def run() -> None:
        store = open_warehouse(url)
        try:
            await probe_store([store], lambda: uuid.uuid4().hex, rounds=rounds)
        finally:
            await store.close()

    with output.progress(f"probing {url}"):
        asyncio.run(run())
    output.line(
        as_json, {"url": url, "conditional_put": "kept", "rounds": rounds}, f"{url}: this store can hold tables"
    )
