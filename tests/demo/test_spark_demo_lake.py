"""Which lake the demo runs on, and what the coordinators of that lake measured."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from examples.spark_demo.__main__ import main
from examples.spark_demo.quantiles import quantiles_at
from examples.spark_demo.service import ServedLake


@contextmanager
def coordinator(observed_s: Sequence[float]) -> Iterator[str]:
    """The `/metrics` of a coordinator that has observed this."""
    registry = CollectorRegistry()
    histogram = Histogram("rootline_commit_seconds", "…", registry=registry, buckets=(0.01, 0.1, 1.0))
    for seconds in observed_s:
        histogram.observe(seconds)
    page = generate_latest(registry)

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_quantiles_of_several_coordinators_are_those_of_all_their_observations() -> None:
    with coordinator([0.005] * 2) as one, coordinator([0.5] * 6) as other:
        assert quantiles_at([one], "rootline_commit_seconds").p50_ms == pytest.approx(5)
        both = quantiles_at([one, other], "rootline_commit_seconds")
    assert both.count == 8
    assert both.p50_ms == pytest.approx(100 + 900 / 3)  # the second of six in the bucket from 100 ms to 1 s


def test_a_lake_is_named_in_the_same_way_to_spark_and_to_the_command_line() -> None:
    lake = ServedLake("s3://lake/tables", "kafka://broker:9092", ())
    assert lake.options() == {"warehouse": "s3://lake/tables", "log": "kafka://broker:9092"}
    assert lake.words() == ("--warehouse", "s3://lake/tables", "--log", "kafka://broker:9092")
    assert ServedLake("/data/lake", None, ()).options() == {"warehouse": "/data/lake"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--log", "kafka://broker:9092"], "name it with --warehouse"),
        (["--metrics", "http://coordinator:8080"], "name it with --warehouse"),
        (["--root", "lake", "--warehouse", "s3://lake/tables"], "give one of them"),
    ],
)
def test_half_a_lake_and_two_lakes_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
