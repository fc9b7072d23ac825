"""Fetches what a new table that goes on from an Iceberg table is built on.

Owns: the reads, and the check of all of it away from the event loop. Does not own: the rules
(`rootline.tree.proof.adoption`), who asks (`object_fetcher`).
Invariants: whatever is wrong with the objects that an intent names is that intent's fault alone, and believed only
after a second look; a store that does not answer raises instead, because it proves nothing; nothing is written.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog
from pyroaring import BitMap

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.condemned_page import CondemnedPage, is_condemned
from rootline.schemas.bytes.root.foreign_names import ForeignNameNotes
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AdoptedRoot
from rootline.schemas.object_keys import is_absolute, resolved, table_in
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_condemned, read_leaves
from rootline.storage.metadata.read_cache import mapped
from rootline.storage.metadata.root_reader import find_head, names_of_folders, read_root
from rootline.storage.stored_objects import read_stored
from rootline.tree.draft.batch import AdoptedTable
from rootline.tree.proof.adoption import adopted_state, invalid, leaves_of, proven_adopted
from rootline.tree.state.live_mask import live_mask
from rootline.tree.state.table_state import TableState

_OWNERS_FEW: Final = 16
_TABLE_FOLDER: Final = re.compile(r"/(?=([^/]+/[^/]+/)(?:data|metadata|export)/)")


async def read_adopted(
    store: ObjectStore, table: TableName, named: AdoptedRoot, definition: TableDefinition
) -> AdoptedTable | Invalid:
    """What the new table is built on, or why it cannot be. Raises `Unavailable` when the store does not answer."""
    fault = invalid(f"adopted root {named.location!r} cannot be read")
    for _ in range(2):  # an answer that was cut off looks like a broken object
        try:
            return await _read(store, table, named, definition)
        except Unavailable:
            raise
        except Invalid as error:
            fault = error
        except Corrupt as error:
            fault = invalid(error.message)
        except RootlineError:
            raise
        except Exception as error:  # others chose these bytes: what they do to a decoder is the intent's fault
            structlog.get_logger().exception("adoption unreadable", action="reject", table=table)
            fault = invalid(f"adopted root {named.location!r} cannot be read ({type(error).__name__})")
    return fault


async def _read(store: ObjectStore, table: TableName, named: AdoptedRoot, definition: TableDefinition) -> AdoptedTable:
    body = await read_stored(store, table, named.location, code="adoption-invalid", length=named.file_size_in_bytes)
    root = await asyncio.to_thread(proven_adopted, body, named, table, definition)
    leaves = await read_leaves(store, table, leaves_of(root), definition=definition)
    state = await asyncio.to_thread(_state, root, definition, leaves)
    await _check_not_condemned(store, table, await asyncio.to_thread(_locations, leaves, state.live.dead))
    return AdoptedTable(state, await asyncio.to_thread(_foreign_names, leaves))


def _foreign_names(leaves: Mapping[str, Leaf]) -> bytes:
    notes = ForeignNameNotes()
    notes.reference(_locations(leaves))
    return notes.names().to_bytes()


async def _check_not_condemned(store: ObjectStore, table: TableName, locations: Sequence[str]) -> None:
    """Refuse what a table of this warehouse is about to delete: its sweep looked at other tables before.

    Raises `Invalid` (`file-removed`). A table that cannot be read is not swept either.
    """
    owners = await asyncio.to_thread(_owners, locations)
    if len(owners) > _OWNERS_FEW:  # names of folders that are not there are not looked for one by one
        unread: list[Unavailable] = []
        there = await names_of_folders(store, unread)
        owners = owners if unread else owners & set(there)
    for owner in sorted(owners):
        head = await find_head(store, owner)
        if head is None or owner == table:
            continue
        try:
            pages = await read_condemned(store, (await read_root(store, owner, head.version)).header)
        except Corrupt:
            continue
        found = await asyncio.to_thread(_first_condemned, locations, owner, pages) if pages else None
        if found is not None:
            raise Invalid(
                "file-removed",
                f"{table}: {found!r} has left table {owner}, and is about to be deleted: adopt a snapshot that does "
                f"not have it, or copy it out of the folder of {owner} first",
            )


def _locations(leaves: Mapping[str, Leaf], dead: Mapping[str, BitMap] | None = None) -> list[str]:
    """The absolute locations of the leaves and of the entries that they list, with `dead` only of live entries."""
    found = [location for location in leaves if is_absolute(location)]
    for location, leaf in leaves.items():
        columns = leaf.columns(["location", "version_info.status"])
        named = columns.column("location")
        if dead is not None:
            named = named.filter(live_mask(columns, dead.get(location)))
        found += filter(is_absolute, named.to_pylist())
    return found


def _owners(locations: Iterable[str]) -> set[TableName]:
    """The tables of this warehouse in whose folders they may be: where it is stored, its folders are not known by."""
    folders = {resolved(location).rpartition("/")[0] for location in locations}
    found = {table_in(pair[1]) for folder in folders for pair in _TABLE_FOLDER.finditer(f"{folder}/")}
    return {name for name in found if name is not None}


def _first_condemned(locations: Iterable[str], owner: TableName, pages: Sequence[CondemnedPage]) -> str | None:
    return next((location for location in locations if is_condemned(location, owner, pages)), None)


def _state(root: Root, definition: TableDefinition, leaves: dict[str, Leaf]) -> TableState:
    state = adopted_state(root, definition, {location: leaf.kept_by(mapped) for location, leaf in leaves.items()})
    state.live.locations.build()
    return state
