"""The keys of a table's objects, relative to the warehouse, and locations outside its folder.

Owns: the layout of a table's prefix and of a namespace's own objects, the valid keys of objects, absolute locations of
adopted tables and their compared form. Does not own: the content of objects, the locations that an intent may name
(`intent_rules`).
Invariants: keys of roots and of namespaces sort newest first. No key is another key's folder. No table's prefix is
inside another table's or a namespace's: a namespace of several levels is one folder with dots in its name. A valid key
stays inside the warehouse when it is read as a path. Parts that begin with `.rootline` belong to the adapters. A
location is absolute or relative, never both. An absolute one is used exactly as its writer wrote it, without
percent-decoding, because Iceberg's writers do not encode.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import (
    Location,
    NamespaceName,
    ObjectKey,
    TableName,
    Version,
    namespace_name,
    table_name,
)

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_NO_PARTS: Final = re.compile(r"(?:/\.?)+(?=/|\Z)")


def is_absolute(location: str) -> bool:
    """Whether `location` begins with `/` or a scheme (`s3:`, `file:`), so it is not below a table's folder."""
    return location.startswith("/") or _SCHEME.match(location) is not None


def scheme_of(location: str) -> str:
    """The scheme in lower case, `file` for a plain path, or empty for a relative location."""
    if location.startswith("/"):
        return "file"
    found = _SCHEME.match(location)
    return "" if found is None else found[1].lower()


def resolved(location: str) -> str:
    """`location` without empty and `.` parts, so that all paths of one file in a file system are equal.

    Use it for comparison only, because a bucket treats the different forms as different objects.
    """
    return _NO_PARTS.sub("", location)


MAX_VERSION: Final = 2**63 - 1
RESERVED_PREFIX: Final = ".rootline"
KEY_BYTES_MAX: Final = 1024
PART_BYTES_MAX: Final = 255
RESERVED_PREFIXES: Final = ("metadata/", "export/", "rest/")
"""Folders of a table without data files: metadata objects, exports to other engines, metadata of other engines."""
_UUID: Final = "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_NAME: Final = f"(?:{_UUID}|[0-9a-f]{{32}})"
_EXPORT: Final = "export/v[23]/[0-9a-f]{16}"
_INVERTED: Final = "[0-9a-f]{16}-(?:0|[1-9][0-9]{0,18})"
_SPARK_FOLDER: Final = "data/spark-write="
NAMESPACE_FOLDER: Final = ".namespace"
"""The folder of a namespace's own objects. It is not a valid table name."""
_ROOT_NAME: Final = re.compile(r"(?P<inverted>[0-9a-f]{16})-(?P<version>0|[1-9][0-9]{0,18})\.avro\Z")
_NAMESPACE_OBJECT: Final = re.compile(r"(?P<inverted>[0-9a-f]{16})-(?P<version>0|[1-9][0-9]{0,18})\.json\Z")


class OwnKind(StrEnum):
    """The kinds of objects below a table's folder that a sweep may delete. Roots are not among them.

    All but the last two are Rootline's own. The last two are files of clients of the REST catalog.
    """

    LEAF = "leaf"
    VECTOR = "vector"
    PAGE = "page"
    DEFINITION = "definition"
    DATA_FILE = "data-file"
    DATA_VECTOR = "data-vector"
    EXPORT_METADATA = "export-metadata"
    EXPORT_LIST = "export-list"
    EXPORT_MANIFEST = "export-manifest"
    EXPORT_DELETES = "export-deletes"
    CLIENT_METADATA = "client-metadata"
    CLIENT_FILE = "client-file"


OF_EXPORTS: Final = frozenset(
    {OwnKind.EXPORT_METADATA, OwnKind.EXPORT_LIST, OwnKind.EXPORT_MANIFEST, OwnKind.EXPORT_DELETES}
)
"""The kinds of objects that exporters store. No intent and no root ever names them."""


def own_kind(location: str, *, of_clients: bool = False) -> OwnKind | None:
    """The kind of a location relative to its table, by its form. `None` if no sweep deletes such names.

    `of_clients`: whether clients of the REST catalog write the table's files, so that names of theirs count too.
    """
    for kind, shape in (_SHAPES_WITH_CLIENTS if of_clients else _OWN_SHAPES).items():
        if shape.fullmatch(location):
            return kind
    return None


def own_forms(location: str, table: str) -> list[str]:
    """`location`, and, if it is absolute, each of its ends that may be a path relative to the folder of `table`.

    The warehouse's own location is not known here, so every folder with the table's name is treated as the table's. The
    forms are only used to keep objects from deletion.
    """
    if not (location.startswith("/") or ":" in location):
        return [location]
    folder, plain = f"/{table_prefix(TableName(table))}", resolved(location)
    starts = [found.end() for found in re.finditer(f"(?={re.escape(folder)})", plain)]
    return [location, *(plain[start + len(folder) :] for start in starts)]


@lru_cache(maxsize=4_096)
def key_fault(key: str) -> str | None:
    """The rule that a key breaks, in words, or `None` if every store accepts the key.

    A store may still list a key that breaks a rule, because other software stored it.
    """
    if not key:
        return "is empty"
    if not key.isprintable() or "\\" in key:
        return "contains control characters or a backslash"
    if len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
        return f"is longer than {KEY_BYTES_MAX} bytes"
    if is_absolute(key):
        return "is absolute or has a scheme"
    for part in key.split("/"):
        if part in ("", ".", ".."):
            return "has an empty, '.' or '..' part"
        if part.startswith(RESERVED_PREFIX):
            return f"has a part that begins with {RESERVED_PREFIX!r}, which is reserved"
        if len(part.encode("utf-8", "surrogatepass")) > PART_BYTES_MAX:
            return f"has a part longer than {PART_BYTES_MAX} bytes"
    return None


def table_prefix(table: TableName) -> str:
    """`namespace/table/`: the folder of all objects of a table."""
    namespace, _, name = table.rpartition(".")
    return f"{namespace}/{name}/"


def namespace_in(folder: str) -> NamespaceName | None:
    """The namespace of this folder, or `None` if it is not a namespace's folder."""
    try:
        return namespace_name(folder.rstrip("/"))
    except Invalid:
        return None


def table_in(folder: str) -> TableName | None:
    """The table of this folder, or `None` if it is not a table's folder. The inverse of `table_prefix`."""
    namespace, _, name = folder.rstrip("/").rpartition("/")
    try:
        found = table_name(f"{namespace}.{name}")
    except Invalid:
        return None
    return found if "/" not in namespace and "." not in name else None


def namespace_objects_prefix(namespace: NamespaceName) -> str:
    """The folder of a namespace's own objects. A LIST of this folder for one key finds the newest version."""
    return f"{namespace}/{NAMESPACE_FOLDER}/"


def namespace_key(namespace: NamespaceName, version: int) -> ObjectKey:
    """The key of version `version` of a namespace's properties."""
    return ObjectKey(f"{namespace_objects_prefix(namespace)}{MAX_VERSION - version:016x}-{version}.json")


def version_of_namespace_key(key: str) -> int | None:
    """The version in the key of a namespace's object, or `None` for any other key."""
    return _version_in(key, _NAMESPACE_OBJECT)


def roots_prefix(table: TableName) -> str:
    """The folder of a table's roots. A LIST of this folder for one key finds the head."""
    return f"{table_prefix(table)}metadata/roots/"


def root_key(table: TableName, version: Version) -> ObjectKey:
    """The key of root `version`: inverted version first, so that a LIST yields the newest."""
    if not 0 <= version <= MAX_VERSION:
        raise ValueError(f"root version {version} is outside 0..{MAX_VERSION}")
    return ObjectKey(f"{roots_prefix(table)}{MAX_VERSION - version:016x}-{version}.avro")


def version_of_root_key(key: str) -> Version | None:
    """The version in a root's key, or `None` for any other key (a foreign object, a temporary file)."""
    found = _version_in(key, _ROOT_NAME)
    return None if found is None else Version(found)


def _version_in(key: str, shape: re.Pattern[str]) -> int | None:
    match = shape.search(key.rsplit("/", 1)[-1])
    if match is None:
        return None
    version = int(match["version"])
    return version if int(match["inverted"], 16) == MAX_VERSION - version else None


def leaf_location(leaf_uuid: uuid.UUID, content: str, footer_digest_hex: str) -> Location:
    """A leaf's location relative to its table. `content` is `data` or `delete`. The digest has 16 hex digits."""
    return Location(f"metadata/leaves/{leaf_uuid}-{content}-{footer_digest_hex[:16]}.parquet")


def vector_location(name: str) -> Location:
    """The location of a Puffin file of merged or manifest vectors. `name` is a uuid or the hash of its inputs."""
    return Location(f"metadata/vectors/{name}.puffin")


def page_location(digest_hex: str) -> Location:
    """The location of a page, relative to its table. Its name is the beginning of the SHA-256 of its bytes."""
    return Location(f"metadata/pages/{digest_hex[:32]}.avro")


def definition_location(definition_uuid: uuid.UUID) -> Location:
    """A table definition's location relative to its table."""
    return Location(f"metadata/definitions/{definition_uuid}.json")


def spark_folder(write_uuid: uuid.UUID) -> Location:
    """The folder, relative to its table, for one write by Spark's own writer. A sweep may delete its files."""
    return Location(f"{_SPARK_FOLDER}{write_uuid}")


def spark_folder_of(key: str) -> str | None:
    """The folder, relative to the warehouse, of the write by Spark's own writer that stored `key`. `None`: no such
    write did.
    """
    found = re.match(f".*?/{_SPARK_FOLDER}{_UUID}(?=/)", key)
    return None if found is None else found[0]


def key_of(table: TableName, location: str) -> ObjectKey:
    """The object key of a location that is relative to the table's prefix."""
    return ObjectKey(table_prefix(table) + location)


_OWN_SHAPES: Final[Mapping[OwnKind, re.Pattern[str]]] = {
    OwnKind.LEAF: re.compile(f"metadata/leaves/{_UUID}-(?:data|delete)-[0-9a-f]{{16}}\\.parquet"),
    OwnKind.VECTOR: re.compile(f"metadata/vectors/{_NAME}(?:-[0-9a-f]{{16}})?\\.puffin"),
    OwnKind.PAGE: re.compile(r"metadata/pages/[0-9a-f]{32}\.avro"),
    OwnKind.DEFINITION: re.compile(f"metadata/definitions/{_UUID}\\.json"),
    OwnKind.DATA_FILE: re.compile(
        f"data/(?:[^/=]+=[^/]*/)*{_UUID}\\.parquet|{_SPARK_FOLDER}{_UUID}/(?:[^/.]+/)*part-[^/\\n]+\\.parquet"
        r"(?:\.pending)?"
    ),
    OwnKind.DATA_VECTOR: re.compile(f"data/{_NAME}-deletes-[0-9a-f]{{16}}\\.puffin"),
    OwnKind.EXPORT_METADATA: re.compile(f"{_EXPORT}/metadata/{_INVERTED}\\.metadata\\.json"),
    OwnKind.EXPORT_LIST: re.compile(f"{_EXPORT}/lists/{_INVERTED}(?:-[0-9a-f]{{16}}){{1,2}}\\.avro"),
    OwnKind.EXPORT_MANIFEST: re.compile(f"{_EXPORT}/manifests/[0-9a-f]{{32}}(?:-[0-9a-f]{{16}})?\\.avro"),
    OwnKind.EXPORT_DELETES: re.compile(
        r"export/v(?:2/deletes|3/vectors)/[0-9a-f]{32}(?:-[0-9]{1,19})+(?:\.[0-9a-f]{16})?\.(?:parquet|puffin|none)"
    ),
    OwnKind.CLIENT_METADATA: re.compile(r"rest/metadata/[^/\n]+\.(?:avro|json|stats)"),
}
_SHAPES_WITH_CLIENTS: Final[Mapping[OwnKind, re.Pattern[str]]] = {
    **_OWN_SHAPES,
    OwnKind.CLIENT_METADATA: re.compile(
        rf"rest/metadata/[^/\n]+\.(?:avro|json|stats)|metadata/(?:snap-[0-9]+-(?:[0-9]+-)?{_UUID}|{_UUID}-m[0-9]+)\.avro"
    ),
    OwnKind.CLIENT_FILE: re.compile(rf"data/(?:[^/\n]+/)*[^/\n]*{_UUID}[^/\n]*\.(?:parquet|orc|avro|puffin)"),
}
