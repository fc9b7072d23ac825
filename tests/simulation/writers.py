"""Simulated writers: every kind of intent, repeated when no verdict comes, built on views that may be stale.

Owns: what writers publish, and what they know of it. Does not own: what becomes of it.
Invariants: a receipt that is published again carries the same bytes; locations are never used twice by two intents
unless the writer means to provoke a rejection.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import dataclass, field, replace
from struct import pack

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap64

from rootline.schemas.bytes.leaf.leaf_codec import LeafContent, encode_leaf
from rootline.schemas.bytes.log.generic_statistics import from_generic
from rootline.schemas.bytes.log.intent_codec import encode_intent
from rootline.schemas.bytes.log.stated_content import content_headers, content_of_intent, stated
from rootline.schemas.bytes.vector.puffin_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import ContentEntry, ContentType, Status, VersionInfo
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import (
    PROCESS_WRITER_PREFIX,
    AddedManifest,
    AddedVector,
    DataFile,
    GenericStatistics,
    Intent,
    IntentKind,
    RemovedFile,
    VectorReference,
    VersionReference,
)
from rootline.schemas.log_position import LogPosition
from rootline.schemas.object_keys import key_of
from rootline.schemas.verdict import VerdictKind
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.table_head import newest_root
from rootline.storage.metadata.table_loader import load_table
from rootline.storage.metadata.vector_reader import read_vector
from rootline.tree.evolution.changes import DefinitionChanges, schema_changes
from rootline.tree.state.table_state import TableState
from tests.simulation.conversions import conversion, deletes_by_value
from tests.simulation.faulty_world import World

ROWS = 100
_BODY = b"the coordinator never reads a data file"
_CROWDED = 40
"""With more live files in a table than this, writers remove instead of append: its roots do not grow with its age."""
_BY_VALUE = 0.2
"""How many of the appends delete by value as well; as many are conversions, where there is something to convert."""
_LEAVES = 0.2
"""How many of the intents that add files name a leaf of them instead."""


@dataclass(slots=True)
class Published:
    """What all writers published: intents by id, vectors by place, the files of leaves by the leaves' locations."""

    intents: dict[str, Intent] = field(default_factory=dict)
    vectors: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    leaves: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Writer:
    """One writer, counting its own sequence; with a supplied id, or with one of its process, which can be forgotten.

    `partition`: where it publishes, if its client has another idea of that than the log. `drops`: it drops tables,
    makes them again, and brings them back; so it says in each intent which table it has seen.
    """

    world: World
    name: str
    table: TableName
    published: Published
    rng: random.Random
    steps: int
    partition: int | None = None
    drops: bool = False
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
            intent = await self._next_intent(view)
            if self.drops:
                intent = await self._of_name(view, intent)
            if view is not None and random.Random(f"leaf of {intent.intent_id}").random() < _LEAVES:
                intent = await self._in_leaf(view, intent)
            elif view is not None:
                intent = await self._by_value(view, intent)
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
            if ".." not in added.location:
                await self.world.store.put_if_absent(key_of(self.table, added.location), _BODY)
        self.published.intents[intent.intent_id] = intent
        self.world.trace.note(self.name, "publish", intent.kind.value, intent.intent_id)
        log, key = self.world.log, self.table.encode()
        partition = log.partition_of(key) if self.partition is None else self.partition
        named = key if self.rng.random() < 0.8 else None  # a key is good for order, and nobody is forced to have one
        said = content_headers(stated(content_of_intent(intent)))
        return log.append(named, encode_intent(intent), partition=partition, headers=said)

    async def _next_intent(self, view: TableState | None) -> Intent:
        live = [] if view is None else live_data(view)
        roll = self.rng.random()
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
                return self._history(view, roll)
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
            return wanted.model_copy(update={"table_uuid": view.header.table_uuid})
        root = await newest_root(self.world.store, self.table)
        if root is None or roll < 0.1:
            return intent
        header = root.header
        if roll < 0.5 and header.drops:
            ref = VersionReference(version=header.drops[-1].version)
            return self._intent(IntentKind.RESTORE, ref=ref).model_copy(update={"table_uuid": header.table_uuid})
        definition = await read_definition(self.world.store, header)
        again = replace(definition, table_uuid=uuid.UUID(int=self.rng.getrandbits(128)))
        return self._intent(IntentKind.CREATE, definition=again.to_json().decode())

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
            await self.world.store.put_if_absent(key_of(self.table, file.location), _BODY)
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
            partition_spec_id=0,
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

    def _history(self, view: TableState, roll: float) -> Intent:
        """Back to a version of late, or a tag on one; some of them are not there any more, or yet."""
        head = view.header
        version = max(0, head.version - self.rng.randint(-1, 6))
        if roll < 0.96:
            return self._intent(IntentKind.RESTORE, ref=VersionReference(version=version))
        tag = f"tag-{self.rng.randint(0, 2)}"
        seen = head.tags.get(tag)
        wanted = None if seen is not None and self.rng.random() < 0.3 else version
        return self._intent(IntentKind.TAG, ref=VersionReference(version=wanted, tag=tag, seen_version=seen))

    def _alter(self, view: TableState) -> Intent:
        """A column more, half of the time with files; a change of the definition since makes it a rejection."""
        more = NestedField(view.definition.last_column_id + 1, self._fresh("column"), LongType(), required=False)
        schema = Schema(*view.definition.schema.fields, more, schema_id=0)
        changes = DefinitionChanges(view.header.definition.digest, tuple(schema_changes(schema)))
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
        return tuple(
            DataFile(
                location=f"data/{self._fresh('file')}.parquet",
                record_count=ROWS,
                file_size_in_bytes=len(_BODY),
                partition_spec_id=0,
                statistics=(
                    GenericStatistics(
                        field_id=1,
                        lower_bound=pack("<q", 0),
                        upper_bound=pack("<q", 9),
                        value_count=ROWS,
                        null_value_count=0,
                    ),
                    GenericStatistics(field_id=2, lower_bound=pack("<i", self.rng.randint(0, 3))),
                ),
            )
            for _ in range(count)
        )

    def _fresh(self, what: str) -> str:
        self.minted += 1
        return f"{what}-{self.name}-{self.minted}"


def live_data(view: TableState) -> list[str]:
    """Locations of the live data files, in order."""
    return sorted(live.entry.location for live in view.live.entries() if live.entry.content_type is ContentType.DATA)


def seen_vector(view: TableState, name: str) -> VectorReference | None:
    """The vector that a reader of `view` sees on a data file."""
    entry = view.vector_of(name)
    if entry is None or entry.deletion_vector is None or entry.deletion_vector.offset is None:
        return None
    return VectorReference(location=entry.location, offset=entry.deletion_vector.offset)


async def stored_positions(world: World, table: TableName, view: TableState, name: str) -> frozenset[int]:
    """The deleted positions of a data file as its stored vector has them."""
    entry = view.vector_of(name)
    return frozenset() if entry is None else frozenset(await read_vector(world.store, table, entry))


def nowhere(rng: random.Random) -> tuple[bytes, bytes]:
    """Key and value of an intent for a table that does not exist."""
    added = DataFile(location="data/stray.parquet", record_count=1, file_size_in_bytes=1)
    name, table = f"stray-{rng.getrandbits(64):016x}", "nowhere.t"
    intent = Intent(intent_id=name, table=table, kind=IntentKind.APPEND, add_data_files=(added,))
    return table.encode(), encode_intent(intent)
