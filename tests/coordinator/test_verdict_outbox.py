from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rootline.coordinator.protocol.messages import Decided, PublishVerdicts
from rootline.coordinator.runtime.table.verdict_outbox import Publication, VerdictOutbox
from rootline.ports.intent_feed import RecordedRejection
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import Headers, LogId, LogPosition, Version
from rootline.schemas.verdict import DeadLetter, JsonVerdict, Verdict, VerdictKind
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.draft.batch import Record
from tests.coordinator.running_service import TABLE, append_intent

LOG = LogId("cluster/topic")


class SlowSink:
    """Takes a while for each call, and refuses what holds any of `refused`."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.letters: list[int] = []
        self.refused: set[int] = set()

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Each of these is recorded by a root."""

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        await asyncio.sleep(1.0)
        offsets = [verdict.offset for verdict in verdicts]
        if self.refused & set(offsets):
            raise Unavailable("log-unavailable", "the broker does not take it")
        self.calls.append(offsets)
        self.letters += [letter.offset for letter in dead_letters]


class Publishing:
    def __init__(self) -> None:
        self.sink = SlowSink()
        self.published: list[Version | None] = []
        self.outbox = VerdictOutbox(
            TABLE,
            self.sink,
            SeededEnvironment(1),
            RetryPolicy(0.02, 0.1, 8),
            10.0,
            lambda effect: self.published.append(effect.version),
        )

    def publish(self, version: int, *offsets: int, kind: VerdictKind = VerdictKind.COMMITTED) -> None:
        self.outbox.publish(PublishVerdicts(tuple(_decided(offset, kind) for offset in offsets), (), Version(version)))

    async def __aenter__(self) -> Publishing:
        self._task = asyncio.ensure_future(self.outbox.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def _decided(offset: int, kind: VerdictKind, headers: Headers = ()) -> Decided:
    verdict = Verdict(
        intent_id=str(offset), table=TABLE, kind=kind, log=LOG, partition=0, offset=offset, code="c", message="m"
    )
    record = Record(
        LogPosition(LOG, 0, offset), append_intent(str(offset)), 10, appended_ms=1_000 + offset, headers=headers
    )
    return Decided(record, verdict)


def test_a_verdict_is_in_the_form_that_its_records_headers_ask_for() -> None:
    asked, plain = ((("rootline-verdict", b"json"),), (("rootline-verdict", b"yaml"), ("traceparent", b"00")))
    decided = tuple(_decided(offset, VerdictKind.COMMITTED, headers) for offset, headers in enumerate((asked, plain)))
    told = Publication.of(PublishVerdicts(decided, (), Version(1)), TABLE).verdicts
    assert [type(verdict) for verdict in told] == [JsonVerdict, Verdict]
    assert [dict(verdict) for verdict in told] == [dict(item.verdict) for item in decided]


def test_verdicts_that_gather_while_others_are_under_way_are_published_at_once_and_in_order() -> None:
    async def main() -> None:
        async with Publishing() as it:
            it.publish(1, 0)
            await asyncio.sleep(0.5)
            for version in range(2, 6):
                it.publish(version, 10 * version, 10 * version + 1)
            await it.outbox.drained()
            assert it.sink.calls == [[0], [20, 21, 30, 31, 40, 41, 50, 51]]
            assert it.published == [1, 2, 3, 4, 5]

    run_virtually(main())


def test_a_verdict_that_the_log_refuses_holds_back_those_behind_it_and_not_those_before_it() -> None:
    async def main() -> None:
        async with Publishing() as it:
            it.sink.refused = {3}
            for version in range(1, 5):
                it.publish(version, version, kind=VerdictKind.REJECTED)
            await asyncio.sleep(20.0)
            assert it.published == [1, 2]
            assert it.sink.calls == [[1], [2]]
            assert "does not take it" in it.outbox.trouble
            assert it.outbox.oldest_ms == 1_003
            it.sink.refused = set()
            await it.outbox.drained()
            assert it.published == [1, 2, 3, 4]
            assert it.sink.letters == [1, 2, 3, 4]
            assert it.outbox.trouble == ""
            assert it.outbox.oldest_ms is None

    run_virtually(main())
