"""Formats, table properties and object names of exports.

A *sweep* deletes objects that no retained version or export needs. A root lists them first: they are *condemned*. Names
of objects that are exported later contain a *salt*, so that no deleted name is used again (`export_memory`).

Owns: the format versions of Iceberg, the properties for exports, the layout of `export/` in a table's folder, absolute
locations, the hashes in names, and the stored converted deletes as described by their names. Does not own: the bytes of
objects, the input of a converted delete's hash (`converted_deletes`), bounds of properties (`table_properties`).
Invariants: a name is computed from all inputs of its object and from earlier sweeps, so two processes with the same
head write the same bytes under the same name. The folder depends on the base of the absolute locations in it, so a lake
that moved makes new exports. The newest name sorts first. The name of a converted delete contains everything that its
entry needs, so a LIST is enough and the object is not opened. Of several names with one hash, the first counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from rootline.schemas.bytes.root.location_pages import CondemnedPage
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.location_hashes import location_hash
from rootline.schemas.object_keys import MAX_VERSION, is_absolute, table_prefix
from rootline.schemas.table_properties import whole_number

__all__ = ["FormatVersion"]


class FormatVersion(IntEnum):
    """`format-version` of the table metadata."""

    V2 = 2
    """Position delete files, no row ids."""
    V3 = 3
    """Deletion vectors, row ids, default values."""


SNAPSHOTS: Final = "rootline.export.snapshots"
FORMAT: Final = "rootline.export.format"
SNAPSHOTS_DEFAULT: Final = 10
HANDED_ON: Final[Mapping[str, str]] = MappingProxyType(
    {
        "commit.manifest-merge.enabled": "false",
        "commit.retry.max-wait-ms": "1000",
        "commit.retry.num-retries": "10",
    }
)
"""Properties that exports add for clients that commit, unless the table has its own. A client that lost retries more
often than by default, and does not merge the manifests of others into its own."""
METADATA_PATH: Final = "write.metadata.path"
"""The property for the folder of clients' manifests and lists. Exports always state `ExportFolder.clients_metadata`."""


def format_of(properties: Mapping[str, str]) -> FormatVersion:
    """The default format of a table's exports: V3 unless its property states otherwise."""
    return FormatVersion(whole_number(properties, FORMAT, 3))


def snapshots_of(properties: Mapping[str, str]) -> int:
    """The number of newest versions that an export contains as snapshots, in addition to tagged versions."""
    return whole_number(properties, SNAPSHOTS, SNAPSHOTS_DEFAULT)


ENCODING: Final = b"rootline export 2"
"""The prefix of every hash. It changes whenever the same inputs would produce different bytes."""
ENCODINGS: Final = (ENCODING, b"rootline export 1")
"""The encoding that exporters write, then older ones, whose exports are only read by sweeps and checks."""
_DIGITS: Final = 16
_METADATA_NAME: Final = re.compile(r"(?P<inverted>[0-9a-f]{16})-(?P<version>0|[1-9][0-9]{0,18})\.metadata\.json\Z")


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """The folder of one table's exports in one format, for readers who use the table location `base`."""

    table: TableName
    format_version: FormatVersion
    base: str
    """`<warehouse>/<namespace>/<table>`, absolute and not percent-encoded."""
    encoding: bytes = ENCODING

    @property
    def is_superseded(self) -> bool:
        """Whether an older release wrote the exports in the folder. No exporter continues from them."""
        return self.encoding != ENCODING

    @staticmethod
    def of(warehouse: str, table: TableName, format_version: FormatVersion) -> ExportFolder:
        """The folder in the warehouse with this absolute URL, such as `file:///dir` or `s3://bucket/prefix`."""
        return ExportFolder(table, format_version, f"{warehouse.rstrip('/')}/{table_prefix(table).rstrip('/')}")

    @property
    def relative(self) -> str:
        """The folder, relative to the table's. It ends in `/`."""
        mark = hashlib.sha256(self.encoding + self.base.encode()).hexdigest()[:16]
        return f"export/v{int(self.format_version)}/{mark}/"

    @property
    def metadata_prefix(self) -> str:
        """The folder of metadata.json files: a LIST of it with one key finds the newest."""
        return f"{table_prefix(self.table)}{self.relative}metadata/"

    @property
    def clients_metadata(self) -> str:
        """The absolute folder for the manifests and lists of clients that commit."""
        return f"{self.base}/rest/metadata"

    def metadata(self, version: Version) -> str:
        """The metadata.json of `version`, relative to the table."""
        return f"{self.relative}metadata/{_inverted(version)}.metadata.json"

    def manifest_list(self, version: Version, body: bytes, salt: str = "") -> str:
        """The manifest list of `version`, relative to the table. Its name ends in the hash of its bytes."""
        digest = hashlib.sha256(body).hexdigest()[:_DIGITS]
        return f"{self.relative}lists/{_inverted(version)}{_salted(salt)}-{digest}.avro"

    def manifest(self, digest: str, salt: str = "") -> str:
        """The manifest whose inputs have the hash `digest`, relative to the table."""
        return f"{self.relative}manifests/{digest}{_salted(salt)}.avro"

    def absolute(self, location: str) -> str:
        """A location in the form for engines. The base is prepended to a relative one, and an absolute one is
        unchanged.
        """
        return location if is_absolute(location) else f"{self.base}/{location}"

    def key(self, location: str) -> ObjectKey:
        """The object key of a location relative to the table."""
        return ObjectKey(table_prefix(self.table) + location)


def version_of_metadata(key: str) -> Version | None:
    """The version in the key of a metadata.json, or `None` for a foreign object."""
    match = _METADATA_NAME.search(key.rsplit("/", 1)[-1])
    if match is None:
        return None
    version = int(match["version"])
    return Version(version) if int(match["inverted"], 16) == MAX_VERSION - version else None


def is_list_of(location: str, body: bytes) -> bool:
    """Whether `body` has the hash in the manifest list's name."""
    return location.endswith(f"-{hashlib.sha256(body).hexdigest()[:_DIGITS]}.avro")


def hash_of(parts: Iterable[bytes | str | int | None]) -> str:
    """32 hex digits over `parts`. Two different lists of parts are never joined to the same text."""
    hashing = hashlib.sha256(ENCODING)
    for part in parts:
        body = part if isinstance(part, bytes) else repr(part).encode()
        hashing.update(f"{type(part).__name__}{len(body)}:".encode() + body)
    return hashing.hexdigest()[:32]


def _salted(salt: str) -> str:
    return f"-{salt}" if salt else ""


def _inverted(version: Version) -> str:
    return f"{MAX_VERSION - version:016x}-{version}"


_FOLDERS: Final = {FormatVersion.V2: "export/v2/deletes/", FormatVersion.V3: "export/v3/vectors/"}
_NAME: Final = re.compile(
    r"(?P<hash>[0-9a-f]{32})(?P<numbers>(?:-(?:0|[1-9][0-9]{0,18}))+)(?:\.[0-9a-f]{16})?\.(?P<kind>parquet|puffin|none)\Z"
)
NOTHING: Final = "none"
"""The kind of an empty object: the delete files, once read, delete no row of the data file."""


def folder_of(format_version: FormatVersion) -> str:
    """The folder of a format's converted deletes, relative to the table. It ends in `/`."""
    return _FOLDERS[format_version]


def listed_prefix(table: TableName, format_version: FormatVersion) -> str:
    """The prefix to LIST at a cold start."""
    return table_prefix(table) + folder_of(format_version)


class Converted(NamedTuple):
    """One converted delete: its location relative to the table, and the numbers in its name."""

    location: str
    kind: str
    numbers: tuple[int, ...]


def name_of(digest: str, numbers: Iterable[int], kind: str, salt: str = "") -> str:
    """The name of a converted delete, without its folder. `salt`: `SweepState.salt`, which each sweep changes."""
    return f"{digest}-{'-'.join(map(str, numbers))}{'.' if salt else ''}{salt}.{kind}"


class KnownDeletes:
    """Delete files that exports of one table and format made from its deletion vectors and equality deletes, and that
    are known to be stored.
    """

    def __init__(self, format_version: FormatVersion, salt: str = "") -> None:
        """`salt`: a part of the names of new objects, from `SweepState.salt`."""
        self._folder = folder_of(format_version)
        self._rest: dict[bytes, str] = {}
        self.salt: Final = salt
        self.used: set[str] = set()
        """The locations that were found or added since the set was cleared."""
        self._converting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @staticmethod
    def listed(
        format_version: FormatVersion,
        keys: Iterable[str],
        *,
        salt: str = "",
        condemned: Sequence[CondemnedPage] = (),
    ) -> KnownDeletes:
        """The deletes in a LIST of `listed_prefix`. Other objects there, and condemned ones, are ignored."""
        found = KnownDeletes(format_version, salt)
        for key in keys:
            name = key.rpartition("/")[2]
            named = location_hash(folder_of(format_version) + name) if condemned else b""
            if not any(named in page.content.locations for page in condemned):
                found.add(name)
        return found

    def __len__(self) -> int:
        return len(self._rest)

    def lock_of(self, location: str) -> asyncio.Lock:
        """The lock for converting vectors of a Puffin file, because other versions need them too."""
        return self._converting.setdefault(location, asyncio.Lock())

    def add(self, name: str) -> None:
        """Record that the object `name` is stored."""
        if _NAME.match(name) is None:
            return
        digest, rest = bytes.fromhex(name[:32]), name[32:]
        known = self._rest.get(digest)
        self._rest[digest] = rest if known is None else min(known, rest)

    def find(self, digest: str) -> Converted | None:
        """The stored conversion of the inputs with this hash."""
        rest = self._rest.get(bytes.fromhex(digest))
        if rest is None:
            return None
        numbers, _, ending = rest.partition(".")
        location = f"{self._folder}{digest}{rest}"
        self.used.add(location)
        return Converted(location, ending.rpartition(".")[2], tuple(map(int, numbers[1:].split("-"))))
