"""What versions that can be read need, as their roots land; what is deleted is held against it when it goes.

Owns: which versions can be read by the newest root, what a reader of each reads, until when. Does not own: deletion,
and anything that chooses it: nothing of the plans of workers is asked here.
Invariants: a version counts from the moment that its root is stored; what a root needs is there when it lands, and
stays until its retention has passed since no version that can be read needs it; a version that has a tag can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import key_of, root_key, version_of_root_key
from rootline.schemas.parts.name import NameState
from rootline.storage.metadata.page_reader import read_kept
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.table_loader import load_state
from rootline.storage.stored_objects import stored_key


async def read_by_scans(store: MemoryObjectStore, table: TableName, root: Root) -> frozenset[ObjectKey]:
    """All that a scan of one version reads: no one waits in between, so none of it can have gone."""
    if root.header.name.state is NameState.VIEW:
        return frozenset()
    state = await load_state(store, root)
    named = {row.entry.location for row in root.rows} | {live.entry.location for live in state.live.entries()}
    return frozenset(stored_key(table, location) for location in named if location)


@dataclass(slots=True)
class NeededObjects:
    """Of one table. `scans_ms`, `roots_ms`: for how long what scans read, and roots, stay when no one needs them."""

    store: MemoryObjectStore
    table: TableName
    scans_ms: int
    roots_ms: int
    faults: list[str] = field(default_factory=list)
    _newest: int = -1
    _reads: dict[int, frozenset[ObjectKey]] = field(default_factory=dict)
    """Version that can be read → what its scans read."""
    _readers: Counter[ObjectKey] = field(default_factory=Counter)
    """Object → by how many versions that can be read."""
    _tags: dict[int, Mapping[str, int]] = field(default_factory=dict)
    """Of each version."""
    _since: dict[ObjectKey, int] = field(default_factory=dict)
    """Object → since when no version needs it, milliseconds; of roots too."""

    async def landed(self, key: ObjectKey, now_ms: int) -> None:
        """A root of the table was stored just now."""
        version = version_of_root_key(key)
        if version is None or key != root_key(self.table, version) or version <= self._newest:
            return  # a PUT that comes very late may make a root again that was removed: no one looks below the head
        self._newest = version
        root = await read_root(self.store, self.table, Version(version))
        reads = await read_by_scans(self.store, self.table, root)
        missing = [item for item in reads if await self.store.stored_ms(item) is None]
        if missing:
            self.faults.append(f"{key} needs what is not there: {sorted(missing)[:3]}")
        self._reads[version] = reads
        self._readers.update(reads)
        header = root.header
        page = await read_kept(self.store, header)
        kept = {int(item.version) for item in page.content.versions} if page is not None else set[int]()
        self._tags[version] = header.tags
        lost = {tag: at for tag, at in header.tags.items() if at < header.versions.oldest and at not in kept}
        if lost:
            self.faults.append(f"{key} keeps none of the versions that have these tags: {lost}")
        readable = kept.union(header.tags.values())
        for old in [old for old in self._reads if old < header.versions.oldest and old not in readable]:
            self._give_up(old, now_ms)

    async def asked(self, intent: Intent) -> None:
        """A worker asks that versions expire."""
        oldest, stays = 0 if intent.ref is None else intent.ref.version or 0, set[int]()
        if intent.page is not None and intent.table_uuid is not None:
            location, digest, size = intent.page.location, intent.page.digest, intent.page.file_size_in_bytes
            stored = await self.store.get(key_of(self.table, location))
            assert stored is not None, f"{location} was not stored before its intent was published"
            page = RETAINED_PAGES.decode_stored(stored.body, location, digest, size, intent.table_uuid, name=location)
            stays = {int(item.version) for item in page.content.versions}
        known = self._tags.get(intent.made_from_version or 0, {})
        lost = {tag: at for tag, at in known.items() if at < oldest and at not in stays}
        if lost:
            self.faults.append(f"{intent.intent_id} keeps none of the versions that have these tags: {lost}")

    def going(self, key: ObjectKey, now_ms: int) -> None:
        """An object is deleted now."""
        version = version_of_root_key(key)
        if version is not None and key == root_key(self.table, version):
            if version in self._reads:
                self.faults.append(f"{key} is deleted, and version {version} can be read")
        elif self._readers[key]:
            self.faults.append(f"{key} is deleted, and {self._readers[key]} versions that can be read need it")
        stays_ms = self.scans_ms if version is None else self.roots_ms
        gone_ms = now_ms - self._since.get(key, now_ms - stays_ms)
        if gone_ms < stays_ms:
            self.faults.append(f"{key} is deleted {gone_ms} ms after a reader could plan to read it, of {stays_ms} ms")

    def _give_up(self, version: int, now_ms: int) -> None:
        self._since[root_key(self.table, Version(version))] = now_ms
        for key in self._reads.pop(version):
            self._readers[key] -= 1
            if not self._readers[key]:
                self._since[key] = now_ms
