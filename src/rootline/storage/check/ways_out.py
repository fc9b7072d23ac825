"""The way out when a file of rows is lost for good: an intent that takes it out of the table, and says why.

Owns: the intent, and the words in a snapshot's summary by which later checks know that a file was given up. Does not
own: whether the file is lost (`chain`), removing (`rootline.tree.intents.remove`).
Invariants: a file counts as given up only if the version that says so is the one that took it out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rootline.schemas.content_entry import ContentType, EntryPlace
from rootline.schemas.identifiers import TableName

_GIVEN_UP: Final = "lost-data-file:"


def removal_of(
    table: TableName, place: EntryPlace, vector: EntryPlace | None, table_uuid: uuid.UUID | None = None
) -> str:
    """The intent that removes the file at `place`, as a line for `rootline publish`; `vector`: its live one.

    `table_uuid`: which table of the name it is for, as far as that can be read.
    """
    file: dict[str, Any] = {"location": place.location}
    if place.content_type is not ContentType.DATA:
        file["content_type"] = int(place.content_type)
    if vector is not None:
        file["vector"] = {"location": vector.location, "offset": vector.content_offset or 0}
    body = {
        "table": table,
        **({} if table_uuid is None else {"table_uuid": str(table_uuid)}),
        "kind": "remove",
        "remove_files": [file],
        "summary": {f"{_GIVEN_UP}{place.location}": "true"},
    }
    return json.dumps(body, ensure_ascii=False)


def given_up(summary: Mapping[str, str], removed: Iterable[str]) -> set[str]:
    """Those of the `removed` locations that the summary of the same version calls lost."""
    named = {key.removeprefix(_GIVEN_UP) for key in summary if key.startswith(_GIVEN_UP)}
    return named.intersection(removed) if named else set()
