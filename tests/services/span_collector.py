"""A collector of traces for a demo: takes OTLP over HTTP on this machine and keeps the spans in memory.

Owns: the server's life, bytes to spans. Does not own: who sends them, what is made of them
(`rootline.demo.quick_demo`).
Invariants: listens on loopback only; what it keeps is bounded; what is no trace is refused and ends nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rootline.connect import RecordedSpan

SPANS_MAX: Final = 20_000
_BYTES_MAX: Final = 16_000_000


class SpanCollector:
    """`variables`: what a process needs in its environment to send its spans here."""

    def __init__(self, url: str) -> None:
        self.variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "500"}
        self._spans: list[RecordedSpan] = []
        self._came = threading.Condition()

    @property
    def spans(self) -> list[RecordedSpan]:
        """All that came so far."""
        with self._came:
            return list(self._spans)

    def wait(self, wait_s: float) -> None:
        """Until more spans come, or so long."""
        with self._came:
            self._came.wait(wait_s)

    def take(self, body: bytes) -> None:
        """Keep the spans of a request. Raises `ValueError`: it is none."""
        try:
            request = ExportTraceServiceRequest.FromString(body)
        except Exception as error:
            raise ValueError("no spans") from error
        found = [
            RecordedSpan(
                span.name,
                span.trace_id.hex(),
                span.start_time_unix_nano,
                span.end_time_unix_nano,
                {
                    fact.key: getattr(fact.value, fact.value.WhichOneof("value") or "string_value")
                    for fact in span.attributes
                },
            )
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._came:
            self._spans += found[: SPANS_MAX - len(self._spans)]
            self._came.notify_all()


@contextmanager
def collecting_spans() -> Iterator[SpanCollector]:
    """A collector for a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            try:
                if self.path != "/v1/traces" or length > _BYTES_MAX:
                    raise ValueError(self.path)
                collector.take(self.rfile.read(length))
            except ValueError:
                self.send_error(400)
                return
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *said: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = SpanCollector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, name="span collector", daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
