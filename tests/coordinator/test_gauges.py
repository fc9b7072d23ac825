"""Gauges that are set only when something changed still show what is so now."""

from __future__ import annotations

import asyncio

from rootline.coordinator.runtime.observing import TABLES_MAX, CoordinatorMetrics
from rootline.coordinator.runtime.table.table_states import TableState
from rootline.schemas.identifiers import LogId, TableName
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import coordinating
from tests.support.group_log import GroupLog

LOG = LogId("log")


def states(metrics: CoordinatorMetrics, table: str) -> list[str]:
    """The states that the gauge says the table is in."""
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    of_table = [sample for sample in samples if sample.name == "rootline_table_state"]
    return [sample.labels["state"] for sample in of_table if sample.labels["table"] == table and sample.value == 1]


def test_a_table_is_in_one_state_however_often_it_comes_back_to_it() -> None:
    metrics = CoordinatorMetrics()
    for name in ("idle", "idle", "quarantined", "idle", "paused"):
        metrics.states({TableName("a.b"): TableState(name)})
        assert states(metrics, "a.b") == [name]


def test_a_table_that_another_process_has_now_is_not_quarantined_here_for_ever() -> None:
    metrics = CoordinatorMetrics()
    metrics.states({TableName("a.b"): TableState.QUARANTINED, TableName("c.d"): TableState.IDLE})
    metrics.states({TableName("c.d"): TableState.IDLE})
    assert (states(metrics, "a.b"), states(metrics, "c.d")) == ([], ["idle"])


def test_a_version_is_news_once_and_tables_without_gauges_have_none() -> None:
    metrics = CoordinatorMetrics()
    assert [metrics.is_news("a.b", version) for version in (0, 0, 1, 1, 0)] == [True, False, True, False, True]
    told = [metrics.is_news(f"t.t{number}", 0) for number in range(TABLES_MAX)]
    assert told == [*[True] * (TABLES_MAX - 1), False]


def test_the_root_of_a_table_that_another_process_has_now_is_not_shown_here() -> None:
    metrics = CoordinatorMetrics()

    def shown(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"table": "a.b", **labels})

    def owned() -> None:
        assert metrics.is_news("a.b", 7)
        metrics.root("a.b", 100, 1, {"data": 4000})
        metrics.retained("a.b", 500)
        metrics.expired("a.b", 2, 50)
        metrics.states({TableName("a.b"): TableState.IDLE})
        assert shown("rootline_root_entries", content="data") == 4000
        assert shown("rootline_oldest_version") == 2

    owned()
    metrics.states({})
    gauges = ("rootline_root_bytes", "rootline_retained_root_bytes", "rootline_given_up_root_bytes")
    assert [shown(name) for name in (*gauges, "rootline_oldest_version")] == [None] * 4
    assert shown("rootline_root_entries", content="data") is None
    owned()


def test_the_lag_of_partitions_that_went_is_not_shown() -> None:
    metrics = CoordinatorMetrics()
    metrics.lag({(LOG, 0): 3, (LOG, 1): 4})
    metrics.lag({(LOG, 1): 5})
    value = metrics.registry.get_sample_value
    assert value("rootline_consumer_lag_records", {"topic": "log", "partition": "1"}) == 5
    assert value("rootline_consumer_lag_records", {"topic": "log", "partition": "0"}) is None
    metrics.lag({})
    assert value("rootline_consumer_lag_records", {"topic": "log", "partition": "1"}) is None


def test_who_asks_for_metrics_hears_soon_that_a_coordinator_is_not_ready_though_the_log_does_not_answer() -> None:
    async def main() -> None:
        hangs = False

        async def before(operation: str, _: str) -> None:
            await asyncio.sleep(60.0 if hangs and operation == "lag" else 0.0)

        log = GroupLog(2, before=before)
        async with coordinating("a", log=log) as group:
            await group.until(lambda: group.services["a"].readiness().ready)
            service = group.services["a"]
            await service.measure()
            assert service.metrics.registry.get_sample_value("rootline_coordinator_ready") == 1
            hangs = True
            began_s = asyncio.get_running_loop().time()
            await service.measure()
            assert asyncio.get_running_loop().time() - began_s < 5.0
            service.request_stop()
            await service.measure()
            assert service.metrics.registry.get_sample_value("rootline_coordinator_ready") == 0

    run_virtually(main())
