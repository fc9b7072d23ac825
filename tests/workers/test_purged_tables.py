"""What a purge gave up is deleted, although nothing is committed to the table any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rootline.schemas.intent import IntentKind
from rootline.workers.jobs.expiry_job import expiry_job
from rootline.workers.jobs.job import JobOutcome
from tests.workers.sweep_world import DAY_MS, SweepWorld, tell


async def worked_on(world: SweepWorld, days: int) -> None:
    """What a worker does in so many days to a table that no one writes to."""
    expiry = expiry_job(replace(world.context, now=False))
    for _ in range(days):
        await expiry.run(world.table)
        await world.sweep()
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
        await worked_on(world, 12)
        assert {name for name in await world.keys() if name.startswith(("data/", "metadata/leaves/"))} == set()
        header = (await world.head()).header
        assert header.oldest_version >= purged
        assert not header.tags

    tell(story, **{"rootline.expire": is_expiring})


def test_an_expiry_of_a_purged_table_is_not_followed_by_another() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await world.committed(world.builder.intent(IntentKind.PURGE, table_uuid=world.builder.definition.table_uuid))
        job = expiry_job(replace(world.context, now=False))
        assert (await job.run(world.table)).outcome is JobOutcome.COMMITTED
        assert (await job.run(world.table)).outcome is JobOutcome.NOTHING_DUE

    tell(story)
