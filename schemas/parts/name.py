"""The part `name`: whether the name is a table, a view or a tombstone, and its earlier drops.

Owns: the value types, the keys `content`, `rootline.drops` and `rootline.view`. Does not own: what is dropped and when
(`rootline.tree.intents.create_drop`), a view's metadata (`rootline.schemas.view_metadata`).
Invariants: Encoded values decode to equal values. A tombstone names the dropped table.

Source: definitions page, sections 2 and 3. Decision 0067.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import Version
from rootline.schemas.parts.header_part import HeaderPart, count_of, json_of

CONTENT_KEY: Final = "content"
DROPS_KEY: Final = "rootline.drops"
"""Absent if no table of this name was ever dropped."""
DROPS_MAX: Final = 64
VIEW_KEY: Final = "rootline.view"


class NameState(StrEnum):
    """The state of a name as of a root. The value is the `content` of the root's file metadata."""

    TABLE = "root"
    TOMBSTONE = "tombstone"
    """A dropped table. Its entries, definition and ledger are still in the root, unless it was purged."""
    VIEW = "view"
    """No entries: the view's metadata is in the header, and its definition has no columns."""


class Drop(NamedTuple):
    """A dropped table of this name: its uuid, the version of the drop, and the time of that root.

    `is_purged`: its files may be deleted immediately, and it cannot be restored.
    """

    table_uuid: uuid.UUID
    version: Version
    dropped_ms: int
    is_purged: bool = False


@dataclass(frozen=True, slots=True)
class NameRecord:
    """The state of the name.

    `drops`: the drops of the latest earlier tables of this name, in order. A tombstone's own drop is the last. `view`:
    a view's metadata as JSON, or `None` if the name is not a view.
    """

    state: NameState = NameState.TABLE
    drops: tuple[Drop, ...] = ()
    view: bytes | None = None


def _encode_drops(name: NameRecord) -> bytes | None:
    if not name.drops:
        return None
    return json_of([[str(drop.table_uuid), drop.version, drop.dropped_ms, drop.is_purged] for drop in name.drops])


def _decode(metadata: Mapping[str, bytes]) -> NameRecord:
    state = NameState(metadata.get(CONTENT_KEY, b"root").decode())  # `root_codec` checks that the key is there
    rows = json.loads(metadata.get(DROPS_KEY, b"[]"))
    if not isinstance(rows, list) or len(rows) > DROPS_MAX:
        raise ValueError(f"{DROPS_KEY} is not a list of at most {DROPS_MAX}")
    drops = tuple(_drop(*row) for row in rows)
    if state is NameState.TOMBSTONE and (not drops or str(drops[-1].table_uuid) != _uuid_of(metadata)):
        raise ValueError("a tombstone does not name the table that was dropped")
    view = metadata.get(VIEW_KEY)
    if (view is not None) is not (state is NameState.VIEW):
        raise ValueError(f"{VIEW_KEY} must be present for a view and for nothing else, and this is a {state}")
    return NameRecord(state, drops, view)


def _uuid_of(metadata: Mapping[str, bytes]) -> str:
    return str(uuid.UUID(metadata["rootline.table-uuid"].decode()))


def _drop(table_uuid: Any, version: Any, dropped_ms: Any, is_purged: Any) -> Drop:
    if not isinstance(table_uuid, str) or not isinstance(is_purged, bool):
        raise ValueError(f"{DROPS_KEY} has a row that is not a drop")
    return Drop(uuid.UUID(table_uuid), Version(count_of(version)), count_of(dropped_ms), is_purged)


NAME: Final[HeaderPart[NameRecord]] = HeaderPart(
    "name",
    {CONTENT_KEY: lambda name: name.state.encode(), VIEW_KEY: lambda name: name.view, DROPS_KEY: _encode_drops},
    _decode,
    needs_profile_2=lambda name: bool(name.drops) or name.state is not NameState.TABLE,
)
