"""Tables whose head cannot be listed, for instance a namespace that the bucket's policy denies: the others go on."""

from __future__ import annotations

import asyncio

import pytest

from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import TABLE, append_intent
from tests.support.group_log import GroupLog


@pytest.mark.parametrize("denied_tables", [99, 101, 400])
def test_however_many_tables_cannot_be_listed_the_others_are_committed_to(denied_tables: int) -> None:
    async def main() -> None:
        is_denied = True

        async def deny(_: str, key: str) -> None:
            if is_denied and key.startswith("finance/"):
                raise Unavailable("store-unavailable", "LIST AccessDenied")

        log = GroupLog(4)
        async with coordinating("a", log=log, store=HookedStore(before=deny)) as group:
            await group.create(TABLE)
            for number in range(denied_tables):
                group.publish(append_intent(f"denied-{number}", TableName(f"finance.t{number}")))
            await asyncio.sleep(5.0)
            [healthy] = group.publish(append_intent("healthy"))
            verdict = await log.wait_verdict(healthy, timeout_s=60.0)
            is_denied = False
            assert verdict is not None, "the reading of every partition has stopped"
            assert verdict.kind is VerdictKind.COMMITTED
            await group.until_settled()

    run_virtually(main())


def test_names_that_could_not_be_listed_and_are_of_no_table_leave_nothing_in_memory() -> None:
    async def main() -> None:
        is_denied = True

        async def deny(_: str, key: str) -> None:
            if is_denied and key.startswith("finance/"):
                raise Unavailable("store-unavailable", "LIST AccessDenied")

        async with coordinating("a", log=GroupLog(4), store=HookedStore(before=deny)) as group:
            await group.create(TABLE)
            for round_number in range(4):
                is_denied = True
                names = [TableName(f"finance.t{round_number}-{number}") for number in range(90)]
                positions = group.publish(*(append_intent("denied", name) for name in names))
                await asyncio.sleep(5.0)
                is_denied = False
                assert {verdict.code for verdict in await group.decided(positions)} == {"table-unknown"}
            assert len(group.services["a"]._delays) < 250, "of 360"
            await group.until_settled()

    run_virtually(main())
