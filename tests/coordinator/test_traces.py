"""What is recorded of an intent's way, where a program records traces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.coordinator.runtime.table.verdict_outbox import TraceBudget
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.record_headers import trace_of
from tests.coordinator.running_service import TABLE, append_intent, running

OF_ONE_INTENT = ["rootline publish", "rootline decide", "rootline put root", "rootline tell verdict"]


def provided(monkeypatch: pytest.MonkeyPatch, provider: TracerProvider) -> InMemorySpanExporter:
    """This provider for the test, and what it exports."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    provider = TracerProvider()
    yield provided(monkeypatch, provider)
    provider.shutdown()


def spans(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """By their beginning."""
    return sorted(
        exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, OF_ONE_INTENT.index(span.name))
    )


async def test_publish_decide_put_and_verdict_are_one_trace(exporter: InMemorySpanExporter) -> None:
    async with running() as service:
        await service.create()
        exporter.clear()
        await service.commit(append_intent("one"))
    found = spans(exporter)
    assert [span.name for span in found] == OF_ONE_INTENT
    publish, *below = found
    assert len({span.context.trace_id for span in found if span.context}) == 1
    assert publish.context is not None
    assert {span.parent.span_id for span in below if span.parent} == {publish.context.span_id}
    decide, put, tell = below
    assert decide.end_time == put.start_time
    assert put.end_time == tell.start_time
    attributes = dict(put.attributes or {})
    assert attributes["rootline.table"] == TABLE
    assert attributes["rootline.version"] == 1
    assert attributes["rootline.intent_id"] == "one"
    assert attributes["rootline.verdict"] == "committed"


async def test_a_publication_is_below_the_programs_own_span(exporter: InMemorySpanExporter) -> None:
    async with running() as service:
        await service.create()
        exporter.clear()
        with trace.get_tracer_provider().get_tracer("app").start_as_current_span("rootline publish") as around:
            await service.commit(append_intent("one"))
    names = [span.name for span in exporter.get_finished_spans() if span.context]
    assert {span.context.trace_id for span in exporter.get_finished_spans() if span.context} == {
        around.get_span_context().trace_id
    }
    assert len(names) == len(OF_ONE_INTENT) + 1


async def test_a_rejected_intents_trace_says_why(exporter: InMemorySpanExporter) -> None:
    async with running() as service:
        await service.create()
        exporter.clear()
        await service.commit(append_intent("bad", location="../x"))
    told = [span for span in exporter.get_finished_spans() if span.name == "rootline tell verdict"]
    assert [(span.attributes or {})["rootline.code"] for span in told] == ["location-invalid"]


async def test_nothing_is_recorded_of_a_trace_that_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = provided(monkeypatch, TracerProvider(sampler=ALWAYS_OFF))
    log = MemoryIntentLog()
    async with running(None, log) as service:
        await service.create()
        [record] = await log.read(0, limit=1, wait_s=0)
    assert exporter.get_finished_spans() == ()
    context = trace_of(record.headers)
    assert context is None or not context.is_sampled


async def test_a_coordinator_records_no_more_intents_than_its_budget(exporter: InMemorySpanExporter) -> None:
    async with running() as service:
        await service.create()
        exporter.clear()
        service.service._traced.per_s_max = 0
        await service.commit(append_intent("one"))
    assert {span.name for span in exporter.get_finished_spans()} == {"rootline publish"}


def test_the_budget_of_a_second_is_fresh_in_the_next_one_and_when_the_clock_goes_back() -> None:
    budget = TraceBudget(2)
    assert [budget.spend(second * 1_000_000_000) for second in (9, 9, 9, 10, 10, 10, 3, 3, 3)] == [
        True,
        True,
        False,
    ] * 3


async def test_the_embedded_log_keeps_the_trace_as_kafka_does(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    try:
        await log.publish(TABLE.encode(), encode_intent(append_intent("one")))
        [record] = await log.read(0, limit=1, wait_s=0)
    finally:
        await log.close()
    [publish] = exporter.get_finished_spans()
    context = trace_of(record.headers)
    assert context is not None
    assert publish.context is not None
    assert int(context.trace_id, 16) == publish.context.trace_id


async def test_without_a_provider_no_record_names_a_trace(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    try:
        await log.publish(TABLE.encode(), encode_intent(append_intent("one")))
        [record] = await log.read(0, limit=1, wait_s=0)
    finally:
        await log.close()
    assert record.headers == ()


def test_a_program_that_traces_nothing_does_not_load_the_library() -> None:
    program = (
        "import sys, asyncio\n"
        "from rootline.adapters.memory import MemoryIntentLog\n"
        "asyncio.run(MemoryIntentLog().publish(b'a.b', b'x'))\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
