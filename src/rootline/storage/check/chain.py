"""The check of a table's whole chain of roots.

Owns: the order of a check, from the oldest addressable root to the head. Does not own: the rules (`header`, `entries`,
`live_set`), reading objects (`objects`).
Invariants: changes nothing. Stored bytes never raise an error: their faults become findings. Every metadata object that
a root names is read whole, once. A check of a table under writes covers the versions that existed when it began.

Source: invariants page, and format page, "Integrity".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.bytes.root.root_codec import Root, decode_root
from rootline.schemas.content_entry import EntryPlace
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import is_absolute, root_key, roots_prefix, table_prefix, version_of_root_key
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.check.data_files import FILES_TOGETHER, STATISTICS_WRONG, DataFileCheck
from rootline.storage.check.entries import EntryCheck
from rootline.storage.check.findings import CheckSummary, DataFiles, Finding, FindingBook, Progress, removal_of
from rootline.storage.check.header import (
    Decided,
    faults_of_decided,
    faults_of_header,
    faults_of_progress,
    faults_of_step,
)
from rootline.storage.check.live_set import LiveSet
from rootline.storage.check.objects import ObjectCheck
from rootline.storage.metadata.root_reader import at_head, read_root
from rootline.storage.stored_objects import stored_key
from rootline.tree.commit.apply import WRITER_RETENTION_S
from rootline.tree.parts.name import purges, starts_new_table
from rootline.tree.state.addressable import Addressable

_ROOTS_AT_ONCE: Final = 16


async def check_table(
    store: ObjectStore,
    table: TableName,
    *,
    data_files: DataFiles = DataFiles.LISTED,
    summary: CheckSummary | None = None,
    progress: Progress | None = None,
    writer_retention_s: int = WRITER_RETENTION_S,
) -> AsyncIterator[Finding]:
    """Yield every fault of `table` when it is found. A sound table yields nothing.

    Args:
        store: the warehouse.
        table: the table's name.
        data_files: the depth of the check of data files and delete files.
        summary: updated during the check.
        progress: called with the summary after every root, and after every few data files.
        writer_retention_s: how long an idle `process/` writer must stay in the ledger. A `rest/` writer stays an hour.

    Raises:
        Invalid: `table-unknown`, there is no root at all.
        Unavailable: the store cannot be reached. Earlier findings are still valid.
    """
    counted = summary if summary is not None else CheckSummary()
    check = _TableCheck(store, table, counted, writer_retention_s, data_files)
    versions = await check.versions()
    previous: Root | None = None
    for start in range(0, len(versions), _ROOTS_AT_ONCE):
        some = versions[start : start + _ROOTS_AT_ONCE]
        bodies = await asyncio.gather(*(store.get(root_key(table, version)) for version in some))
        for version, stored in zip(some, bodies, strict=True):
            if stored is None and await check.has_expired(version):
                continue
            previous = await check.root(version, stored, previous)
            for finding in check.book.take():
                yield finding
            if progress is not None:
                progress(check.summary)
            await asyncio.sleep(0)  # let other tasks of the loop run
    async for _ in check.data_files():
        for finding in check.book.take():
            yield finding
        if progress is not None:
            progress(check.summary)


class _TableCheck:
    def __init__(
        self,
        store: ObjectStore,
        table: TableName,
        summary: CheckSummary,
        writer_retention_s: int,
        closely: DataFiles,
    ) -> None:
        self._store, self._table, self._writer_retention_s = store, table, writer_retention_s
        self._closely = closely
        self._definition: TableDefinition | None = None
        self.summary = summary
        self.book = FindingBook(summary)
        self._objects = ObjectCheck(store, table, self.book, summary)
        self._live = LiveSet(self._objects, self.book)
        self._entries = EntryCheck(self._live, self._objects, self.book, closely)
        self._likely: Root | None = None  # the last decoded root, whose blocks need no second decoding
        self._decided: Decided | None = None  # the last checked header and its pages

    async def versions(self) -> Sequence[Version]:
        """The versions to check, ascending. Gaps among them are findings."""
        listing = await self._store.list(roots_prefix(self._table))
        found: list[Version] = []
        for key in listing.keys:
            version = version_of_root_key(key)
            if version is None or key != root_key(self._table, version):
                self.summary.foreign_objects.append(key)
            else:
                found.append(version)
        if not found:
            raise Invalid(
                "table-unknown",
                f"{self._table}: no table has this name in this warehouse; `rootline table list` shows all",
            )
        found.sort()
        oldest, kept = await self._addressable(found)
        present = set(found)
        for version in sorted(kept - present):
            self.book.add(
                root_key(self._table, version), "version-gap", f"version {version}, which is retained, is missing"
            )
        addressable = [version for version in found if version >= oldest or version in kept]
        self.summary.head_version, self.summary.roots_total = found[-1], len(addressable)
        expected = oldest
        for version in addressable[len(kept & present) :]:
            if version > expected:
                missing = f"version {expected}" if version == expected + 1 else f"versions {expected} to {version - 1}"
                self.book.add(root_key(self._table, expected), "version-gap", f"{missing} of {self._table} missing")
            expected = Version(version + 1)
        return addressable

    async def _addressable(self, found: Sequence[Version]) -> tuple[Version, set[Version]]:
        """The oldest version that has not expired, and the older versions that a tag or a property retains.

        The newest root that can be read states both. If no root can be read, the oldest version is 0.
        """
        for version in reversed(found):
            stored = await self._store.get(root_key(self._table, version))
            try:
                if stored is not None:
                    header = decode_root(stored.body, name=stored.key).header
                    older = Addressable.of(header, await self._objects.kept(header)).older()
                    return header.versions.oldest, set(map(Version, older))
            except Corrupt:
                continue
        return Version(0), set()

    async def has_expired(self, version: Version) -> bool:
        """Whether `version` has expired by now, so that the check may find its objects missing."""
        head = await at_head(self._store, self._table, lambda at: read_root(self._store, self._table, at.version))
        if head is None:
            return False
        return not Addressable.of(head.header, await self._objects.kept(head.header)).has(version)

    async def root(self, version: Version, stored: StoredObject | None, previous: Root | None) -> Root | None:
        """Check one root and return it, or `None` if it cannot be read. `previous`: the last root that was read."""
        key = root_key(self._table, version)
        self.summary.roots += 1
        root = self._decoded(key, version, stored)
        if root is None:
            return None
        old = previous if previous is not None and previous.header.version + 1 == version else None
        before, self._decided = self._decided, Decided(root.header, await self._objects.pages(root.header))
        faults = [*faults_of_header(root.header), *faults_of_decided(root.header)]
        if old is not None:
            faults += faults_of_step(old, root)
        if old is not None and before is not None:
            faults += faults_of_progress(before, self._decided, writer_retention_s=self._writer_retention_s)
        for fault in faults:
            self.book.add(key, fault.code, fault.reason)
        if len({block.digest for block in root.blocks}) != len(root.blocks):
            self.book.add(key, "entry-doubled", "it contains one block of entries twice")
        definition = await self._objects.definition(root.header)
        self._definition = definition or self._definition
        if old is not None and (starts_new_table(old.header, root.header) or purges(old.header, root.header)):
            old = None  # the new table continues no entry of the old one, and shows none as removed
        step = await self._live.follow(old, root, key)
        self.summary.entries += len(step.rows)
        await self._entries.check(old, step, definition)
        self._objects.forget_leaves(set(self._live.leaf_rows))
        return root

    def _decoded(self, key: ObjectKey, version: Version, stored: StoredObject | None) -> Root | None:
        if stored is None:
            self.book.add(key, "object-missing", "the root was listed, but it does not exist")
            return None
        self.summary.bytes_read += len(stored.body)
        try:
            root = decode_root(stored.body, name=key, known=self._likely)
        except Corrupt as error:
            self.book.add_error(key, error)
            return None
        self._likely = root
        self.summary.blocks += len(root.blocks)
        header = root.header
        if (header.table, header.version) != (self._table, version):
            self.book.add(key, "root-corrupt", f"it contains version {header.version} of {header.table}")
            return None
        return root

    async def data_files(self) -> AsyncIterator[None]:
        """Check data files and delete files against their entries, and count objects that no root names.

        Yields `None` after every few files, so that the caller can do other work.
        """
        closely = self._closely
        if closely is DataFiles.IGNORED:
            return
        listing = await self._store.list(table_prefix(self._table))
        present = set(listing.keys)
        expected = {location: file for location, file in self._entries.data_files.items() if location not in self._lost}
        self.summary.data_files_given_up = len(self._lost)
        files = {stored_key(self._table, location): file for location, file in expected.items()}
        places = {
            stored_key(self._table, location): EntryPlace(file.content_type, location)
            for location, file in expected.items()
        }
        elsewhere = {key for key in files if is_absolute(key)}  # not in a LIST of this warehouse
        wanted = files.keys() - elsewhere
        self.summary.data_files = len(wanted if closely is DataFiles.LISTED else files)
        self.book.way_out = lambda key, code: self._way_out(places.get(ObjectKey(key)), code)
        for key in sorted(wanted - present):
            self.book.add(key, "object-missing", "an entry names this file, but it does not exist")
        named = wanted | self._named_objects() | {stored_key(self._table, location) for location in self._lost}
        others = (roots_prefix(self._table), f"{table_prefix(self._table)}export/")
        self.summary.unreferenced_objects = sum(key not in named and not key.startswith(others) for key in present)
        yield
        if closely is DataFiles.LISTED:
            return
        check = DataFileCheck(self._store, self.book, self.summary, closely, self._definition)
        some = sorted(wanted & present) + sorted(elsewhere)
        for start in range(0, len(some), FILES_TOGETHER):
            await check.files([(key, files[key]) for key in some[start : start + FILES_TOGETHER]])
            yield

    @property
    def _lost(self) -> set[str]:
        return self._entries.lost

    def _way_out(self, place: EntryPlace | None, code: str) -> str:
        """The intent that removes a lost file. Empty if the file is not live, or if its rows can be read."""
        if place is None or code == STATISTICS_WRONG or not self._live.places_of(place):
            return ""
        vectors = self._live.vectors_of(place.location)
        known = None if self._definition is None else self._definition.table_uuid
        return removal_of(self._table, place, vectors[0] if vectors else None, known)

    def _named_objects(self) -> set[ObjectKey]:
        return {stored_key(self._table, location) for location in self._objects.named_locations}
