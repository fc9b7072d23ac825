"""The names of everything that an export consists of.

Owns: the layout of `export/` in a table's folder, absolute locations, the hashes in names. Does not own: what the
objects hold, the names of converted deletes (`converted_deletes`).
Invariants: a name follows from all inputs of its object, and from what was swept before (`sweep_state`), so two
processes that see one head write the same bytes under the same name; the folder depends on the base of the absolute
locations in it, so a lake that moved exports again; newest sorts first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rootline.catalog.manifest.format_version import FormatVersion
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import MAX_VERSION, is_absolute, table_prefix

ENCODING: Final = b"rootline export 1"
"""Every hash begins with it; it changes whenever the same inputs would give other bytes."""
_DIGITS: Final = 16
_METADATA_NAME: Final = re.compile(r"(?P<inverted>[0-9a-f]{16})-(?P<version>0|[1-9][0-9]{0,18})\.metadata\.json\Z")


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """Where the exports of one table in one format are stored, for readers who know the table as `base`."""

    table: TableName
    format_version: FormatVersion
    base: str
    """`<warehouse>/<namespace>/<table>`, absolute and not percent-encoded."""

    @staticmethod
    def of(warehouse: str, table: TableName, format_version: FormatVersion) -> ExportFolder:
        """`warehouse`: its absolute URL, such as `file:///dir` or `s3://bucket/prefix`."""
        return ExportFolder(table, format_version, f"{warehouse.rstrip('/')}/{table_prefix(table).rstrip('/')}")

    @property
    def relative(self) -> str:
        """The folder, relative to the table's; ends in `/`."""
        mark = hashlib.sha256(ENCODING + self.base.encode()).hexdigest()[:16]
        return f"export/v{int(self.format_version)}/{mark}/"

    @property
    def metadata_prefix(self) -> str:
        """The folder of metadata.json files: a LIST of it with one key finds the newest."""
        return f"{table_prefix(self.table)}{self.relative}metadata/"

    def metadata(self, version: Version) -> str:
        """The metadata.json of `version`, relative to the table."""
        return f"{self.relative}metadata/{_inverted(version)}.metadata.json"

    def manifest_list(self, version: Version, body: bytes, salt: str = "") -> str:
        """The manifest list of `version`, relative to the table; its name ends in the hash of its bytes."""
        digest = hashlib.sha256(body).hexdigest()[:_DIGITS]
        return f"{self.relative}lists/{_inverted(version)}{_salted(salt)}-{digest}.avro"

    def manifest(self, digest: str, salt: str = "") -> str:
        """The manifest whose inputs have the hash `digest`, relative to the table."""
        return f"{self.relative}manifests/{digest}{_salted(salt)}.avro"

    def absolute(self, location: str) -> str:
        """A location as engines see it: a relative one is put behind the base, an absolute one stays."""
        return location if is_absolute(location) else f"{self.base}/{location}"

    def key(self, location: str) -> ObjectKey:
        """The object key of a location relative to the table."""
        return ObjectKey(table_prefix(self.table) + location)


def version_of_metadata(key: str) -> Version | None:
    """The version in the key of a metadata.json; `None` if the key is not one of ours (a foreign object)."""
    match = _METADATA_NAME.search(key.rsplit("/", 1)[-1])
    if match is None:
        return None
    version = int(match["version"])
    return Version(version) if int(match["inverted"], 16) == MAX_VERSION - version else None


def is_list_of(location: str, body: bytes) -> bool:
    """Whether a manifest list has the bytes that its name says."""
    return location.endswith(f"-{hashlib.sha256(body).hexdigest()[:_DIGITS]}.avro")


def hash_of(parts: Iterable[bytes | str | int | None]) -> str:
    """32 hex digits over `parts`; two different lists of parts never join to the same text."""
    hashing = hashlib.sha256(ENCODING)
    for part in parts:
        body = part if isinstance(part, bytes) else repr(part).encode()
        hashing.update(f"{type(part).__name__}{len(body)}:".encode() + body)
    return hashing.hexdigest()[:32]


def _salted(salt: str) -> str:
    return f"-{salt}" if salt else ""


def _inverted(version: Version) -> str:
    return f"{MAX_VERSION - version:016x}-{version}"
