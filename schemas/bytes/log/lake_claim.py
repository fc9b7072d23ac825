"""The lake that a record is for: a header beside the record, and the object in the warehouse that makes the lake known.

Owns: the object's key and bytes, the header's, and what a coordinator answers to a record of another lake. Does not
own: who makes the object (`rootline.storage.lake_identity`), who sends the header (the adapters of a log).
Invariants: a record without the header is decided as ever; only ids are compared, because one warehouse has many URLs.

Source: decision 0107.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.log_position import Headers

LAKE_KEY: Final = ObjectKey("0-rootline-lake/lake.json")
"""No namespace begins with a digit."""
LAKE_HEADER: Final = "rootline.lake"
LAKE_MISMATCH: Final = "lake-mismatch"
_PLACE_CHARS_MAX: Final = 500
_ID: Final = re.compile(r"[0-9a-f]{32}")


class Lake(NamedTuple):
    """A lake's id, and the URL of the warehouse as the process that names the lake knows it."""

    lake_id: str
    place: str

    def __str__(self) -> str:
        """As messages name it."""
        return f"{self.place} (lake {self.lake_id})"


def encode_lake(lake: Lake) -> bytes:
    """The object in the warehouse."""
    return json.dumps({"lake": lake.lake_id, "made-as": lake.place[:_PLACE_CHARS_MAX]}).encode()


def decode_lake(body: bytes) -> Lake | None:
    """The lake that such an object names, if it is one."""
    try:
        found = json.loads(body)
        lake_id, place = found["lake"], found["made-as"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_lake = isinstance(lake_id, str) and isinstance(place, str) and _ID.fullmatch(lake_id) is not None
    return Lake(lake_id, place[:_PLACE_CHARS_MAX]) if is_lake else None


def lake_header(lake: Lake | None) -> Headers:
    """The header that says which lake a record is for."""
    return () if lake is None else ((LAKE_HEADER, encode_lake(lake)),)


def refusal_of_lake(headers: Headers, own: Lake) -> tuple[str, str] | None:
    """(code, reason) of a record that is for another lake than the coordinator's `own`."""
    said = next((value for name, value in headers if name == LAKE_HEADER), None)
    if said is None or (claimed := decode_lake(said)) is None or claimed.lake_id == own.lake_id:
        return None
    return LAKE_MISMATCH, mismatch(claimed, own)


def mismatch(claimed: Lake, own: Lake) -> str:
    """The reason why a client of one lake is refused by the log of another."""
    return (
        f"the intent is for the lake {claimed}, but the coordinators of this log own the lake {own}: name that "
        "warehouse, or the log of yours"
    )
