"""Traces of data: the fate of an intent, of a writer's sequence, or of a file.

Owns: the order of the sources (tables, log, verdicts, dead letters), the end of a search, and the answers from one
table's roots. Does not own: matching records (`trace_query`), ledger, outcomes and live entries (`rootline.tree`),
reading a log (its archive).
Invariants: reads only. One head answers all questions about a table. Versions that the head does not address are not
read. An answer names its source, and an unknown value is never guessed. A search has a limit, and reports whether it
reached the log's beginning.

Theory. The cheapest reliable source is read first. A root records its writers' sequences (the ledger) and its live
files. Everything else is found through the intent's record on the log, from the newest record backwards. A record has
an outcome once the table's head has applied the partition beyond the record's offset. The outcome is then searched in
the verdict, in the outcomes that the head still records, in the ledger and in the dead letters, in this order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from rootline.client.dead_letters import place_of
from rootline.client.trace_query import (
    IN_THE_TABLE,
    ByFile,
    ByIntent,
    ByWriter,
    Match,
    Part,
    Sighting,
    TraceQuery,
    Whereabouts,
    intent_in,
    matched,
    names_of,
    of_letter,
    of_record,
    part_of,
    rejected,
    settles,
)
from rootline.ports.intent_log import LogArchive
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogPosition, TableName, Version, WriterId, snapshot_id_of, table_name
from rootline.schemas.intent import Intent
from rootline.schemas.parts.ledger import RejectedSequence, WriterRecord
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.page_reader import read_pages_of
from rootline.storage.metadata.root_reader import list_names, newest_root, read_root
from rootline.storage.metadata.table_loader import changes_of, load_state, load_to_build_on
from rootline.tree.commit.verdicts import answer, next_offset
from rootline.tree.draft.batch import Record
from rootline.tree.parts.ledger import VERSION_FORGOTTEN, LedgerDraft, committed_version, rejection_of
from rootline.tree.state.table_state import TableState

_FILES: Final = (ContentType.DATA, ContentType.EQUALITY_DELETE)
_LATELY: Final = 64
"""The number of versions read one by one for a file whose history is unknown."""


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """The ledger's record of one sequence. `version` is `None` if the sequence is not committed, or if the ledger no
    longer records its version.
    """

    is_committed: bool
    version: Version | None
    rejected: tuple[RejectedSequence, ...]


class TracedTable:
    """A table, read at its newest version."""

    def __init__(self, store: ObjectStore, root: Root) -> None:
        self._store = store
        self._root = root
        self._ledger: LedgerDraft | None = None
        self._whole: TableState | None = None
        self._leaves: dict[str, Leaf] = {}
        self._moments: dict[Version, int | None] = {root.header.version: root.header.snapshot.timestamp_ms}

    @staticmethod
    async def find(store: ObjectStore, table: TableName) -> TracedTable | None:
        """The table, or `None` if there is none of this name. Raises `Unavailable`, `Corrupt`."""
        root = await newest_root(store, table)
        return None if root is None else TracedTable(store, root)

    @property
    def header(self) -> RootHeader:
        """The head's header."""
        return self._root.header

    def applied_to(self, position: LogPosition) -> int:
        """The first offset in the partition of `position` that the head has not applied."""
        return next_offset(self.header, position.log, position.partition)

    async def ledger(self, writer_id: str, sequence: int) -> LedgerFinding:
        """The ledger's record of a writer's sequence."""
        parts = await self._parts_of(writer_id)
        version = committed_version(parts, sequence)
        rejected = tuple(item for part in parts for item in part.rejected if item.sequence == sequence)
        return LedgerFinding(version is not None, None if version == VERSION_FORGOTTEN else version, rejected)

    async def rejection_of(self, writer_id: str, intent_id: str) -> RejectedSequence | None:
        """The rejection of one intent, if it is recorded."""
        return rejection_of(await self._parts_of(writer_id), intent_id)

    async def outcome_of(self, record: Record) -> Verdict | None:
        """The verdict of `record`, if the head still records it. The head keeps a verdict until it is known to be
        published.
        """
        if self._whole is None:
            self._whole = await load_to_build_on(self._store, self.header.table, self.header.version)
        return answer(self._whole, record)

    async def moment_of(self, version: Version) -> int | None:
        """The commit time of a version, in milliseconds since the epoch, or `None` if it is no longer addressable."""
        if version not in self._moments:
            self._moments[version] = None
            if self.header.versions.oldest <= version < self.header.version:
                await self._at(version)
        return self._moments[version]

    def version_of(self, snapshot_id: int) -> Version | None:
        """The version that has this snapshot id."""
        versions = map(Version, range(self.header.version, -1, -1))
        return next((one for one in versions if snapshot_id_of(self.header.table_uuid, one) == snapshot_id), None)

    async def live(self, names: frozenset[str]) -> ContentEntry | None:
        """The entry of a live data file or equality delete file with one of these locations, or `None`."""
        return await self._live_in(self._root, names)

    async def removed_in(self, names: frozenset[str], lived_in: Version | None) -> Version | None:
        """The version that removed a file, or `None` if it cannot be found.

        `lived_in`: a version in which the file was live, if known. The removal is then found by bisection. If it is
        unknown, the changes of the newest versions are read one by one. After that, bisection is tried from the oldest
        version.
        """
        low, high = self.header.versions.oldest, self.header.version
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
            pages = await read_pages_of(self._store, self.header, LEDGER_PAGES)
            self._ledger = LedgerDraft(self.header.ledger.writers, pages)
        return self._ledger.parts_of(WriterId(writer_id))


@dataclass(slots=True)
class Search:
    """The extent of a search in the log. `records_read` counts the records. `whole`: the search reached the log's
    beginning.
    """

    since_ms: int = 0
    limit: int = 100_000
    on_read: Callable[[int], object] = lambda _: None
    records_read: int = 0
    whole: bool = False


class Trace:
    """Searches one lake, its tables and its log, for the traces of an intent, a writer or a file."""

    def __init__(self, store: ObjectStore, archive: LogArchive, query: TraceQuery, search: Search) -> None:
        self._store = store
        self._archive = archive
        self._query = query
        self.search = search
        self._tables: dict[str, TracedTable | None] = {}

    async def sightings(self) -> AsyncGenerator[Sighting, None]:
        """Yield every answer when it is found, or nothing if there is no trace.

        Raises:
            Unavailable: store or log cannot be reached.
            Corrupt: an object that is needed for an answer is missing or damaged.
        """
        known = [sighting async for sighting in self._in_tables()]
        if any(sighting.state in IN_THE_TABLE for sighting in known):
            for sighting in known:
                yield sighting
            return
        found: list[Sighting] = []
        async with aclosing(self._on_log()) as on_log:
            async for sighting in on_log:
                found.append(sighting)
                yield sighting
        for sighting in known:  # rejections that only the ledger records
            if all(sighting.intent_id != other.intent_id for other in found):
                found.append(sighting)
                yield sighting
        if isinstance(self._query, ByFile):
            async for sighting in self._removals(self._query, found):
                yield sighting
        elif not found:
            async for sighting in self._in_dead_letters():
                yield sighting

    async def _in_tables(self) -> AsyncGenerator[Sighting, None]:
        query = self._query
        if isinstance(query, ByWriter):
            table = await self._table(query.table)
            if table is not None:
                async for sighting in _of_writer(table, query):
                    yield sighting
        elif isinstance(query, ByFile):
            for name in [query.table] if query.table is not None else await list_names(self._store):
                table = await self._table(name)
                entry = None if table is None else await table.live(names_of(query.location, name))
                if table is None or entry is None:
                    continue
                info = entry.version_info
                version = None if info.snapshot_id is None else table.version_of(info.snapshot_id)
                known = Sighting(Whereabouts.LIVE, "live entries", name, location=entry.location)
                yield await _in_version(table, replace(known, sequence_number=info.sequence_number), version)

    async def _on_log(self) -> AsyncGenerator[Sighting, None]:
        key = None if self._query.table is None else self._query.table.encode()
        search = self.search
        async with aclosing(self._archive.records(key=key, since_ms=search.since_ms)) as portions:
            async for portion in portions:
                for record in portion[: search.limit - search.records_read]:
                    match = matched(self._query, record)
                    if match is None:
                        continue
                    sighting = await self._became(match)
                    yield sighting
                    if settles(sighting, self._query) and match.part is not Part.REMOVES:
                        return
                looked = min(len(portion), search.limit - search.records_read)
                search.records_read += looked
                search.on_read(looked)
                if search.records_read >= search.limit:
                    return
        search.whole = search.since_ms <= 0

    async def _became(self, match: Match) -> Sighting:
        record, intent = match.record, match.intent
        known = of_record(match)
        table = None if intent is None else await self._table(intent.table)
        applied = 0 if table is None else table.applied_to(record.position)
        is_its = intent is not None and record.key in (None, intent.table.encode())
        if table is not None and is_its and record.position.offset >= applied:
            return replace(known, state=Whereabouts.PENDING, source="head", applied_to=applied)
        verdict, source = await self._archive.verdict_on(record), "verdict"
        if verdict is None and table is not None and intent is not None:
            verdict = await table.outcome_of(Record(record.position, intent, len(record.value)))
            source = "head"
        if verdict is not None:
            return await self._with_verdict(known, table, verdict, source)
        if table is not None and intent is not None:
            sighting = await _by_ledger(table, known, intent)
            if sighting is not None:
                return sighting
        letter = await self._archive.dead_letter_of(record)
        if letter is not None:
            return rejected(known, "dead letter", letter, place_of(letter))
        if table is None or not is_its:
            return replace(known, state=Whereabouts.PENDING, source="log")
        return replace(known, state=Whereabouts.DECIDED, source="head")

    async def _with_verdict(
        self, known: Sighting, table: TracedTable | None, verdict: Verdict, source: str
    ) -> Sighting:
        if verdict.kind is VerdictKind.REJECTED:
            return rejected(known, source, verdict, place_of(verdict))
        version = None if verdict.version is None else Version(verdict.version)
        return replace(
            known,
            state=Whereabouts(verdict.kind),
            source=source,
            version=version,
            snapshot_id=verdict.snapshot_id,
            sequence_number=verdict.sequence_number,
            committed_ms=None if table is None or version is None else await table.moment_of(version),
        )

    async def _removals(self, query: ByFile, found: list[Sighting]) -> AsyncGenerator[Sighting, None]:
        """Yield the removal of a file that is not live, if no record on the log shows it."""
        if any(one.part == Part.REMOVES and one.state in IN_THE_TABLE for one in found):
            return
        added = {one.table: one.version for one in found if one.part == Part.ADDS and one.state in IN_THE_TABLE}
        for name, table in list(self._tables.items()):
            lived_in = added.get(name)
            if table is None or (query.table is None and found and name not in added):
                continue
            names = names_of(query.location, name)
            version = await table.removed_in(names, None if lived_in is None else Version(lived_in))
            if version is not None:
                known = Sighting(Whereabouts.REMOVED, "versions", name, location=query.location)
                yield await _in_version(table, known, version)

    async def _in_dead_letters(self) -> AsyncGenerator[Sighting, None]:
        """Yield a dead letter of a record that has expired from the log."""
        looked = 0
        async with aclosing(self._archive.dead_letters(since_ms=self.search.since_ms)) as portions:
            async for portion in portions:
                for letter in portion:
                    intent = intent_in(letter)
                    is_named = isinstance(self._query, ByIntent) and letter.intent_id == self._query.intent_id
                    if is_named or (intent is not None and part_of(self._query, intent) is not None):
                        yield of_letter(letter, intent)
                        return
                looked += len(portion)
                if looked >= self.search.limit:
                    return

    async def _table(self, name: str) -> TracedTable | None:
        if name not in self._tables:
            try:
                self._tables[name] = await TracedTable.find(self._store, table_name(name))
            except Invalid:
                self._tables[name] = None
        return self._tables[name]


async def _of_writer(table: TracedTable, query: ByWriter) -> AsyncGenerator[Sighting, None]:
    """Yield the outcomes that the root's ledger records for a sequence of a writer."""
    found = await table.ledger(query.writer_id, query.writer_sequence)
    known = Sighting(
        Whereabouts.COMMITTED,
        "ledger",
        query.table,
        writer_id=query.writer_id,
        writer_sequence=query.writer_sequence,
    )
    if found.is_committed:
        yield await _in_version(table, known, found.version)
        return
    for item in found.rejected:
        yield rejected(replace(known, intent_id=item.intent_id), "ledger", item)


async def _by_ledger(table: TracedTable, sighting: Sighting, intent: Intent) -> Sighting | None:
    """The ledger's answer for a record's intent, or `None` if the ledger has no record of the intent."""
    if intent.writer_id is None or intent.writer_sequence is None:
        return None
    rejection = await table.rejection_of(intent.writer_id, intent.intent_id)
    if rejection is not None:
        return rejected(
            sighting, "ledger", rejection, None if sighting.position is None else place_of(sighting.position)
        )
    known = await table.ledger(intent.writer_id, intent.writer_sequence)
    if not known.is_committed:
        return None
    committed = replace(sighting, state=Whereabouts.COMMITTED, source="ledger")
    return await _in_version(table, committed, known.version)


async def _in_version(table: TracedTable, known: Sighting, version: Version | None) -> Sighting:
    """`known`, with what the version shows."""
    if version is None:
        return known
    return replace(
        known,
        version=version,
        snapshot_id=snapshot_id_of(table.header.table_uuid, version),
        committed_ms=await table.moment_of(version),
    )
