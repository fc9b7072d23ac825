"""What clocks that are wrong by days do to the ledger: nothing."""

from __future__ import annotations

import pytest

from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import TABLE, append_intent
from tests.support.group_log import GroupLog

EIGHT_DAYS_MS = 8 * 24 * 3600 * 1000


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_receipt_sent_again_after_a_coordinator_eight_days_ahead_is_a_duplicate(is_removed: bool) -> None:
    async def story() -> None:
        async with coordinating("a", log=GroupLog(1), store=HookedStore()) as group:
            await group.create(TABLE)
            receipt = append_intent("mine", writer_id="process/abc", writer_sequence=0)
            assert (await group.commit(receipt))[0].kind is VerdictKind.COMMITTED
            if is_removed:
                gone = (RemovedFile(location="data/mine.parquet"),)
                await group.commit(Intent(intent_id="rm", table=TABLE, kind=IntentKind.REMOVE, remove_files=gone))
            await group.stop("a")
            ahead = group.start("b", skew_ms=EIGHT_DAYS_MS)
            await group.commit(append_intent("other"))
            assert ahead.metrics.registry.get_sample_value("rootline_clocks_apart_total") == 1
            await group.stop("b")
            group.start("c")
            again = (await group.decided(group.publish(receipt)))[0]
            assert again.kind is VerdictKind.DUPLICATE

    run_virtually(story())
