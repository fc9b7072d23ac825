"""Every verdict is counted and logged once, whatever path it took."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from structlog.testing import capture_logs

from rootline.adapters.memory import MemoryIntentLog
from rootline.coordinator.app import CoordinatorService
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogRecord, TableName
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import TABLE, append_intent, create_intent, running
from tests.coordinator.test_parking import Damage
from tests.support.group_log import GroupLog

STUCK, LATE = TableName("q.q"), TableName("t.t")
TOLD, AGAIN = "rootline_verdicts_total", "rootline_verdicts_told_again_total"


class TracedLog(MemoryIntentLog):
    """A log whose records name a trace, as those on Kafka do."""

    def __init__(self, traceparent: bytes, *, traced_from: int = 0) -> None:
        super().__init__()
        self._traceparent = traceparent
        self._traced_from = traced_from

    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """With their header."""
        headers = (("traceparent", self._traceparent),)
        found = await super().read(from_offset, limit=limit, wait_s=wait_s)
        return [
            record._replace(headers=headers) if record.position.offset >= self._traced_from else record
            for record in found
        ]


def counted(service: CoordinatorService, name: str) -> dict[tuple[str, str], int]:
    """(verdict, code) → count."""
    return {
        (sample.labels["verdict"], sample.labels["code"]): int(sample.value)
        for metric in service.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == name
    }


def verdict_lines(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line.get("action") == "verdict"]


async def test_each_path_of_a_verdict_is_counted_once_and_has_one_line_that_names_it() -> None:
    with capture_logs() as lines:
        async with running() as service:
            await service.create()
            one = append_intent("one", writer_id="w", writer_sequence=1)
            await service.commit(one)
            await service.commit(one)
            await service.commit(append_intent("bad", location="../x"))
            await service.commit(append_intent("nowhere", table="no.such"))
            await service.decide(b"junk")
            await service.decide(bytes(2_000_000))
            found = counted(service.service, TOLD)
            assert counted(service.service, AGAIN) == {}
    assert found == {
        ("committed", ""): 2,
        ("duplicate", ""): 1,
        ("rejected", "location-invalid"): 1,
        ("rejected", "table-unknown"): 1,
        ("rejected", "undecodable"): 1,
        ("rejected", "intent-too-large"): 1,
    }
    told = verdict_lines(lines)
    assert Counter((line["verdict"], line["code"] or "") for line in told) == found
    warned = {line["code"] for line in told if line["log_level"] == "warning"}
    assert warned == {"undecodable", "intent-too-large"}, "a rejected intent is its writer's affair"
    assert {line["log_level"] for line in told if line["code"] not in warned} == {"info"}
    by_id = {line["intent_id"]: line for line in told}
    assert by_id["nowhere"]["table"] == "no.such"
    assert "no table" in by_id["nowhere"]["reason"]
    assert by_id["create-a.b"]["version"] == 0
    [junk] = [line for line in told if line["code"] == "undecodable"]
    assert (junk["table"], junk["intent_id"].endswith(f"/0/{junk['offset']}")) == (TABLE, True)


def test_a_rejection_is_counted_and_logged_when_the_log_has_taken_it_and_not_before() -> None:
    async def main() -> None:
        is_refusing = True

        async def refuse(operation: str, reader: str) -> None:
            if operation == "verdicts" and is_refusing:
                raise Unavailable("log-unavailable", "not now")

        log = GroupLog(1, before=refuse)
        with capture_logs() as lines:
            async with coordinating("a", log=log) as group:
                position = log.append(None, b"junk", partition=0)
                await asyncio.sleep(60)
                assert counted(group.services["a"], TOLD) == {}
                assert verdict_lines(lines) == []
                is_refusing = False
                await group.decided([position])
                await group.until_settled()
                assert counted(group.services["a"], TOLD) == {("rejected", "undecodable"): 1}
        assert len(verdict_lines(lines)) == 1

    run_virtually(main())


def test_what_an_earlier_coordinator_decided_is_counted_as_told_again_and_the_line_says_so() -> None:
    async def main() -> None:
        log, store = GroupLog(2), HookedStore()
        async with coordinating("a", log=log, store=store) as group:
            await group.create(STUCK)
            await group.until_settled()
            await group.stop("a")
            damage = Damage(store, STUCK)
            await damage.do()
            group.start("a")  # the quarantined table holds the partition's offset back
            group.publish(append_intent("stuck", STUCK), partition=1)
            await group.decided(group.publish(append_intent("x", LATE), partition=1))
            await group.decided(group.publish(create_intent(TABLE), append_intent("y"), partition=1))
            before = counted(group.services["a"], TOLD)
            assert before == {("rejected", "table-unknown"): 1, ("committed", ""): 2}
            await group.crash("a")
            with capture_logs() as lines:
                group.start("c")
                await asyncio.sleep(60)
                assert counted(group.services["c"], TOLD) == {}
                assert counted(group.services["c"], AGAIN) == before
            assert {line["told_again"] for line in verdict_lines(lines)} == {True}
            assert {line["log_level"] for line in verdict_lines(lines)} == {"info"}, "they are intents, and were then"
            damage.mend()
            await group.stop("c")
            group.start("d")
            await group.until_settled()

    run_virtually(main())


async def test_a_flood_is_told_in_a_few_lines_and_one_that_counts_the_rest() -> None:
    with capture_logs() as lines:
        async with running(verdicts_logged_per_s=3) as service:
            await service.create()
            good = [encode_intent(append_intent(f"good{number}")) for number in range(100)]
            await service.decide(*good, *[b"junk"] * 50)
            assert counted(service.service, TOLD) == {("committed", ""): 101, ("rejected", "undecodable"): 50}
    one_by_one = Counter(line["verdict"] for line in verdict_lines(lines))
    summaries = [line for line in lines if line.get("action") == "verdicts"]
    rest = sum((Counter(line["counts"]) for line in summaries), Counter[str]())
    assert one_by_one["rejected"] >= 3, "a flood of commits leaves the rejections their lines"
    assert one_by_one["committed"] + rest["committed"] == 101
    assert one_by_one["rejected"] + rest["rejected undecodable"] == 50
    assert one_by_one.total() <= 2 * 3 * (1 + len(summaries))


def commit_lines(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line.get("action") == "commit"]


async def test_each_commit_has_a_line_with_its_table_version_and_intents() -> None:
    with capture_logs() as lines:
        async with running() as service:
            await service.create()
            await service.commit(append_intent("one"))
    told = [(line["table"], line["version"], line["intents"], line["log_level"]) for line in commit_lines(lines)]
    assert told == [(TABLE, 0, 1, "info"), (TABLE, 1, 1, "info")]
    assert all(line["seconds"] >= 0 for line in commit_lines(lines))


async def test_commits_beyond_the_rate_are_counted_in_one_line_and_leave_verdicts_their_lines() -> None:
    with capture_logs() as lines:
        async with running(commits_logged_per_s=0) as service:
            await service.create()
            await service.commit(append_intent("one"))
    assert commit_lines(lines) == []
    assert sum(line["count"] for line in lines if line.get("action") == "commits") == 2
    assert len(verdict_lines(lines)) == 2


async def test_the_lines_of_a_traced_intent_name_its_trace_and_those_of_others_name_none() -> None:
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    log = TracedLog(f"00-{trace}-{span}-01".encode(), traced_from=1)
    with capture_logs() as lines:
        async with running(None, log) as service:
            await service.create()
            await service.commit(append_intent("one"))
    assert [line.get("trace_ids") for line in commit_lines(lines)] == [None, (trace,)]
    named = [(line.get("trace_id"), line.get("span_id")) for line in verdict_lines(lines)]
    assert named == [(None, None), (trace, span)]


async def test_a_trace_that_is_no_trace_is_ignored() -> None:
    with capture_logs() as lines:
        async with running(None, TracedLog(b"00-\xff" * 40)) as service:
            await service.create()
    assert ["trace_ids" in line for line in commit_lines(lines)] == [False]
    assert ["trace_id" in line for line in verdict_lines(lines)] == [False]


def test_the_line_that_counts_the_rest_comes_although_nothing_follows() -> None:
    async def main() -> None:
        with capture_logs() as lines:
            async with coordinating("a", verdicts_logged_per_s=0) as group:
                await group.create(TABLE)
                await asyncio.sleep(2)
                assert [line["counts"] for line in lines if line.get("action") == "verdicts"] == [{"committed": 1}]
        assert verdict_lines(lines) == []

    run_virtually(main())
