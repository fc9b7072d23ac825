"""What a rewrite replaced stays known beside a real coordinator, through expiry, sweeps and a new coordinator."""

from __future__ import annotations

from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from tests.workers.sweep_world import SweepWorld, file_named, tell

COUNT = 40


async def rewritten(world: SweepWorld) -> Intent:
    """Many files that came in one intent without a writer and are one file now; that intent."""
    names = [f"part-{number}" for number in range(COUNT)]
    first = world.append_of(*[await world.upload(name) for name in names])
    await world.committed(first)
    whole = file_named("whole")
    rows = sum(file_named(name).record_count for name in names)
    merged: DataFile = whole.model_copy(update={"record_count": rows})
    head = await world.head()
    await world.committed(
        world.builder.intent(
            IntentKind.REWRITE,
            remove_files=tuple(RemovedFile(location=file_named(name).location) for name in names),
            add_data_files=(merged,),
            read_sequence_number=head.header.snapshot.sequence_number,
        )
    )
    return first


async def sent_again(world: SweepWorld, first: Intent) -> Verdict:
    return await world.decide(world.builder.intent(IntentKind.APPEND, add_data_files=first.add_data_files))


def test_an_append_that_comes_again_after_compaction_and_expiry_doubles_no_rows() -> None:
    async def story(world: SweepWorld) -> None:
        first = await rewritten(world)
        totals = (await world.head()).header.totals
        assert (await sent_again(world, first)).kind is VerdictKind.DUPLICATE
        head = await world.head()
        await world.expire(head.header.version)
        world.forget_roots(head.header.version)
        assert (await sent_again(world, first)).kind is VerdictKind.DUPLICATE
        assert (await world.head()).header.totals == totals
        await world.assert_sound()

    tell(story)


def test_no_sweep_takes_a_page_that_the_root_names_and_it_goes_when_the_horizon_has_passed() -> None:
    async def story(world: SweepWorld) -> None:
        first = await rewritten(world)
        [item] = (await world.head()).header.locations.retired.pages
        await world.append("later")
        await world.expire((await world.head()).header.version)
        world.forget_roots((await world.head()).header.versions.oldest)
        for _ in range(4):
            await world.sweep()
            await world.later(2)
            assert item.page.location in await world.keys() or not (await world.head()).header.locations.retired.pages
            verdict = await sent_again(world, first)
            assert verdict.kind is not VerdictKind.COMMITTED
            await world.assert_sound()
        for _ in range(6):
            await world.later(3)
            await world.sweep()
            assert (await sent_again(world, first)).kind is not VerdictKind.COMMITTED
            await world.assert_sound()
        head = await world.head()
        assert head.header.locations.retired.pages == ()
        await world.expire(head.header.version)
        world.forget_roots(head.header.version)
        for _ in range(4):
            await world.later(2)
            await world.sweep()
        assert item.page.location not in await world.keys()

    tell(story)


def test_a_check_finds_a_page_that_is_gone() -> None:
    async def story(world: SweepWorld) -> None:
        await rewritten(world)
        [item] = (await world.head()).header.locations.retired.pages
        key = key_of(TableName(world.table), item.page.location)
        stored = await world.store.get(key)
        assert stored is not None
        world.store.discard(key)
        found = [one async for one in check_table(world.store, world.table, data_files=DataFiles.IGNORED)]
        assert [(one.code, one.object) for one in found] == [("object-missing", key)]
        await world.store.put_if_absent(key, stored.body)

    tell(story)
