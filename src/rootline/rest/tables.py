"""Creating, changing, registering and dropping tables for engines.

Owns: the specification's requests about tables. Does not own: requirements and updates (`table_changes`), exports
(`rootline.catalog`), the rules of changes (`rootline.tree`).
Invariants: a table's location is always the catalog's own. Nothing is published before the whole request was checked.
"""

from __future__ import annotations

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.rest.responses import Refusal
from rootline.rest.bodies import Renaming, TableToCreate, TableToRegister, Updates
from rootline.rest.writing import Writing


async def create(writing: Writing, namespace: str, asked: TableToCreate, format_version: FormatVersion | None) -> bytes:
    """Create a table, or only describe it if it is to be staged."""
    raise _not_yet()


async def register(
    writing: Writing, namespace: str, asked: TableToRegister, format_version: FormatVersion | None
) -> bytes:
    """Adopt an Iceberg table, or restore a dropped one."""
    raise _not_yet()


async def commit(
    writing: Writing, namespace: str, name: str, asked: Updates, format_version: FormatVersion | None
) -> bytes:
    """Commit an engine's updates."""
    raise _not_yet()


async def drop(writing: Writing, namespace: str, name: str, *, is_purge: bool) -> None:
    """Drop a table."""
    raise _not_yet()


async def rename(writing: Writing, asked: Renaming) -> None:
    """Refuse to rename a table, with the reason that an engine expects."""
    raise _not_yet()


def _not_yet() -> Refusal:
    return Refusal(406, "UnsupportedOperationException", "not yet")
