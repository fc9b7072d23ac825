"""What one who has loaded a version sees of its data files."""

from __future__ import annotations

from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import VectorReference
from rootline.storage.metadata.object_reader import read_vector
from rootline.tree.state.table_state import TableState
from tests.simulation.faulty_world import World


def live_data(view: TableState) -> list[str]:
    """Locations of the live data files, in order."""
    return sorted(live.entry.location for live in view.live.entries() if live.entry.content_type is ContentType.DATA)


def seen_vector(view: TableState, name: str) -> VectorReference | None:
    """The vector that a reader of `view` sees on a data file."""
    entry = view.vector_of(name)
    if entry is None or entry.deletion_vector is None or entry.deletion_vector.offset is None:
        return None
    return VectorReference(location=entry.location, offset=entry.deletion_vector.offset)


async def stored_positions(world: World, table: TableName, view: TableState, name: str) -> frozenset[int]:
    """The deleted positions of a data file as its stored vector has them."""
    entry = view.vector_of(name)
    return frozenset() if entry is None else frozenset(await read_vector(world.store, table, entry))
