"""The files that a client may name in a commit, and the manifest lists and manifests of it that are read.

Owns: a table's folder in the forms in which clients write it, the places of clients' metadata, the limits of what is
read. Does not own: the bytes of lists and manifests (`manifest_codec`), the difference between two of them
(`live_sets`), the rules of a location (`rootline.schemas.intent_rules`).
Invariants: a list or a manifest is read below the table's own folder only. A limit is checked before the bytes it
bounds are in memory. Decoding runs on a thread, one small and one large object at a time.

Theory. Clients put their lists and manifests into the folder that `write.metadata.path` names. Exports set it
to `rest/metadata` of the table. A client that ignores it uses `metadata`, where Rootline has only folders. A list there
stops a sweep that does not know files of clients, so it is only read in tables whose sweeps know them. A file's
location is compared byte for byte, because stores take keys unchanged. Only the scheme differs: some clients write
`s3a` or `s3n` for `s3`, and Hadoop writes `file:/x` for `file:///x`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from rootline.catalog.rest.responses import Refusal, bad_request
from rootline.maintenance.limits import CLIENT_FILES_PROPERTY
from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.rest.writing import SMALL_BYTES, CommitsAtOnce
from rootline.schemas.bytes.foreign_avro import MANIFEST_LIMITS, AvroLimits
from rootline.schemas.bytes.manifest_codec import ListedManifest, listed_manifests, manifest_entries
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent_rules import check_location, is_plain
from rootline.schemas.object_keys import RESERVED_PREFIXES, OwnKind, is_absolute, own_kind
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.stored_objects import get_up_to, read_stored, stored_key

_MIB: Final = 1 << 20
LIST_LIMITS: Final = replace(
    MANIFEST_LIMITS,
    object_bytes=16 * _MIB,
    plain_bytes=64 * _MIB,
    block_bytes=64 * _MIB,
    records=500_000,
    values=1 << 23,
)
"""For one manifest list."""
MANIFESTS_MAX: Final = 1_000
"""The manifests that one commit may add, and the manifests of its base that it may replace."""
COMMIT_LIMITS: Final = replace(
    MANIFEST_LIMITS,
    object_bytes=256 * _MIB,
    plain_bytes=256 * _MIB,
    records=1_000_000,
    values=1 << 24,
)
"""For all manifests of one commit together."""
_SMALL: Final = replace(COMMIT_LIMITS, plain_bytes=32 * _MIB, block_bytes=32 * _MIB, records=50_000)
_SMALL_BYTES: Final = 2 * _MIB
_SMALL_FILES: Final = 10_000
"""A commit with more is large. Of large ones, one is read at a time."""
_SCHEMES: Final = ("s3", "s3a", "s3n")
_READABLE: Final = frozenset((OwnKind.CLIENT_METADATA, OwnKind.EXPORT_LIST, OwnKind.EXPORT_MANIFEST))


class MetadataMissing(Refusal):
    """A list or a manifest that a client named does not exist."""


@dataclass(frozen=True, slots=True)
class ClientFolder:
    """A table's folder, whose location for clients is `base`.

    `is_swept`: whether sweeps know the files of clients. Otherwise a list in `metadata/` would stop them.
    """

    table: TableName
    base: str
    is_swept: bool

    @property
    def _forms(self) -> tuple[str, ...]:
        scheme, _, rest = self.base.partition("://")
        if scheme in _SCHEMES:
            return tuple(f"{one}://{rest}/" for one in _SCHEMES)
        return (f"file://{rest}/", f"file:{rest}/", f"{rest}/") if scheme == "file" else (f"{self.base}/",)

    def relative(self, location: str) -> str | None:
        """The location relative to the folder, or `None` if it is outside."""
        return next((location[len(form) :] for form in self._forms if location.startswith(form)), None)

    def metadata(self, location: str) -> str:
        """The place of a list or a manifest, relative to the folder. Raises `Refusal` unless it may be read."""
        found = self.relative(location)
        kind = own_kind(found, of_clients=True) if found is not None and is_plain(found) else None
        if found is not None and kind in _READABLE and (self.is_swept or own_kind(found) is kind):
            return found
        fault = f"is not a place for metadata of this table: write lists and manifests to {self.base}/rest/metadata, "
        fault += "as the table property write.metadata.path names it"
        if kind is OwnKind.CLIENT_METADATA:
            fault = (
                f"is in metadata/, where it stops sweeps of this table: set its property {CLIENT_FILES_PROPERTY} to "
                f"true, or write lists and manifests to {self.base}/rest/metadata, as write.metadata.path names it"
            )
        raise bad_request(f"{self.table}: {location[:200]!r} {fault}")

    def data(self, location: str) -> str:
        """The location of a data file in an intent: relative in the folder, else unchanged.

        Raises:
            Refusal: it is relative, or in a folder that has no data files.
            Invalid: `location-invalid`.
        """
        found = self.relative(location)
        if found is None:
            if not is_absolute(location):
                raise bad_request(f"{self.table}: the file {location[:200]!r} is not absolute: name the whole location")
            return location
        if found.startswith(RESERVED_PREFIXES):
            raise bad_request(
                f"{self.table}: the file {location[:200]!r} is in a folder for metadata: write data files to "
                f"{self.base}/data"
            )
        check_location(found)
        return found


@dataclass(slots=True)
class ClientReads:
    """Reads the metadata of one commit. `rest`: the limits for the manifests that are not read yet.
    `manifests`: the number of those that are read.
    """

    store: ObjectStore
    folder: ClientFolder
    commits: CommitsAtOnce
    rest: AvroLimits = field(default=COMMIT_LIMITS)
    manifests: int = 0

    async def listed(self, location: str) -> dict[str, ListedManifest]:
        """The manifests in a list by their places, relative to the folder if they are in it.

        Raises:
            MetadataMissing: there is no such list.
            Refusal: it is outside the table's folder, too large, or not a list.
        """
        table, place = self.folder.table, self.folder.metadata(location)
        found = await get_up_to(self.store, stored_key(table, place), SMALL_BYTES)
        if found is None:
            raise self._missing(location)
        if isinstance(found, StoredObject):
            async with self.commits.turn(table, len(found.body)):
                return await self._decoded_list(found.body, location)
        async with self.commits.large_lists.of(table):
            body = await self._read(location, None, LIST_LIMITS.object_bytes)
            async with self.commits.turn(table, len(body)):
                return await self._decoded_list(body, location)

    async def _decoded_list(self, body: bytes, location: str) -> dict[str, ListedManifest]:
        try:
            return await asyncio.to_thread(self._by_place, body, location[:200])
        except Corrupt as error:
            raise bad_request(f"{self.folder.table}: manifest list {error.message}") from error

    def _by_place(self, body: bytes, name: str) -> dict[str, ListedManifest]:
        found: dict[str, ListedManifest] = {}
        for each in listed_manifests(body, name=name, limits=LIST_LIMITS):
            place = self.folder.relative(each.location) or each.location  # checked if it is read
            if place in found:
                raise bad_request(f"{self.folder.table}: {name} names {each.location[:200]!r} twice: name it once")
            found[place] = each
        return found

    @asynccontextmanager
    async def of_size(self, manifests: tuple[ListedManifest, ...]) -> AsyncIterator[None]:
        """Read these manifests in the block. Raises `Refusal` if there are too many, or too large ones."""
        table = self.folder.table
        self.manifests += len(manifests)
        if self.manifests > MANIFESTS_MAX:
            raise bad_request(
                f"{table}: the commit changes {self.manifests} manifests, and {MANIFESTS_MAX} are read: commit fewer "
                "files at once"
            )
        wrong = next((each for each in manifests if each.length <= 0 or each.is_encrypted), None)
        if wrong is not None:
            raise bad_request(
                f"{table}: {wrong.location[:200]!r} is encrypted, or its list states {wrong.length} bytes: write it "
                "without encryption, and state its length"
            )
        size = sum(each.length for each in manifests)
        if size > COMMIT_LIMITS.object_bytes:
            raise bad_request(
                f"{table}: the manifests of the commit have {size:,} bytes, {COMMIT_LIMITS.object_bytes:,} are read: "
                "commit fewer files at once"
            )
        if size <= _SMALL_BYTES and sum(each.live_files for each in manifests) <= _SMALL_FILES:
            self.rest = _SMALL
            yield
        else:
            async with self.commits.large.of(table):
                yield

    async def entries(self, listed: ListedManifest, definition: TableDefinition) -> list[ContentEntry]:
        """The entries of a manifest, including deleted ones. Raises the errors of `listed`, and `spec-unknown`."""
        body = await self._read(listed.location, listed.length, COMMIT_LIMITS.object_bytes)

        def decode() -> list[ContentEntry]:
            found, self.rest = manifest_entries(body, definition, listed, limits=self.rest)
            return found

        async with self.commits.turn(self.folder.table, len(body)):
            try:
                return await asyncio.to_thread(decode)
            except Corrupt as error:
                raise bad_request(f"{self.folder.table}: manifest {error.message}") from error

    async def _read(self, location: str, length: int | None, bytes_max: int) -> bytes:
        table, place = self.folder.table, self.folder.metadata(location)
        try:
            return await read_stored(self.store, table, place, code="leaf-corrupt", length=length, bytes_max=bytes_max)
        except Corrupt as error:
            if error.code == "object-missing":
                raise self._missing(location) from None
            raise bad_request(f"{table}: {error.message}") from error
        except Invalid as error:
            raise bad_request(f"{table}: {error.message}") from error

    def _missing(self, location: str) -> MetadataMissing:
        words = f"{self.folder.table}: {location[:200]!r} does not exist: write it before the commit"
        return MetadataMissing(400, "BadRequestException", words)
