"""The state of a name in the root's header: a table, a view or a tombstone, and the earlier drops.

Owns: encoding and decoding the keys `rootline.drops` and `rootline.view`, and the values of `content`. Does not own:
the other keys (`header_codec`), what is dropped and when (`rootline.tree.intents.drop`), a view's metadata
(`rootline.schemas.view_metadata`).
Invariants: Encoded values decode to equal values. A tombstone names the dropped table. Any other input raises
`ValueError`, as in `header_codec`.

Source: definitions page, sections 2 and 3. Decision 0067.
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
"""Absent if no table of this name was ever dropped."""
DROPS_MAX: Final = 64
VIEW_KEY: Final = "rootline.view"


def encode_name(header: RootHeader) -> dict[str, bytes]:
    """The file metadata with the drops, and with a view's metadata."""
    metadata = {} if header.view is None else {VIEW_KEY: header.view}
    if not header.drops:
        return metadata
    rows = [[str(drop.table_uuid), drop.version, drop.dropped_ms, drop.is_purged] for drop in header.drops]
    return metadata | {DROPS_KEY: json.dumps(rows, separators=(",", ":")).encode()}


def decode_name(metadata: Mapping[str, bytes]) -> tuple[NameState, tuple[Drop, ...], bytes | None]:
    """(state of the name, drops, a view's metadata). Raises `ValueError`."""
    state = NameState(metadata.get("content", b"root").decode())  # `root_codec` checks that the key is there
    rows = json.loads(metadata.get(DROPS_KEY, b"[]"))
    if not isinstance(rows, list) or len(rows) > DROPS_MAX:
        raise ValueError(f"{DROPS_KEY} is not a list of at most {DROPS_MAX}")
    drops = tuple(_drop(*row) for row in rows)
    if state is NameState.TOMBSTONE and (not drops or str(drops[-1].table_uuid) != _uuid_of(metadata)):
        raise ValueError("a tombstone does not name the table that was dropped")
    view = metadata.get(VIEW_KEY)
    if (view is not None) is not (state is NameState.VIEW):
        raise ValueError(f"{VIEW_KEY} must be present for a view and for nothing else, and this is a {state}")
    return state, drops, view


def _uuid_of(metadata: Mapping[str, bytes]) -> str:
    return str(uuid.UUID(metadata["rootline.table-uuid"].decode()))


def _drop(table_uuid: Any, version: Any, dropped_ms: Any, is_purged: Any) -> Drop:
    if not isinstance(table_uuid, str) or not isinstance(is_purged, bool):
        raise ValueError(f"{DROPS_KEY} has a row that is not a drop")
    return Drop(uuid.UUID(table_uuid), Version(count_of(version)), count_of(dropped_ms), is_purged)
