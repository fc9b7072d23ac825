"""Fetches what a new table that goes on from an Iceberg table is built on.

Owns: the reads, and the check of all of it away from the event loop. Does not own: the rules
(`rootline.tree.proof.adoption`), who asks (`object_fetcher`).
Invariants: whatever is wrong with the objects that an intent names is that intent's fault alone, and believed only
after a second look; a store that does not answer raises instead, because it proves nothing; nothing is written.
"""

from __future__ import annotations

import asyncio

import structlog

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AdoptedRoot
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.leaf_reader import read_leaves
from rootline.storage.metadata.mapped_bytes import mapped
from rootline.storage.metadata.stored_file import read_stored
from rootline.tree.proof.adoption import adopted_state, invalid, leaves_of, proven_adopted
from rootline.tree.state.table_state import TableState


async def read_adopted(
    store: ObjectStore, table: TableName, named: AdoptedRoot, definition: TableDefinition
) -> TableState | Invalid:
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


async def _read(store: ObjectStore, table: TableName, named: AdoptedRoot, definition: TableDefinition) -> TableState:
    body = await read_stored(store, table, named.location, code="adoption-invalid", length=named.file_size_in_bytes)
    root = await asyncio.to_thread(proven_adopted, body, named, table, definition)
    leaves = await read_leaves(store, table, leaves_of(root), definition=definition)
    return await asyncio.to_thread(_state, root, definition, leaves)


def _state(root: Root, definition: TableDefinition, leaves: dict[str, Leaf]) -> TableState:
    state = adopted_state(root, definition, {location: leaf.kept_by(mapped) for location, leaf in leaves.items()})
    state.live.locations.build()
    return state
