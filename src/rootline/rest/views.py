"""Creating, changing and dropping views for engines.

Owns: the specification's requests about views. Does not own: the rules of views (`rootline.schemas.view_changes`).
Invariants: ids of versions are given by the coordinator. Nothing is published before the whole request was checked.
"""

from __future__ import annotations

from rootline.catalog.rest.responses import Refusal
from rootline.rest.bodies import Renaming, Updates, ViewToCreate
from rootline.rest.writing import Writing


async def create(writing: Writing, namespace: str, asked: ViewToCreate) -> bytes:
    """Create a view."""
    raise _not_yet()


async def commit(writing: Writing, namespace: str, name: str, asked: Updates) -> bytes:
    """Commit an engine's updates of a view as one intent."""
    raise _not_yet()


async def drop(writing: Writing, namespace: str, name: str) -> None:
    """Drop a view."""
    raise _not_yet()


async def rename(writing: Writing, asked: Renaming) -> None:
    """Refuse to rename a view, with the reason that an engine expects."""
    raise _not_yet()


def _not_yet() -> Refusal:
    return Refusal(406, "UnsupportedOperationException", "not yet")
