"""What a purge gave up is deleted, although nothing is committed to the table any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rootline.schemas.intent import IntentKind
from rootline.workers.jobs.expiry_job import ExpiryJob
from tests.workers.sweep_world import DAY_MS, SweepWorld, tell

DROPS = {
    "at once": (IntentKind.PURGE,),
    "after a drop": (IntentKind.DROP, IntentKind.PURGE),
}


async def worked_on(world: SweepWorld, days: int) -> None:
    """What a worker does in so many days to a table that no one writes to."""
    expiry = ExpiryJob(replace(world.context, now=False))
    for _ in range(days):
        await expiry.run(world.table)
        await world.sweep()
        await world.pause(660)  # roots go ten minutes after they were given up
        world.environment.skew_ms += DAY_MS


@pytest.mark.parametrize("is_expiring", ["true", "false"])
@pytest.mark.parametrize("is_dropped_before", [False, True])
def test_all_files_of_a_purged_table_go_without_another_commit(is_expiring: str, *, is_dropped_before: bool) -> None:
    async def story(world: SweepWorld) -> None:
        for name in "abc":
            await world.append(name)
        await world.flush()
        await world.tag("keep", 2)
        named = {"table_uuid": world.builder.definition.table_uuid}
        if is_dropped_before:
            await world.committed(world.builder.intent(IntentKind.DROP, **named))
        await world.committed(world.builder.intent(IntentKind.PURGE, **named))
        purged = (await world.head()).header.version
        await worked_on(world, 3)
        assert {name for name in await world.keys() if name.startswith(("data/", "metadata/leaves/"))} == set()
        header = (await world.head()).header
        assert header.versions.oldest >= purged
        assert not header.tags

    tell(story, **{"rootline.expire": is_expiring})


def test_an_orphan_goes_although_no_one_writes_to_the_table() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("live")
        await world.upload("orphan")
        await worked_on(world, 20)
        assert not await world.has("orphan")
        assert await world.has("live")
        quiet = (await world.head()).header.version
        await worked_on(world, 5)
        assert (await world.head()).header.version == quiet, "nothing waits, so no root is made"

    tell(story)


@pytest.mark.parametrize("drops", DROPS.values(), ids=DROPS)
@pytest.mark.parametrize("expires", ["true", "false"])
def test_the_files_of_a_small_purged_table_go_also_those_of_a_tagged_version(
    expires: str, drops: tuple[IntentKind, ...]
) -> None:
    async def story(world: SweepWorld) -> None:
        await world.tag("keep", await world.append("only"))
        table_uuid = (await world.head()).header.table_uuid
        for kind in drops:
            await world.committed(world.builder.intent(kind, table_uuid=table_uuid))
        expiry = ExpiryJob(world.context)
        for _ in range(4):
            await world.later(9)
            await expiry.run(world.table)
            await world.sweep()
        assert not await world.has("only")

    tell(story, **{"rootline.sweep": "true", "rootline.expire": expires})
