"""What other tables of a warehouse name in a table's folder stays; and none of them stops the cleaning of the rest."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rootline.catalog.adoption_plan import AdoptionPlan, plan_adoption
from rootline.coordinator.runtime.table.object_fetcher import read_adopted
from rootline.maintenance.limits import SweepLimits
from rootline.maintenance.orphan_sweep_plan import InventoryNotes
from rootline.ports.object_remover import DatedObject
from rootline.ports.object_store import Listing, StoredObject
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.foreign_names import names_of_adopted
from rootline.schemas.content_entry import Status
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of, root_key, roots_prefix, table_prefix
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.root_reader import find_head
from rootline.tree.intents.create_drop import AdoptedTable
from rootline.workers.jobs.job import JobOutcome, JobReport
from rootline.workers.jobs.metadata_jobs import leaf_compaction_job
from rootline.workers.jobs.neighbour_reads import NeighbourReads
from tests.catalog.hand_written_table import HandWritten, rows
from tests.maintenance.table_builder import TableBuilder
from tests.workers.sweep_world import DAY_MS, ORPHAN_AGE_MS, MemoryRemover, SweepWorld, file_named, tell

CLONE = TableName("other.clone")
BASE = "s3://lake/warehouse"


def stem_of(name: str) -> str:
    return file_named(name).location.removeprefix("data/").removesuffix(".parquet")


class Clone:
    """A table that adopted what another engine wrote: a table over files of the world's table."""

    def __init__(self, world: SweepWorld) -> None:
        self.world = world
        self.written: dict[str, bytes] = {}
        self.uuid = uuid.uuid4()
        self.folder = f"{BASE}/{table_prefix(world.table)}".rstrip("/")
        """Of the world's table, as this table's metadata calls it."""

    def at(self, name: str) -> str:
        """The absolute location of the file `name` of the world's table."""
        return f"{self.folder}/{file_named(name).location}"

    def _put(self, location: str, body: bytes) -> None:
        self.written[location] = body
        self.world.store.place(ObjectKey(location), body)

    async def planned(self, *names: str, deleted: Sequence[str] = (), folders: Sequence[str] = ()) -> AdoptionPlan:
        """What another engine wrote, and the root that says it, stored as whoever adopts stores it.

        `deleted`: files that its newest snapshot has removed. `folders`: of other tables, with one file each.
        """
        table = HandWritten(self.folder, 2, self._put)
        files = [table.data(stem, rows(10 * at, "UA")) for at, stem in enumerate((*map(stem_of, names), "another-one"))]
        files += [table.data(stem_of(name), rows(0, "UA"), status=Status.DELETED, number=1) for name in deleted]
        for table.base in folders:
            files.append(table.data("x", rows(0, "UA")))
        table.base = f"{BASE}/elsewhere"
        table.manifest("m", files, 1)
        location = table.finish(1, **{"table-uuid": str(self.uuid)})
        plan = await plan_adoption(self.world.store, CLONE, location)
        await self.world.store.put_if_absent(key_of(CLONE, plan.named.location), plan.body)
        return plan

    async def decide(self, kind: IntentKind, **cargo: Any) -> Verdict:
        intent = Intent(intent_id=uuid.uuid4().hex, table=CLONE, table_uuid=self.uuid, kind=kind, **cargo)
        position = await self.world.log.publish(CLONE.encode(), encode_intent(intent))
        verdict = await self.world.log.wait_verdict(position, timeout_s=600)
        assert verdict is not None
        return verdict

    async def committed(self, kind: IntentKind, **cargo: Any) -> None:
        verdict = await self.decide(kind, **cargo)
        assert verdict.kind is VerdictKind.COMMITTED, verdict

    async def adopt(self, *names: str) -> None:
        await self.commit(await self.planned(*names))

    async def commit(self, plan: AdoptionPlan) -> None:
        await self.committed(IntentKind.CREATE, definition=plan.definition.to_json().decode(), adopt=plan.named)

    async def head(self) -> Version:
        found = await find_head(self.world.store, CLONE)
        assert found is not None
        return found.version

    def as_adopted_by_an_earlier_version(self) -> None:
        """Take away what coordinators store with the first root since they know other tables need it."""
        [key] = [item.key for item in self.world.store.dated(f"{table_prefix(CLONE)}metadata/pages/foreign-")]
        self.world.store.discard(key)

    async def remove(self, name: str) -> None:
        await self.committed(IntentKind.REMOVE, remove_files=(RemovedFile(location=self.at(name)),))

    async def forget(self) -> None:
        """Give up every version but the newest, and remove their roots."""
        head = await self.head()
        await self.committed(IntentKind.EXPIRE, made_from_version=head, ref={"version": head})
        for version in range(head):
            self.world.store.discard(root_key(CLONE, Version(version)))

    async def compact(self) -> None:
        """Put the manifests' entries into leaves; the engine that wrote the manifests deletes them afterwards."""
        report = await leaf_compaction_job(self.world.context).run(CLONE)
        assert report.outcome is JobOutcome.COMMITTED, report
        await self.forget()
        for location in self.written:
            if location.endswith("/m.avro"):
                self.world.store.discard(ObjectKey(location))

    def damage_roots(self) -> dict[ObjectKey, bytes]:
        """Flip a bit of each root; the bytes that they had."""
        return {ObjectKey(key): flip(self.world, key) for key, _ in self._roots()}

    def _roots(self) -> list[tuple[str, int]]:
        return [(item.key, item.length) for item in self.world.store.dated(roots_prefix(CLONE))]


def flip(world: SweepWorld, key: str) -> bytes:
    """Flip a bit of an object; the bytes that it had."""
    body = bytes(world.store._objects[ObjectKey(key)][0])  # the port has no way to damage, nor to read without waiting
    at = len(body) // 2
    world.store.place(ObjectKey(key), body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
    return body


async def let_go(world: SweepWorld, name: str) -> None:
    """Remove a file from the world's table, and every root that names it."""
    await world.remove(name)
    await world.append(f"after {name}")
    head = (await world.head()).header.version
    await world.expire(head)
    world.forget_roots(head)


async def sweep_for(world: SweepWorld, days: float, **changes: Any) -> list[JobReport]:
    """Look once in 1.1 days: by then a retention has passed since the look before."""
    job = world.job(**changes)
    found = []
    while days > 0:
        await world.later(1.1)
        days -= 1.1
        found.append(await job.run(world.table))
    return found


def troubles_of(found: list[JobReport]) -> set[str]:
    return {trouble for report in found for trouble in report.troubles}


async def nothing(clone: Clone) -> None:
    """Leave the clone unchanged."""


async def older_version(clone: Clone) -> None:
    await clone.remove("shared")


async def tombstone(clone: Clone) -> None:
    await clone.committed(IntentKind.DROP)


async def compacted(clone: Clone) -> None:
    await clone.compact()


async def compacted_and_dropped(clone: Clone) -> None:
    await clone.compact()
    await clone.committed(IntentKind.DROP)


@pytest.mark.parametrize(
    ("what", "is_older"),
    [
        (nothing, False),
        (compacted, False),
        (nothing, True),
        (older_version, True),
        (tombstone, True),
        (compacted, True),
        (compacted_and_dropped, True),
    ],
)
def test_a_file_that_an_adopted_table_names_stays_whatever_form_names_it(
    what: Callable[[Clone], Awaitable[None]],
    *,
    is_older: bool,
) -> None:
    async def story(world: SweepWorld) -> None:
        clone = Clone(world)
        await world.append("shared", "own")
        await clone.adopt("shared")
        await what(clone)
        if is_older:
            clone.as_adopted_by_an_earlier_version()
        await let_go(world, "shared")
        await let_go(world, "own")
        found = await sweep_for(world, 16)
        assert await world.has("shared")
        assert not await world.has("own")
        assert troubles_of(found) == set()

    tell(story)


def test_what_the_adopted_table_does_not_name_any_more_goes() -> None:
    async def story(world: SweepWorld) -> None:
        clone = Clone(world)
        await world.append("shared")
        await clone.adopt("shared")
        await let_go(world, "shared")
        await sweep_for(world, 14)
        assert await world.has("shared")
        await clone.remove("shared")
        await clone.compact()
        await sweep_for(world, 4)
        assert not await world.has("shared")

    tell(story)


@pytest.mark.parametrize("folder", ["demo/flights", "demo//flights", "demo/./flights/"])
def test_an_adoption_of_a_file_that_another_table_condemned_is_refused(folder: str) -> None:
    """Else it could land between the last look at other tables and the deletion."""

    async def story(world: SweepWorld) -> None:
        clone = Clone(world)
        clone.folder = f"{BASE}/{folder}"
        await world.append("shared", "own")
        await let_go(world, "shared")
        while not (await world.head()).header.locations.condemned:
            await sweep_for(world, 1)
        plan = await clone.planned("own", "shared")
        definition = plan.definition.to_json().decode()
        verdict = await clone.decide(IntentKind.CREATE, definition=definition, adopt=plan.named)
        assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, "file-removed")
        assert clone.at("shared") in (verdict.message or "")
        assert str(world.table) in (verdict.message or "")
        await clone.commit(await clone.planned("own", deleted=["shared"]))

    tell(story)


def test_an_adoption_that_names_files_in_many_folders_looks_only_for_tables_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("shared")
        await let_go(world, "shared")
        while not (await world.head()).header.locations.condemned:
            await sweep_for(world, 1)
        clone = Clone(world)
        plan = await clone.planned("shared", folders=[f"{BASE}/absent_{number}/t" for number in range(50)])
        listed: list[str] = []
        really = world.store.list

        async def noted(prefix: str, *, limit: int | None = None) -> Listing:
            listed.append(prefix)
            return await really(prefix, limit=limit)

        monkeypatch.setattr(world.store, "list", noted)
        verdict = await clone.decide(IntentKind.CREATE, definition=plan.definition.to_json().decode(), adopt=plan.named)
        assert verdict.code == "file-removed"
        assert [prefix for prefix in listed if prefix.startswith("absent_")] == []

    tell(story)


def test_an_adoption_keeps_its_files_until_its_intent_is_decided_or_has_left_the_log() -> None:
    async def story(world: SweepWorld) -> None:
        clone = Clone(world)
        await world.append("shared")
        await let_go(world, "shared")
        await world.later(9)
        await clone.planned("shared")
        await sweep_for(world, 7)
        assert await world.has("shared")
        await sweep_for(world, 6)
        assert not await world.has("shared"), "no coordinator reads that intent any more"

    tell(story)


def test_the_names_of_an_adoption_that_was_refused_in_the_end_are_not_those_of_the_table() -> None:
    """A coordinator that ends between an adoption's objects and its root leaves the names that it stored."""

    async def story(world: SweepWorld) -> None:
        await world.append("refused", "shared")
        first = await Clone(world).planned("refused")
        adopted = await read_adopted(world.store, CLONE, first.named, first.definition)
        assert isinstance(adopted, AdoptedTable)
        await world.store.put_if_absent(key_of(CLONE, names_of_adopted(first.named.location)), adopted.foreign_names)
        clone = Clone(world)
        while (plan := await clone.planned("shared")).named.location < first.named.location:
            clone.uuid = uuid.uuid4()  # until the names of the other one are listed first
        await clone.commit(plan)
        await let_go(world, "shared")
        await sweep_for(world, 16)
        assert await world.has("shared")

    tell(story)


def test_a_damaged_table_keeps_what_it_adopted_and_nothing_else_and_is_named() -> None:
    async def story(world: SweepWorld) -> None:
        clone = Clone(world)
        await world.append("shared", "own")
        await clone.adopt("shared")
        kept = clone.damage_roots()
        for location in clone.written:
            world.store.discard(ObjectKey(location))
        await let_go(world, "shared")
        await let_go(world, "own")
        found = await sweep_for(world, 16)
        assert await world.has("shared")
        assert not await world.has("own")
        [trouble] = troubles_of(found)
        assert str(CLONE) in trouble
        assert next(iter(kept)) in trouble
        assert "move its folder out" in trouble

    tell(story)


def test_a_table_that_adopted_nobody_knows_what_keeps_data_files_and_the_rest_goes() -> None:
    async def story(world: SweepWorld) -> None:
        clone = Clone(world)
        await world.append("shared", "own")
        await clone.adopt("shared")
        clone.as_adopted_by_an_earlier_version()
        kept = clone.damage_roots()
        manifest = next(location for location in clone.written if location.endswith("/m.avro"))
        world.store.discard(ObjectKey(manifest))
        await world.flush()
        leaf = next(key for key in await world.keys() if key.startswith("metadata/leaves/"))
        await world.append("more")
        assert (await world.compact()).outcome in (JobOutcome.COMMITTED, JobOutcome.NOTHING_DUE)
        await let_go(world, "own")
        await world.flush()
        await world.compact()
        head = (await world.head()).header.version
        await world.expire(head)
        world.forget_roots(head)
        found = await sweep_for(world, 16)
        assert await world.has("own")
        assert leaf not in await world.keys(), "no other engine's table can name a leaf"
        assert any(manifest in trouble for trouble in troubles_of(found))
        for key, body in kept.items():
            world.store.place(key, body)
        world.store.place(ObjectKey(manifest), clone.written[manifest])
        found = await sweep_for(world, 4)
        assert troubles_of(found) == set()
        assert not await world.has("own")

    tell(story)


class LockedNamespace:
    """A store in which the folder of one namespace may not be listed."""

    def __init__(self, world: SweepWorld) -> None:
        self._store = world.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def folders(self, prefix: str) -> Sequence[str]:
        if prefix == "locked/":
            raise Unavailable("store-unavailable", "locked: Permission denied")
        return await self._store.folders(prefix)


def test_a_namespace_whose_tables_cannot_be_listed_keeps_data_files_and_is_named() -> None:
    async def story(world: SweepWorld) -> None:
        world.store.place(ObjectKey("locked/t/data/x"), b"of somebody else")
        page = f"metadata/pages/{'0' * 32}.avro"
        world.store.place(key_of(world.table, page), b"an orphan that no other engine can name")
        await world.upload("orphan")
        await world.append("a")
        found = await sweep_for(world, 14, store=LockedNamespace(world))
        assert await world.has("orphan")
        assert page not in await world.keys()
        [trouble] = troubles_of(found)
        assert "locked: Permission denied" in trouble
        await sweep_for(world, 3)
        assert not await world.has("orphan")

    tell(story)


async def same_uuid(world: SweepWorld) -> None:
    other = TableBuilder(world.store, "other.twin")
    same = replace(other.definition, table_uuid=world.builder.definition.table_uuid)
    await made(world, other, same.to_json().decode())


async def property_with_the_folder(world: SweepWorld) -> None:
    text = f"copied from /{table_prefix(world.table)} in May"
    other = TableBuilder(world.store, "other.noted", comment=text)
    await made(world, other, other.definition.to_json().decode())


async def damaged_root(world: SweepWorld) -> None:
    other = TableBuilder(world.store, "other.broken")
    await made(world, other, other.definition.to_json().decode())
    flip(world, root_key(other.table, Version(0)))


async def copied_folder(world: SweepWorld) -> None:
    prefix = table_prefix(world.table)
    for key in (await world.store.list(prefix)).keys:
        copied = f"{prefix.rstrip('/')}_backup/{key.removeprefix(prefix)}"
        world.store.place(ObjectKey(copied), world.store._objects[key][0])


async def garbage_where_adopted_roots_are(world: SweepWorld) -> None:
    other = TableBuilder(world.store, "other.messy")
    await made(world, other, other.definition.to_json().decode())
    world.store.place(key_of(other.table, f"metadata/adopted/{'0' * 32}.avro"), b"garbage")


async def other_things_where_adopted_roots_are(world: SweepWorld) -> None:
    await damaged_root(world)
    for name in (".DS_Store", "copy of a root.avro", "\udcff.avro"):
        world.store.place(key_of(TableName("other.broken"), f"metadata/adopted/{name}"), b"garbage")


async def made(world: SweepWorld, other: TableBuilder, definition: str) -> None:
    create = other.intent(IntentKind.CREATE, definition=definition)
    position = await world.log.publish(other.table.encode(), encode_intent(create))
    verdict = await world.log.wait_verdict(position, timeout_s=600)
    assert verdict is not None
    assert verdict.kind is VerdictKind.COMMITTED, verdict


@pytest.mark.parametrize(
    "neighbour",
    [
        same_uuid,
        property_with_the_folder,
        damaged_root,
        copied_folder,
        garbage_where_adopted_roots_are,
        other_things_where_adopted_roots_are,
    ],
)
def test_a_table_that_adopted_nothing_holds_up_no_sweep_but_its_own(
    neighbour: Callable[[SweepWorld], Awaitable[None]],
) -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        await neighbour(world)
        found = await sweep_for(world, 14)
        assert not await world.has("orphan")
        assert troubles_of(found) == set()

    tell(story)


class CountedReads:
    """A store that notes which keys are read."""

    def __init__(self, world: SweepWorld) -> None:
        self._store = world.store
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        self.read.append(key)
        return await self._store.get(key)


def test_tables_that_adopted_nothing_are_never_read_and_what_others_adopted_is_read_once() -> None:
    async def story(world: SweepWorld) -> None:
        clone = Clone(world)
        other = TableBuilder(world.store, "other.plain")
        await made(world, other, other.definition.to_json().decode())
        await world.append("a")
        await clone.adopt("a")
        clone.as_adopted_by_an_earlier_version()
        await world.upload("orphan")
        store = CountedReads(world)
        await sweep_for(world, 14, store=store)
        assert not await world.has("orphan")
        manifest = next(location for location in clone.written if location.endswith("/m.avro"))
        assert store.read.count(manifest) == 1
        await world.upload("another")
        again = CountedReads(world)
        await sweep_for(world, 14, store=again)
        assert not await world.has("another")
        assert manifest not in again.read, "another worker finds what was stored"
        assert [key for key in (*store.read, *again.read) if key.startswith("other/plain/")] == []
        assert [key for key in again.read if "/metadata/roots/" in key and key.startswith("other/")] == []

    tell(story)


class CountedLists(MemoryRemover):
    """Notes which folders are listed."""

    def __init__(self, world: SweepWorld) -> None:
        super().__init__(world.store)
        self.listed: list[str] = []

    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        self.listed.append(prefix)
        async for page in super().inventory(prefix):
            yield page


def test_what_was_learned_of_other_tables_is_not_asked_again_whatever_one_table_says_of_its_retention() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await Clone(world).adopt("a")
        plain = TableBuilder(world.store, "other.plain")
        await made(world, plain, plain.definition.to_json().decode())
        remover = CountedLists(world)
        reads = NeighbourReads(world.store)
        asked = []
        for retention_ms in (DAY_MS, 600_000, DAY_MS):
            limits = SweepLimits(300, ORPHAN_AGE_MS, retention_ms)
            inventory, store_ms = InventoryNotes().inventory(), world.environment.now_ms()
            await reads.mark(world.table, inventory, remover, limits, store_ms=store_ms, stores=True)
            asked.append(len(remover.listed))
        assert asked == [2, 4, 4]

    tell(story)
