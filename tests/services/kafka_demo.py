"""`python -m tests.services.kafka_demo`: the demo of `examples.spark_demo`, on real Kafka and S3.

Owns: starting a broker, a bucket, the topics, coordinators and a worker, each a process of its own, and a Prometheus
if dashboards are wanted; stopping them in the order in which they need each other; the waterfall of one intent. Does
not own: the services (its neighbours), the demo's steps.
Invariants: what was started is stopped after the last step, a failure, Ctrl-C, SIGTERM or SIGHUP, and less cleanly
after a kill; the exit code is the demo's; every run has a folder, a bucket prefix and topics of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest

from examples.spark_demo.service import command_line, stop_process
from examples.spark_demo.terminal import interrupt_on, say, stage
from rootline.demo.quick_demo import typical_intent, waterfall
from rootline.schemas.errors import RootlineError
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess
from tests.services.kafka_service import KafkaService, running_kafka
from tests.services.process_bond import bound
from tests.services.s3_service import S3Service, running_s3
from tests.services.span_collector import SpanCollector, collecting_spans
from tests.services.watching.prometheus_server import running_prometheus
from tests.services.watching.scrape_targets import scraping

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
_PARTITIONS = 4
_QUICK = {"ROOTLINE_WORKER__DISCOVERY_INTERVAL_S": "1", "ROOTLINE_WORKER__POLL_INTERVAL_S_MAX": "2"}
"""The worker looks for work more often than by default: a demo is over soon."""
_STOP_PATIENCE_S = 60.0
_SPANS_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Wanted:
    """The arguments."""

    root: Path
    months: int
    coordinators: int
    stays: bool
    dashboards: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code."""
    wanted = _wanted(arguments)
    interrupt_on(SIGNALS)
    try:
        return run(wanted)
    except KeyboardInterrupt:
        say("stopped")
        return INTERRUPTED
    except (pytest.fail.Exception, AssertionError, RootlineError, RuntimeError, TimeoutError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def run(wanted: Wanted) -> int:
    """Start everything, run the demo, stop everything; the demo's exit code."""
    folder = _fresh_folder(wanted.root)
    name = f"demo-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as around:
        with stage("Kafka up"):
            kafka = around.enter_context(running_kafka(_made(folder / "kafka")))
            say(f"  Kafka on {kafka.servers}{_process(kafka.broker.pid if kafka.broker else None)}")
        with stage("S3 up"):
            s3 = around.enter_context(running_s3(_made(folder / "s3")))
            say(f"  S3 on {s3.endpoint}{_process(s3.pid)}")
        lake = _lake(name, kafka, s3)
        collector = around.enter_context(collecting_spans())
        os.environ.update(lake.environment() | collector.variables)  # for every process that is started from here on
        with stage("topics made"):
            words = ("--partitions", str(_PARTITIONS), "--replication-factor", "1")
            made = command_line("topics", "create", *words)
            if made.returncode != 0:
                raise RuntimeError(f"rootline topics create: {made.stderr.strip()}")
            say("".join(f"  {line}\n" for line in made.stdout.splitlines()).rstrip())
        with stage("coordinators up"):
            coordinators = []
            for number in range(1, wanted.coordinators + 1):
                coordinators.append(
                    _started(around, folder, f"coordinator-{number}", "coordinator", "--http-port", "0")
                )
            around.callback(_request_stop, coordinators)
            for process in coordinators:
                process.wait_ready()
        with stage("worker up"):
            worker = _started(around, folder, "worker", "worker", "--http-port", "0")
        urls = [process.wait_listening() for process in coordinators]
        if wanted.dashboards:
            with stage("dashboards up"):
                _watch(around, folder, urls, worker.wait_listening())
        code = _told(wanted, folder, urls)
        for process in coordinators:
            _keep_pages(process, folder)
        _show_trace(collector)
        _show(wanted, lake, folder)
        return code


def _lake(name: str, kafka: KafkaService, s3: S3Service) -> KafkaLake:
    topics = {f"{what}_topic": f"{name}.{what.replace('_', '-')}" for what in ("intents", "verdicts", "dead_letters")}
    return KafkaLake(s3, kafka.settings(group_id=name, **topics), name)


def _started(around: contextlib.ExitStack, folder: Path, name: str, *words: str) -> RootlineProcess:
    process = RootlineProcess(name, words, _QUICK, folder)
    around.callback(process.end)
    process.start()
    url = process.wait_listening()
    where = f" at {url}" if url.startswith("http") else ""
    say(f"  {name}{where}{_process(process.running.pid)}")
    return process


def _request_stop(processes: Sequence[RootlineProcess]) -> None:
    """Ask all of them at once, so that none takes over what the others leave."""
    for process in processes:
        if process.is_alive:
            process.request_stop()


def _watch(around: contextlib.ExitStack, folder: Path, coordinators: Sequence[str], worker: str) -> None:
    """A Prometheus with the deployed rules, and where to look, before there is something to see."""
    watching = _made(folder / "prometheus")
    targets = {"rootline-coordinator": list(coordinators), "rootline-worker": [worker], "rootline-catalog": []}
    prometheus = around.enter_context(running_prometheus(scraping(targets, watching), watching))
    for number, url in enumerate(coordinators, start=1):
        say(f"  console      {url}/ (coordinator-{number})")
    say(f"  Prometheus   {prometheus.url}/graph, alerts at {prometheus.url}/alerts")


def _show_trace(collector: SpanCollector) -> None:
    """The way of one intent through the processes; they send their spans a moment later."""
    deadline_s = time.monotonic() + _SPANS_PATIENCE_S
    while not (spans := typical_intent(collector.spans)) and time.monotonic() < deadline_s:
        collector.wait(0.5)
    for number, line in enumerate(waterfall(spans) or ["no intent with a whole trace"]):
        say(f"{'' if number else 'trace':<10}{line}")


def _told(wanted: Wanted, folder: Path, metrics: Sequence[str]) -> int:
    """Run the demo in a process of its own, which is stopped before all others; its exit code."""
    command = [sys.executable, "-m", "tests.services.traced_story", "--months", str(wanted.months)]
    command += ["--warehouse", os.environ["ROOTLINE_WAREHOUSE"], "--log", os.environ["ROOTLINE_LOG"]]
    command += [word for url in metrics for word in ("--metrics", url)]
    command += ["--files", str(folder / "demo-files")]
    story = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    with bound(story.pid):
        try:
            return story.wait()
        finally:
            stop_process(story, _STOP_PATIENCE_S)


def _keep_pages(process: RootlineProcess, folder: Path) -> None:
    """What it answered at the end, beside its log."""
    with urlopen(f"{process.wait_listening()}/metrics", timeout=_STOP_PATIENCE_S) as answer:
        text = answer.read().decode()
    (folder / f"{process.name}.metrics").write_text(f"{text}# /readyz: {process.readiness()}\n")


def _show(wanted: Wanted, lake: KafkaLake, folder: Path) -> None:
    """Say where everything is and, if that is wanted, leave it running until a signal."""
    say(f"logs      {folder}")
    if wanted.stays:
        say(f"stays     until Ctrl-C, or `kill {os.getpid()}`; in another shell:")
        for variable, value in lake.environment().items():
            say(f"          export {variable}={shlex.quote(value)}")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                signal.pause()
    if lake.s3.folder is not None:
        say("later     the objects of the bucket stay as files; to look at them:")
        say(f"          rootline table list --warehouse {lake.s3.folder / lake.prefix}")


def _process(pid: int | None) -> str:
    return "" if pid is None else f" (process {pid})"


def _fresh_folder(root: Path) -> Path:
    return _made(next(folder for number in count(1) if not (folder := root / f"run-{number}").exists()))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _wanted(arguments: Sequence[str] | None) -> Wanted:
    purpose = "The demo on real Kafka and S3, which it starts by itself on 127.0.0.1."
    parser = argparse.ArgumentParser(prog="python -m tests.services.kafka_demo", description=purpose)
    parser.add_argument(
        "--root", type=Path, default=Path("demo-kafka"), help="folder for the files of all runs; default: ./demo-kafka"
    )
    parser.add_argument("--months", type=int, default=12, choices=range(1, 13), help="how many months of flights")
    parser.add_argument(
        "--coordinators",
        type=int,
        default=2,
        choices=range(1, 9),
        help="how many coordinators share the group; default: 2",
    )
    parser.add_argument("--stay", action="store_true", help="leave the services running afterwards, until Ctrl-C")
    parser.add_argument(
        "--dashboards",
        action="store_true",
        help="start a Prometheus as well, say where it and the consoles are, and leave all running until Ctrl-C; "
        "without a terminal: until SIGTERM, whose process is named",
    )
    given = parser.parse_args(arguments)
    stays = given.stay or given.dashboards
    return Wanted(given.root.absolute(), given.months, given.coordinators, stays, given.dashboards)


if __name__ == "__main__":
    sys.exit(main())
