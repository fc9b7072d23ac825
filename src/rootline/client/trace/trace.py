"""Where is my data: what became of an intent, of a writer's sequence, or of a file.

Owns: the order in which tables, log, verdicts and dead letters are asked, and when to stop. Does not own: what a root
says (`traced_table`), which records match (`trace_query`), how a log is read (its archive).
Invariants: reads only; an answer names its source; what is not known is never guessed; a search has a limit, and tells
whether it reached the log's beginning.

Theory. The cheapest source that is sure goes first. A root knows its writers' sequences and its live files. Everything
else is found through its record on the log, from the newest backwards; whether that is decided follows from the offset
up to which the table's head has applied its partition, and how, from the verdict, the outcomes that the head still
keeps, the ledger, or the dead letter, in this order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from rootline.client.trace.dead_letters import place_of
from rootline.client.trace.sighting import (
    IN_THE_TABLE,
    Sighting,
    Whereabouts,
    of_letter,
    of_record,
    rejected,
    settles,
)
from rootline.client.trace.trace_query import (
    ByFile,
    ByIntent,
    ByWriter,
    Match,
    Part,
    TraceQuery,
    intent_in,
    matched,
    names_of,
    part_of,
)
from rootline.client.trace.traced_table import TracedTable
from rootline.ports.intent_log import LogArchive
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Version, snapshot_id_of, table_name
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.root_reader import list_names
from rootline.tree.draft.batch import Record


@dataclass(slots=True)
class Search:
    """How far the log was searched: not at all, `looked` records, or `whole`."""

    since_ms: int = 0
    limit: int = 100_000
    told: Callable[[int], object] = lambda _: None
    looked: int = 0
    whole: bool = False


class Trace:
    """One question to one lake."""

    def __init__(self, store: ObjectStore, archive: LogArchive, query: TraceQuery, search: Search) -> None:
        self._store = store
        self._archive = archive
        self._query = query
        self.search = search
        self._tables: dict[str, TracedTable | None] = {}

    async def sightings(self) -> AsyncGenerator[Sighting, None]:
        """Every answer, as it is found; none when there is no trace.

        Raises:
            Unavailable: store or log cannot be reached.
            Corrupt: an object that answers is missing, or not what was written.

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
        for sighting in known:  # rejections that only the ledger remembers
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
                sighting = await _of_version(table, Whereabouts.LIVE, "live entries", version)
                yield replace(sighting, location=entry.location, sequence_number=info.sequence_number)

    async def _on_log(self) -> AsyncGenerator[Sighting, None]:
        key = None if self._query.table is None else self._query.table.encode()
        search = self.search
        async with aclosing(self._archive.records(key=key, since_ms=search.since_ms)) as portions:
            async for portion in portions:
                for record in portion[: search.limit - search.looked]:
                    match = matched(self._query, record)
                    if match is None:
                        continue
                    sighting = await self._became(match)
                    yield sighting
                    if settles(sighting, self._query) and match.part is not Part.REMOVES:
                        return
                looked = min(len(portion), search.limit - search.looked)
                search.looked += looked
                search.told(looked)
                if search.looked >= search.limit:
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
        """When a file that is not live was removed, where no record of the log shows it."""
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
                sighting = await _of_version(table, Whereabouts.REMOVED, "versions", version)
                yield replace(sighting, location=query.location)

    async def _in_dead_letters(self) -> AsyncGenerator[Sighting, None]:
        """A record that the log keeps no longer may be kept as a dead letter."""
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
    """What the ledger says of a sequence."""
    known = await table.ledger(query.writer_id, query.writer_sequence)
    if known.is_committed:
        sighting = await _of_version(table, Whereabouts.COMMITTED, "ledger", known.version)
        yield replace(sighting, writer_id=query.writer_id, writer_sequence=query.writer_sequence)
        return
    for item in known.rejected:
        told = Sighting(
            Whereabouts.REJECTED,
            "ledger",
            query.table,
            item.intent_id,
            writer_id=query.writer_id,
            writer_sequence=query.writer_sequence,
        )
        yield rejected(told, "ledger", item)


async def _by_ledger(table: TracedTable, told: Sighting, intent: Intent) -> Sighting | None:
    """What the ledger says of a record's intent; `None`: nothing."""
    if intent.writer_id is None or intent.writer_sequence is None:
        return None
    rejection = await table.rejection_of(intent.writer_id, intent.intent_id)
    if rejection is not None:
        return rejected(told, "ledger", rejection, None if told.position is None else place_of(told.position))
    known = await table.ledger(intent.writer_id, intent.writer_sequence)
    if not known.is_committed:
        return None
    commit = await _of_version(table, Whereabouts.COMMITTED, "ledger", known.version)
    return replace(
        told,
        state=commit.state,
        source=commit.source,
        version=commit.version,
        snapshot_id=commit.snapshot_id,
        committed_ms=commit.committed_ms,
    )


async def _of_version(table: TracedTable, state: Whereabouts, source: str, version: Version | None) -> Sighting:
    header = table.header
    if version is None:
        return Sighting(state, source, header.table)
    return Sighting(
        state,
        source,
        header.table,
        version=version,
        snapshot_id=snapshot_id_of(header.table_uuid, version),
        committed_ms=await table.moment_of(version),
    )
