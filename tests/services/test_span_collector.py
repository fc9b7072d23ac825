"""What the demo's collector takes for a trace."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rootline.demo.quick_demo import typical_intent, waterfall
from tests.services.span_collector import collecting_spans

STEPS = ("rootline publish", "rootline decide", "rootline put root", "rootline tell verdict")


def request_of(names: tuple[str, ...], trace: bytes) -> bytes:
    made = ExportTraceServiceRequest()
    spans = made.resource_spans.add().scope_spans.add().spans
    for number, name in enumerate(names):
        start_ns = 1_000_000 * number
        span = spans.add(
            name=name, trace_id=trace, start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + 500_000
        )
        span.attributes.add(key="rootline.version").value.int_value = 0
        span.attributes.add(key="rootline.table").value.string_value = "a.b"
    return made.SerializeToString()


def post(url: str, body: bytes) -> int:
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/traces", body, method="POST"), timeout=20) as answer:
        return int(answer.status)


def test_spans_that_processes_send_apart_make_one_waterfall() -> None:
    with collecting_spans() as collector:
        url = collector.variables["OTEL_EXPORTER_OTLP_ENDPOINT"]
        assert post(url, request_of(STEPS[:1], b"t" * 16)) == 200
        assert post(url, request_of(STEPS[1:], b"t" * 16)) == 200
        heading, *lines = waterfall(typical_intent(collector.spans))
    assert heading == "version 0 of a.b in 2.5 ms"
    assert len(lines) == 4


@pytest.mark.parametrize("body", [b"\xff" * 100, b"{}junk"])
def test_what_is_no_trace_is_refused_and_ends_nothing(body: bytes) -> None:
    with collecting_spans() as collector:
        url = collector.variables["OTEL_EXPORTER_OTLP_ENDPOINT"]
        with pytest.raises(urllib.error.HTTPError, match="400"):
            post(url, body)
        assert post(url, request_of(STEPS, b"u" * 16)) == 200
        assert len(collector.spans) == 4
