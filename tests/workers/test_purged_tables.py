"""What a purged table held is deleted, however few versions it had and whatever its properties say of expiry."""

from __future__ import annotations

import pytest

from rootline.schemas.intent import IntentKind
from rootline.workers.jobs.expiry_job import expiry_job
from tests.workers.sweep_world import SweepWorld, tell

DROPS = {
    "at once": (IntentKind.PURGE,),
    "after a drop": (IntentKind.DROP, IntentKind.PURGE),
}


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
        expiry = expiry_job(world.context)
        for _ in range(4):
            await world.later(9)
            await expiry.run(world.table)
            await world.sweep()
        assert not await world.has("only")

    tell(story, **{"rootline.sweep": "true", "rootline.expire": expires})
