"""Where a service's traces go, as the standard variables of OpenTelemetry say."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

SERVICE = """
import sys
from rootline.adapters.system_environment import active_tracer
from rootline.cli.service_process import telemetry
from rootline.schemas.bytes.record_headers import TraceContext

with telemetry("rootline-test"):
    tracer = active_tracer()
    if tracer is not None:
        tracer.record("rootline put root", TraceContext("1" * 32, "2" * 16, True), 1, 2, {"rootline.table": "a.b"})
    print("records" if tracer is not None else "records nothing")
"""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Where OTLP may be sent, and what came."""
    got: list[tuple[str, bytes]] = []

    class Collecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collecting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def said(**variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", SERVICE], env=kept | variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_spans_are_sent_to_the_endpoint_under_the_services_name_before_it_ends(
    collector: tuple[str, list[tuple[str, bytes]]],
) -> None:
    url, got = collector
    assert said(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_COMPRESSION="none") == "records"
    [(path, body)] = got
    assert path == "/v1/traces"
    for part in (b"rootline put root", b"rootline-test", b"a.b", bytes.fromhex("11" * 16)):
        assert part in body


def test_without_an_endpoint_nothing_is_recorded() -> None:
    assert said() == "records nothing"


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_traces_can_be_switched_off_as_the_standard_says(off: dict[str, str]) -> None:
    assert said(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", **off) == "records nothing"
