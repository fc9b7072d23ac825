"""What the roots of one table say about an intent, a writer's sequence, or a file.

Owns: which part of a root answers what. Does not own: ledger, outcomes and live entries themselves (`rootline.tree`).
Invariants: one head for all answers; only what is asked for is read, once; versions that the head does not address are
not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.identifiers import LogPosition, TableName, Version, WriterId, snapshot_id_of
from rootline.schemas.root_header import RejectedSequence, RootHeader, WriterRecord
from rootline.schemas.verdict import Verdict
from rootline.storage.metadata.object_reader import read_pages
from rootline.storage.metadata.root_reader import at_head, read_root
from rootline.storage.metadata.table_loader import changes_of, load_state, load_to_build_on
from rootline.tree.commit.answers import answer, next_offset
from rootline.tree.draft.batch import Record
from rootline.tree.ledger.ledger import VERSION_FORGOTTEN, LedgerDraft, committed_version, rejection_of
from rootline.tree.state.table_state import TableState

_FILES: Final = (ContentType.DATA, ContentType.EQUALITY_DELETE)
_LATELY: Final = 64
"""Versions that are read one by one for a file of which nothing is known."""


@dataclass(frozen=True, slots=True)
class LedgerAnswer:
    """What the ledger says of one sequence; `version` is `None` when it forgot in which one it was committed."""

    is_committed: bool
    version: Version | None
    rejected: tuple[RejectedSequence, ...]


class TracedTable:
    """One table at its head."""

    def __init__(self, store: ObjectStore, root: Root) -> None:
        self._store = store
        self._root = root
        self._ledger: LedgerDraft | None = None
        self._whole: TableState | None = None
        self._leaves: dict[str, Leaf] = {}
        self._moments: dict[Version, int | None] = {root.header.version: root.header.snapshot.timestamp_ms}

    @staticmethod
    async def find(store: ObjectStore, table: TableName) -> TracedTable | None:
        """The table; `None` when there is none of this name. Raises `Unavailable`, `Corrupt`."""
        root = await at_head(store, table, lambda head: read_root(store, table, head.version))
        return None if root is None else TracedTable(store, root)

    @property
    def header(self) -> RootHeader:
        """The head's header."""
        return self._root.header

    def applied_to(self, position: LogPosition) -> int:
        """How far the head has applied the partition of `position`: the first offset it has not."""
        return next_offset(self.header, position.log, position.partition)

    async def ledger(self, writer_id: str, sequence: int) -> LedgerAnswer:
        """What is recorded of a writer's sequence."""
        parts = await self._parts_of(writer_id)
        version = committed_version(parts, sequence)
        rejected = tuple(item for part in parts for item in part.rejected if item.sequence == sequence)
        return LedgerAnswer(version is not None, None if version == VERSION_FORGOTTEN else version, rejected)

    async def rejection_of(self, writer_id: str, intent_id: str) -> RejectedSequence | None:
        """The rejection of one intent, if it is recorded."""
        return rejection_of(await self._parts_of(writer_id), intent_id)

    async def outcome_of(self, record: Record) -> Verdict | None:
        """The verdict that the head keeps until it is known to be published."""
        if self._whole is None:
            self._whole = await load_to_build_on(self._store, self.header.table, self.header.version)
        return answer(self._whole, record)

    async def moment_of(self, version: Version) -> int | None:
        """When a version was committed, milliseconds since the epoch; `None` when it is not addressable any more."""
        if version not in self._moments:
            self._moments[version] = None
            if self.header.oldest_version <= version < self.header.version:
                await self._at(version)
        return self._moments[version]

    def version_of(self, snapshot_id: int) -> Version | None:
        """The version that has this snapshot id."""
        versions = map(Version, range(self.header.version, -1, -1))
        return next((one for one in versions if snapshot_id_of(self.header.table_uuid, one) == snapshot_id), None)

    async def live(self, names: frozenset[str]) -> ContentEntry | None:
        """The live data file or equality delete with one of these locations."""
        return await self._live_in(self._root, names)

    async def removed_in(self, names: frozenset[str], lived_in: Version | None) -> Version | None:
        """The version in which a file that is not live any more was removed; `None` when that cannot be found out.

        `lived_in`: a version in which it was live, where one is known; a logarithm of the versions since is read then.
        Else the newest versions are read, and the oldest one may tell.
        """
        low, high = self.header.oldest_version, self.header.version
        if lived_in is not None and low <= lived_in:
            low = lived_in
        else:
            for version in range(high, max(low, high - _LATELY), -1):
                if await self._removes(Version(version), names):
                    return Version(version)
            if not await self._was_live(low, names):
                return None
        while high - low > 1:
            middle = Version((low + high) // 2)
            if await self._was_live(middle, names):
                low = middle
            else:
                high = middle
        return high if low < high else None

    async def _removes(self, version: Version, names: frozenset[str]) -> bool:
        root = await self._at(version)
        async for part in changes_of(self._store, root, self._leaves):
            if any(entry.location in names for entry in part.removed):
                return True
        return False

    async def _at(self, version: Version) -> Root:
        if version == self.header.version:
            return self._root
        root = await read_root(self._store, self.header.table, version)
        self._moments[version] = root.header.snapshot.timestamp_ms
        return root

    async def _was_live(self, version: Version, names: frozenset[str]) -> bool:
        return await self._live_in(await self._at(version), names) is not None

    async def _live_in(self, root: Root, names: frozenset[str]) -> ContentEntry | None:
        state = await load_state(self._store, root, known_leaves=self._leaves)
        self._leaves |= state.leaves
        for name in names:
            for content_type in _FILES:
                found = state.find(EntryPlace(content_type, name))
                if found is not None:
                    return found.entry
        return None

    async def _parts_of(self, writer_id: str) -> tuple[WriterRecord, ...]:
        if self._ledger is None:
            pages = await read_pages(self._store, self.header)
            self._ledger = LedgerDraft(self.header.ledger, pages.ledger)
        return self._ledger.parts_of(WriterId(writer_id))
