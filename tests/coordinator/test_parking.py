"""A table that cannot go on leaves its partition: the offset passes its records, and they are decided later, once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rootline.coordinator.protocol.machine_state import Phase
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent
from tests.support.group_log import GroupLog

STUCK, FREE = TableName("q.q"), TableName("t.t")
WEEK_S = 7 * 86_400.0


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


class Damage:
    """The newest root of a table, cut off and made whole again."""

    def __init__(self, store: HookedStore, table: TableName = STUCK, version: int = 0) -> None:
        self.store, self.key = store, ObjectKey(root_key(table, Version(version)))
        self.whole = b""

    async def do(self) -> None:
        found = await self.store.inner.get(self.key)
        assert found is not None
        self.whole = found.body
        self.store.inner.place(self.key, self.whole[:-3])  # type: ignore[attr-defined]

    def mend(self) -> None:
        self.store.inner.place(self.key, self.whole)  # type: ignore[attr-defined]


async def quarantined(group: Group, damage: Damage) -> None:
    """Both tables exist, the coordinator `a` runs, and the first one is corrupt."""
    await group.create(STUCK, FREE)
    await group.until_settled()
    await group.stop("a")
    await damage.do()
    group.start("a")


async def until_passed(group: Group, offset: int) -> None:
    """Others commit until the group's offset has passed `offset`."""
    number = 0
    while (group.log.remembered(0) or 0) <= offset:
        number += 1
        assert number < 200
        await group.commit(append_intent(f"go-on-{number}-{offset}", FREE))
        await asyncio.sleep(60.0)


def test_after_retention_a_quarantined_table_stops_no_other_and_its_records_are_decided_once_it_is_lifted() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(3)))
            await group.commit(*(append_intent(f"free-{number}", FREE) for number in range(20)))
            await until_passed(group, stuck[-1].offset)
            later = group.publish(append_intent("later", STUCK))
            await until_passed(group, later[-1].offset)
            log.truncate_before(0, log.remembered(0) or 0)
            await group.stop("a")
            group.start("b")
            await group.commit(append_intent("after", FREE))
            last = group.publish(append_intent("last", STUCK))
            await group.until(lambda: group.services["b"].tables()[STUCK][0] is Phase.QUARANTINED)
            damage.mend()
            log.group.parked.lift(STUCK)
            verdicts = await group.decided([*stuck, *later, *last])
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            assert len(await group.files(STUCK)) == 5
            await group.until(lambda: not log.group.parked.tables and not log.group.parked.lifts)
            await group.commit(append_intent("and on", STUCK))
            await group.until_settled()
            group.check_order(STUCK)
            assert group.assignment("b").behind == set()

    virtually(main())
