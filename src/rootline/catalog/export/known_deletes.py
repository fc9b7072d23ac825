"""Which converted deletes are stored already, and their names, which hold all that an entry needs.

Owns: the folder and the form of the names. Does not own: what goes into a name's hash, and the objects
(`converted_deletes`).
Invariants: a name is 32 hex digits of the inputs' hash and then numbers, so a LIST is enough and the object need not be
opened; of several names with one hash (from other versions of a library) the first counts; about 200 bytes each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rootline.catalog.manifest.format_version import FormatVersion
from rootline.schemas.bytes.root.condemned_page import CondemnedPage
from rootline.schemas.bytes.root.location_hashes import location_hash
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import table_prefix

_FOLDERS: Final = {FormatVersion.V2: "export/v2/deletes/", FormatVersion.V3: "export/v3/vectors/"}
_NAME: Final = re.compile(
    r"(?P<hash>[0-9a-f]{32})(?P<numbers>(?:-(?:0|[1-9][0-9]{0,18}))+)(?:\.[0-9a-f]{16})?\.(?P<kind>parquet|puffin|none)\Z"
)
NOTHING: Final = "none"
"""The kind of an empty object: the delete files were read, and they delete no row of the data file."""


def folder_of(format_version: FormatVersion) -> str:
    """Where converted deletes of a format are stored, relative to the table; ends in `/`."""
    return _FOLDERS[format_version]


def listed_prefix(table: TableName, format_version: FormatVersion) -> str:
    """What to LIST at a cold start."""
    return table_prefix(table) + folder_of(format_version)


class Converted(NamedTuple):
    """One converted delete: its location relative to the table, and the numbers that its name holds."""

    location: str
    kind: str
    numbers: tuple[int, ...]


def name_of(digest: str, numbers: Iterable[int], kind: str, salt: str = "") -> str:
    """The name of the object, without its folder. `salt` as in `sweep_state`."""
    return f"{digest}-{'-'.join(map(str, numbers))}{'.' if salt else ''}{salt}.{kind}"


class KnownDeletes:
    """The converted deletes of one table in one format that are known to be stored."""

    def __init__(self, format_version: FormatVersion, salt: str = "") -> None:
        """`salt`: of the names of those that are made."""
        self._folder = folder_of(format_version)
        self._rest: dict[bytes, str] = {}
        self.salt: Final = salt
        self.used: set[str] = set()
        """The locations of those that were found or made since the set was emptied."""

    @staticmethod
    def listed(
        format_version: FormatVersion,
        keys: Iterable[str],
        *,
        salt: str = "",
        condemned: Sequence[CondemnedPage] = (),
    ) -> KnownDeletes:
        """The deletes that a LIST of `listed_prefix` names; other objects there, and condemned ones, are ignored."""
        found = KnownDeletes(format_version, salt)
        for key in keys:
            name = key.rpartition("/")[2]
            named = location_hash(folder_of(format_version) + name) if condemned else b""
            if not any(named in page.locations for page in condemned):
                found.add(name)
        return found

    def __len__(self) -> int:
        return len(self._rest)

    def add(self, name: str) -> None:
        """Remember that the object `name` is stored."""
        if _NAME.match(name) is None:
            return
        digest, rest = bytes.fromhex(name[:32]), name[32:]
        known = self._rest.get(digest)
        self._rest[digest] = rest if known is None else min(known, rest)

    def find(self, digest: str) -> Converted | None:
        """What is stored for the inputs with this hash."""
        rest = self._rest.get(bytes.fromhex(digest))
        if rest is None:
            return None
        numbers, _, ending = rest.partition(".")
        location = f"{self._folder}{digest}{rest}"
        self.used.add(location)
        return Converted(location, ending.rpartition(".")[2], tuple(map(int, numbers[1:].split("-"))))
