"""What a name is, as the root's header says it: a table, a view or a tombstone, and what was dropped before.

Owns: the keys `rootline.drops` and `rootline.view`, both ways, and the values of `content`. Does not own: the other
keys (`header_codec`), what is dropped and when (`rootline.tree.intents.drop`), a view's metadata
(`rootline.schemas.view_metadata`).
Invariants: what is encoded decodes to equal values; a tombstone names the table that it is of; anything else raises
`ValueError`, as in `header_codec`.

Source: definitions page, sections 2 and 3; decision 0067.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from rootline.schemas.bytes.root.header_numbers import count_of
from rootline.schemas.identifiers import Version
from rootline.schemas.root_header import Drop, NameState, RootHeader

DROPS_KEY: Final = "rootline.drops"
"""Absent while nothing of this name was ever dropped."""
DROPS_MAX: Final = 64
VIEW_KEY: Final = "rootline.view"


def encode_name(header: RootHeader) -> dict[str, bytes]:
    """The file metadata that says which tables were dropped, and what a view is."""
    said = {} if header.view is None else {VIEW_KEY: header.view}
    if not header.drops:
        return said
    rows = [[str(drop.table_uuid), drop.version, drop.dropped_ms, drop.is_purged] for drop in header.drops]
    return said | {DROPS_KEY: json.dumps(rows, separators=(",", ":")).encode()}


def decode_name(metadata: Mapping[str, bytes]) -> tuple[NameState, tuple[Drop, ...], bytes | None]:
    """(what the name is, the drops, a view's metadata). Raises `ValueError`."""
    state = NameState(metadata.get("content", b"root").decode())  # `root_codec` looks whether it is there
    rows = json.loads(metadata.get(DROPS_KEY, b"[]"))
    if not isinstance(rows, list) or len(rows) > DROPS_MAX:
        raise ValueError(f"{DROPS_KEY} is not a list of at most {DROPS_MAX}")
    drops = tuple(_drop(*row) for row in rows)
    if state is NameState.TOMBSTONE and (not drops or str(drops[-1].table_uuid) != _uuid_of(metadata)):
        raise ValueError("a tombstone does not name the table that was dropped")
    view = metadata.get(VIEW_KEY)
    if (view is not None) is not (state is NameState.VIEW):
        raise ValueError(f"{VIEW_KEY} is there for a view, and for nothing else; this is a {state}")
    return state, drops, view


def _uuid_of(metadata: Mapping[str, bytes]) -> str:
    return str(uuid.UUID(metadata["rootline.table-uuid"].decode()))


def _drop(table_uuid: Any, version: Any, dropped_ms: Any, is_purged: Any) -> Drop:
    if not isinstance(table_uuid, str) or not isinstance(is_purged, bool):
        raise ValueError(f"{DROPS_KEY} has a row that is no drop")
    return Drop(uuid.UUID(table_uuid), Version(count_of(version)), count_of(dropped_ms), is_purged)
