"""Simulated writers: every kind of intent, repeated when no verdict comes, built on views that may be stale.

Owns: what writers publish, and what they know of it. Does not own: what becomes of it.
Invariants: a receipt that is published again carries the same bytes; locations are never used twice by two intents
unless the writer means to provoke a rejection.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import dataclass, field
from struct import pack
from typing import Final

from pyroaring import BitMap64

from rootline.schemas.bytes.leaf_codec import LeafContent, encode_leaf
from rootline.schemas.bytes.single_values import from_generic
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import ContentEntry, ContentType, Status, VersionInfo
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import PROCESS_WRITER_PREFIX, LogPosition, TableName
from rootline.schemas.intent import (
    AddedManifest,
    AddedVector,
    DataFile,
    GenericStatistics,
    Intent,
    IntentKind,
    RemovedFile,
)
from rootline.schemas.object_keys import key_of
from rootline.schemas.parts.name import NameState
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import VerdictKind
from rootline.storage.metadata.root_reader import newest_root
from rootline.tree.state.table_state import TableState
from tests.simulation.client_commits import as_client
from tests.simulation.conversions import conversion, deletes_by_value
from tests.simulation.evolving import column_more, partition_statistics, some_changes
from tests.simulation.faulty_world import World
from tests.simulation.history import of_late, of_tags
from tests.simulation.names import for_a_view, for_nothing, new_view, replacing
from tests.simulation.published import Published
from tests.simulation.seen_files import live_data, seen_vector, stored_positions
from tests.support.loaded_tables import load_table

ROWS = 100
_BODY = b"the coordinator never reads a data file"
_CROWDED = 40
"""With more live files in a table than this, writers remove instead of append: its roots do not grow with its age."""
_BY_VALUE = 0.2
"""How many of the appends delete by value as well; as many are conversions, where there is something to convert."""
_LEAVES = 0.2
"""How many of the intents that add files name a leaf of them instead."""
_CHANGES: Final = 0.2
"""How many of the intents change the definition, where writers do so all the time; half of those bring files too."""
_STALLS: Final = 0.15
_AGAIN: Final = 0.1
"""How many of the appends name a file of long ago, where writers stall."""
_TAGS: Final = 0.1
"""How many of the intents are about tags, where writers tag versions of every age."""


@dataclass(slots=True)
class Writer:
    """One writer, counting its own sequence; with a supplied id, or with one of its process, which can be forgotten.

    `partition`: where it publishes, if its client has another idea of that than the log. `drops`: it drops tables,
    makes them again, brings them back, and makes views of their names; so it says in each intent which table it has
    seen. `evolves`: it changes columns, partitions and orders. `stalls`: it adds files that it uploaded long ago.
    `clients`: some of its appends are those of Iceberg clients.
    """

    world: World
    name: str
    table: TableName
    published: Published
    rng: random.Random
    steps: int
    partition: int | None = None
    drops: bool = False
    evolves: bool = False
    stalls: bool = False
    tags: bool = False
    by_value: bool = True
    clients: bool = False
    definition: TableDefinition | None = None
    """That it has seen last, if it goes by that."""
    seen: int | None = None
    """The version that it has loaded last."""
    live: list[str] = field(default_factory=list)
    """The data files of that version."""
    sequence: int = 0
    minted: int = 0

    @property
    def writer_id(self) -> str:
        return f"{PROCESS_WRITER_PREFIX}{self.name}" if self.name[-1] in "13579" else self.name

    async def run(self) -> None:
        """Publish `steps` intents, each until it has a verdict."""
        view: TableState | None = None
        last: Intent | None = None
        for _ in range(self.steps):
            if view is None or self.rng.random() < 0.4:
                view = await load_table(self.world.store, self.table)
                self.live = [] if view is None else live_data(view)
            self.seen = None if view is None else int(view.header.version)
            self.definition = view.definition if view is not None and self.evolves else None
            intent = await self._next_intent(view)
            if view is not None and self.evolves:
                intent = self._evolving(view, intent)
            if view is not None and self.stalls:
                intent = self._of_long_ago(view, intent)
            if view is not None and self.tags:
                intent = self._tagging(view, intent)
            if self.drops:
                intent = await self._of_name(view, intent)
            if view is not None and random.Random(f"leaf of {intent.intent_id}").random() < _LEAVES:
                intent = await self._in_leaf(view, intent)
            elif view is not None and self.by_value:
                intent = await self._by_value(view, intent)
            if view is not None and self.clients:
                intent = as_client(intent, view.header)
            if self.stalls:
                await self._stall(intent)
            await self._until_decided(intent)
            last = intent
            if self.rng.random() < 0.3:
                await asyncio.sleep(self.rng.expovariate(1 / 0.2))

        if last is not None and last.add_data_files:
            await self._use_again(last)

    async def _use_again(self, last: Intent) -> None:
        """Other data under the number of the last intent, whatever became of that."""
        added = last.add_data_files[0].model_copy(update={"location": f"data/{self._fresh('file')}.parquet"})
        other = last.model_copy(update={"intent_id": self._fresh("intent"), "add_data_files": (added,)})
        position = await self._publish(other)
        await self.world.log.wait_verdict(position, timeout_s=3_600.0)

    async def _stall(self, intent: Intent) -> None:
        """Now and then nothing happens for long, after the files are there and before anyone hears of them."""
        rng = random.Random(f"stalls before {intent.intent_id}")
        if rng.random() < _STALLS:
            for added in intent.add_data_files:
                await self._upload(added.location)
            await asyncio.sleep(rng.uniform(0.5, 5.0))

    async def _until_decided(self, intent: Intent) -> None:
        position = await self._publish(intent)
        while True:
            verdict = await self.world.log.wait_verdict(position, timeout_s=self.rng.choice((0.01, 0.1, 1.0, 30.0)))
            if verdict is None:
                again = await self._publish(intent)
                position = again if self.rng.random() < 0.5 else position
                continue
            if verdict.kind is VerdictKind.REJECTED and self.rng.random() < 0.3:
                mended = intent.model_copy(update={"intent_id": self._fresh("intent")})
                position = await self._publish(mended)
                await self.world.log.wait_verdict(position, timeout_s=3_600.0)
            self.sequence += 1
            return

    async def _publish(self, intent: Intent) -> LogPosition:
        for added in intent.add_data_files:
            await self._upload(added.location)
        value, said = self.published.record_of(intent)
        self.published.seen.setdefault(intent.intent_id, self.seen)
        self.world.trace.note(self.name, "publish", intent.kind.value, intent.intent_id)
        log, key = self.world.log, self.table.encode()
        partition = log.partition_of(key) if self.partition is None else self.partition
        named = key if self.rng.random() < 0.8 else None  # a key is good for order, and nobody is forced to have one
        return log.append(named, value, partition=partition, headers=said)

    async def _upload(self, location: str) -> None:
        """Once: a writer that publishes again does not know that its file has gone since."""
        if ".." not in location and location not in self.published.files[self.table]:
            self.published.files[self.table][location] = None
            await self.world.store.put_if_absent(key_of(self.table, location), _BODY)

    async def _next_intent(self, view: TableState | None) -> Intent:
        live, roll = self.live, self.rng.random()
        try:
            if view is None or len(live) < 4 or (roll < 0.55 and len(live) <= _CROWDED):
                return self._intent(IntentKind.APPEND, add_data_files=self._files(self.rng.randint(1, 3)))
            chosen = self.rng.sample(live, k=min(len(live), self.rng.randint(1, 2)))
            removed = tuple(RemovedFile(location=name, vector=seen_vector(view, name)) for name in chosen)
            if roll < 0.68:
                return self._intent(IntentKind.REMOVE, remove_files=removed)
            if roll < 0.78:
                return self._intent(IntentKind.OVERWRITE, add_data_files=self._files(1), remove_files=removed)
            if roll < 0.90:
                return await self._row_delta(view, chosen)
            if roll < 0.94:
                return self._rewrite(view, live)
            if roll < 0.98:
                kind, ref = of_late(view.header, self.rng, goes_back=roll < 0.96)
                return self._intent(kind, ref=ref)
            if roll < 0.985:
                return self._alter(view)
        except RootlineError:
            pass
        wrong = self._files(1)[0].model_copy(update={"location": "../outside.parquet"})
        return self._intent(IntentKind.APPEND, add_data_files=(wrong,))

    async def _of_name(self, view: TableState | None, intent: Intent) -> Intent:
        """The same intent for the table that was seen; or one that changes what the name is."""
        roll = self.rng.random()
        if view is not None:
            kind = IntentKind.PURGE if roll < 0.01 else IntentKind.DROP
            wanted = self._intent(kind) if roll < 0.06 else intent
            if roll > 0.99:
                return new_view(intent, self.rng)  # under the name of a table
            schema_id = view.definition.current_schema_id if roll < 0.95 else None
            named = {"table_uuid": view.header.table_uuid, "schema_id": schema_id}
            wanted = wanted.model_copy(update=named)
            return replacing(wanted, view, self.rng) if 0.06 <= roll < 0.1 else wanted
        root = await newest_root(self.world.store, self.table)
        if root is None or roll < 0.1:
            return intent
        if root.header.name.state is NameState.VIEW:
            return for_a_view(intent, root.header, self.rng, self.published.views)
        if root.header.name.state is NameState.TOMBSTONE:
            return for_nothing(intent, root.header, self.published.first[self.table], self.rng)
        return intent

    def _evolving(self, view: TableState, intent: Intent) -> Intent:
        """Now and then a change of the definition, with what the same append would have brought or without."""
        rng = random.Random(f"changes, {intent.intent_id}")
        if rng.random() > _CHANGES:
            return intent
        text = some_changes(view.definition, view.header, f"column-{intent.intent_id}", rng).to_json()
        if intent.kind is IntentKind.APPEND and rng.random() < 0.5:
            return intent.model_copy(update={"definition": text})
        return self._intent(IntentKind.ALTER, definition=text)

    def _tagging(self, view: TableState, intent: Intent) -> Intent:
        """Now and then a tag on some version, or back to one that has a tag."""
        rng = random.Random(f"tags, {intent.intent_id}")
        if rng.random() > _TAGS:
            return intent
        kind, ref = of_tags(view.header, rng)
        return self._intent(kind, ref=ref)

    def _of_long_ago(self, view: TableState, intent: Intent) -> Intent:
        """Now and then an append of a file that was uploaded long ago, and may have been live and left since."""
        rng = random.Random(f"of long ago, {intent.intent_id}")
        known = list(self.published.files[self.table])
        if intent.kind is not IntentKind.APPEND or not known or rng.random() > _AGAIN:
            return intent
        [file] = self._files(1)
        gone = sorted(set(known) - set(self.live))
        location = rng.choice(gone or known)
        return intent.model_copy(update={"add_data_files": (file.model_copy(update={"location": location}),)})

    async def _by_value(self, view: TableState, intent: Intent) -> Intent:
        """Now and then the same append with an equality delete, or a conversion of such deletes instead."""
        rng = random.Random(f"by value, {intent.intent_id}")
        roll = rng.random()
        if intent.kind is not IntentKind.APPEND or ".." in intent.add_data_files[0].location:
            return intent
        if roll < _BY_VALUE:
            return await deletes_by_value(self.world, self.table, intent, _BODY)
        if roll > 1 - _BY_VALUE:
            vectors = self.published.vectors
            return await conversion(self.world, self.table, view, intent, rng, vectors) or intent
        return intent

    async def _in_leaf(self, view: TableState, intent: Intent) -> Intent:
        """The same intent, its files in a leaf of the writer's own; now and then the leaf is not there."""
        files = intent.add_data_files
        if not files or intent.kind is IntentKind.REWRITE or any(".." in file.location for file in files):
            return intent
        definition = view.definition
        entries = [
            ContentEntry(
                ContentType.DATA,
                file.location,
                file.file_format,
                VersionInfo(Status.ADDED),
                file.partition_spec_id,
                file.record_count,
                file.file_size_in_bytes,
                content_stats=from_generic(file.statistics, definition.tracked_by_id),
            )
            for file in files
        ]
        for file in files:
            await self._upload(file.location)
        leaf_uuid = uuid.uuid5(definition.table_uuid, intent.intent_id)
        leaf = encode_leaf(entries, definition, leaf_uuid=leaf_uuid, content=LeafContent.DATA)
        if leaf_uuid.int % 10:
            await self.world.store.put_if_absent(key_of(self.table, leaf.location), leaf.body)
        self.published.leaves[leaf.location] = tuple(file.location for file in files)
        manifest = AddedManifest(
            location=leaf.location,
            content_type=ContentType.DATA_MANIFEST,
            file_size_in_bytes=len(leaf.body),
            record_count=len(entries),
            partition_spec_id=files[0].partition_spec_id,
        )
        return intent.model_copy(update={"add_data_files": (), "add_manifests": (manifest,)})

    async def _row_delta(self, view: TableState, chosen: list[str]) -> Intent:
        blobs: list[VectorBlob] = []
        for name in chosen:
            seen = seen_vector(view, name)
            before = self.published.vectors.get((seen.location, seen.offset)) if seen is not None else frozenset()
            if before is None:
                before = await stored_positions(self.world, self.table, view, name)
                if seen is not None:
                    self.published.vectors[seen.location, seen.offset] = before
            fresh = frozenset(self.rng.sample(range(ROWS), k=self.rng.randint(1, 3)))
            blobs.append(VectorBlob(name, BitMap64(sorted(before | fresh))))
        puffin = encode_puffin(blobs)
        location = f"data/{puffin_name(self._fresh('vectors'), puffin.body)}"
        await self.world.store.put_if_absent(key_of(self.table, location), puffin.body)
        vectors = []
        for blob, place in zip(blobs, puffin.places, strict=True):
            self.published.vectors[location, place.offset] = frozenset(blob.vector)
            vectors.append(
                AddedVector(
                    location=location,
                    offset=place.offset,
                    size_in_bytes=place.size,
                    file_size_in_bytes=len(puffin.body),
                    cardinality=len(blob.vector),
                    referenced_file=blob.referenced_data_file,
                    replaces_vector=seen_vector(view, blob.referenced_data_file),
                )
            )
        added = self._files(1) if self.rng.random() < 0.3 else ()
        return self._intent(IntentKind.ROW_DELTA, add_vectors=tuple(vectors), add_data_files=added)

    def _rewrite(self, view: TableState, live: list[str]) -> Intent:
        """Two files become one, without the rows that are deleted in them."""
        sources = self.rng.sample(live, k=2)
        entries = [found.entry for found in view.live.entries()]
        rows = sum(entry.record_count for entry in entries if entry.location in sources)
        rows -= sum(entry.record_count for entry in entries if entry.referenced_file in sources)
        [file] = self._files(1)
        counted = file.statistics[0].model_copy(update={"value_count": rows})
        return self._intent(
            IntentKind.REWRITE,
            read_sequence_number=view.header.snapshot.sequence_number,
            add_data_files=(
                file.model_copy(update={"record_count": rows, "statistics": (counted, *file.statistics[1:])}),
            ),
            remove_files=tuple(RemovedFile(location=name, vector=seen_vector(view, name)) for name in sources),
        )

    def _alter(self, view: TableState) -> Intent:
        """A column more, half of the time with files; a change of the definition since makes it a rejection."""
        changes = column_more(view.definition, view.header, self._fresh("column"))
        if self.minted % 2:
            return self._intent(IntentKind.APPEND, add_data_files=self._files(1), definition=changes.to_json())
        return self._intent(IntentKind.ALTER, definition=changes.to_json())

    def _intent(self, kind: IntentKind, **cargo: object) -> Intent:
        if kind in (IntentKind.DROP, IntentKind.PURGE):
            cargo["table_uuid"] = uuid.UUID(int=0)  # which one is put in where it is known
        return Intent(
            intent_id=self._fresh("intent"),
            table=self.table,
            kind=kind,
            writer_id=self.writer_id,
            writer_sequence=self.sequence,
            **cargo,
        )

    def _files(self, count: int) -> tuple[DataFile, ...]:
        """By the default spec of the table as the writer has seen it, or else the first one."""
        seen = self.definition
        return tuple(
            DataFile(
                location=f"data/{self._fresh('file')}.parquet",
                record_count=ROWS,
                file_size_in_bytes=len(_BODY),
                partition_spec_id=0 if seen is None else seen.default_spec_id,
                statistics=(
                    GenericStatistics(
                        field_id=1,
                        lower_bound=pack("<q", 0),
                        upper_bound=pack("<q", 9),
                        value_count=ROWS,
                        null_value_count=0,
                    ),
                    *(
                        (GenericStatistics(field_id=2, lower_bound=pack("<i", self.rng.randint(0, 3))),)
                        if seen is None
                        else partition_statistics(seen, self.rng)
                    ),
                ),
            )
            for _ in range(count)
        )

    def _fresh(self, what: str) -> str:
        self.minted += 1
        return f"{what}-{self.name}-{self.minted}"
