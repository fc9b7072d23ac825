"""A real Prometheus watches real services; what an alert watches is broken, and the alert fires.

Owns: the order in which things break. Does not own: what an alert says in each case (`rules_test.yml`).
Invariants: the rules are the deployed ones, with shorter times; every service is this test's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import urllib.error
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rootline.adapters.settings import KafkaSettings
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import VerdictKind
from tests.coordinator.running_service import TABLE, append_intent
from tests.kafka.coordinating import SharedTable, elapsed, sharing
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import running_s3
from tests.services.watching.dashboards import queries
from tests.services.watching.deployed_rules import alerts, shortened
from tests.services.watching.prometheus_server import Prometheus, running_prometheus
from tests.services.watching.prometheus_software import prometheus_program
from tests.services.watching.scrape_targets import scraping

pytestmark = pytest.mark.services
OFTEN = {
    "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "0",
    "ROOTLINE_COORDINATOR__REQUEST_TIMEOUT_S": "1",
    "ROOTLINE_COORDINATOR__RETRY_DELAY_MS_MAX": "200",
    "ROOTLINE_CATALOG__REQUEST_TIMEOUT_S": "1",
    "ROOTLINE_WORKER__REQUEST_TIMEOUT_S": "1",
    "ROOTLINE_WORKER__POLL_INTERVAL_S": "0.2",
    "ROOTLINE_WORKER__POLL_INTERVAL_S_MAX": "0.2",
    "ROOTLINE_WORKER__DISCOVERY_INTERVAL_S": "0.2",
    "ROOTLINE_WORKER__JOBS_AT_ONCE": "1",
    "ROOTLINE_WORKER__TASKS_MAX": "1",
}
TABLES = (TABLE, TableName("c.d"), TableName("e.f"))
DAMAGED = TableName("q.q")
PATIENCE_S = 240.0
BY_UNIT_TEST_ONLY = {
    "RootlineLagGrows",  # a coordinator reads faster than a test publishes
    "RootlineCoordinatorNotReady",  # the broker is shared with other tests
    "RootlineOwnersRace",
    "RootlinePartitionsPaused",
    "RootlineClocksApart",
    "RootlineProgressDropped",
    "RootlineSweepRefused",
    "RootlineExpiryStalled",
    "RootlinePlansStale",
    "RootlineVersionsDiffer",
    "RootlineTargetsVanished",
    "RootlineTasksDead",  # these two need a Redis
    "RootlineRedisAway",
    "RootlineSparkStreamStalled",  # and these three a Spark: tests/spark/test_stream_metrics.py
    "RootlineSparkStreamBehind",
    "RootlineSparkStreamWaits",
}
"""Of these the state cannot be made in seconds: promtool plays it to the rule."""


class Watched:
    """What has fired so far."""

    def __init__(self, prometheus: Prometheus) -> None:
        self.prometheus = prometheus
        self.seen: set[str] = set()

    async def until_fired(self, *names: str, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait for all of them; `meanwhile` is done again and again."""
        for _ in range(int(PATIENCE_S / 0.2)):
            if meanwhile is not None:
                await meanwhile()
            self.seen |= self.prometheus.firing()
            if set(names) <= self.seen:
                return
            await elapsed(0.2)
        pytest.fail(f"did not fire: {sorted(set(names) - self.seen)}; fired: {sorted(self.seen)}")

    async def until_quiet(self, *names: str) -> None:
        """Wait until none of them fires; on a busy machine, one of them may have fired for good reason."""
        for _ in range(int(PATIENCE_S / 0.2)):
            if not set(names) & self.prometheus.firing():
                self.seen -= set(names)
                return
            await elapsed(0.2)
        pytest.fail(f"fire although nothing is broken: {sorted(set(names) & self.prometheus.firing())}")


@contextmanager
def watching(targets: dict[str, str], folder: Path) -> Iterator[Prometheus]:
    """The deployed configuration with these targets, job → URL, and shorter times."""
    each = {job: [url] for job, url in targets.items()}
    configuration = scraping(each, folder, rules=shortened(10))
    with running_prometheus(configuration, folder) as prometheus:
        yield prometheus


def ask(url: str) -> None:
    """As an engine does."""
    urllib.request.urlopen(url, timeout=30).close()


async def ask_in_vain(url: str) -> None:
    """The same of a catalog that may fail."""
    with contextlib.suppress(OSError):  # an error that it answers, or no answer in time
        await asyncio.to_thread(ask, url)


async def change_all(shared: SharedTable) -> None:
    """Every table changes, so that a worker has more to look at than it queues."""
    await shared.commit(*(append_intent(uuid.uuid4().hex, table=table) for table in TABLES))


def crowded(process: RootlineProcess) -> None:
    """Leave it hardly any file descriptors beyond those that it has open."""
    pid = process.running.pid
    is_open = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (is_open + 2, hard))


def long_intent() -> Intent:
    """More files than a root should hold, in one intent."""
    files = tuple(
        DataFile(location=f"data/{number}.parquet", record_count=1, file_size_in_bytes=1) for number in range(3_001)
    )
    return Intent(intent_id="long", table=TABLE, kind=IntentKind.APPEND, add_data_files=files)


async def written(shared: SharedTable) -> None:
    """Tables with something in them, what is rejected, and a table whose root is damaged."""
    await shared.store.put_if_absent(root_key(DAMAGED, Version(0)), b"damaged", after=None)
    for table in TABLES:
        await shared.create(table)
    verdicts = await shared.commit(*(append_intent(f"one-{table}", table=table) for table in TABLES))
    assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
    [rejected] = await shared.commit(append_intent("bad", location="../x"))
    assert rejected.kind is VerdictKind.REJECTED
    await shared.publish(append_intent("held", table=DAMAGED))


async def test_alerts_fire_when_what_they_watch_breaks_and_every_dashboard_query_is_answered(
    kafka_service: KafkaService, tmp_path: Path
) -> None:
    prometheus_program("prometheus")
    settings: KafkaSettings = kafka_service.with_topics(partitions=1)
    with running_s3(tmp_path) as s3:
        assert s3.pid is not None, "this test stops its store: unset ROOTLINE_TEST_S3"
        lake = KafkaLake(s3, settings)
        environment = {**lake.environment(), **OFTEN}
        coordinator, worker, catalog = (
            RootlineProcess(words[0], words, environment, tmp_path)
            for words in (
                ("coordinator", "--http-port", "0"),
                ("worker", "--http-port", "0"),
                ("catalog", "serve", "--port", "0"),
            )
        )
        async with contextlib.AsyncExitStack() as around:
            store = lake.store()
            around.push_async_callback(store.close)
            shared = await around.enter_async_context(sharing(settings, store))
            with ending(coordinator, worker, catalog):
                for process in (coordinator, worker, catalog):
                    process.start()
                urls = {
                    "rootline-coordinator": coordinator.wait_listening(),
                    "rootline-worker": worker.wait_listening(),
                    "rootline-catalog": catalog.wait_listening(),
                }
                exported = f"{urls['rootline-catalog']}/v1/namespaces/a/tables/b"
                with watching(urls, tmp_path) as prometheus:
                    watched = Watched(prometheus)
                    await written(shared)
                    await asyncio.to_thread(ask, exported)
                    await watched.until_fired(
                        "RootlineIntentsRejected",
                        "RootlineTableQuarantined",
                        "RootlineWorkerQueueFull",
                        meanwhile=partial(change_all, shared),
                    )
                    await watched.until_quiet("RootlineCoordinatorDown", "RootlineWorkerDown", "RootlineStoreFails")
                    for query in queries():
                        prometheus.query(query.with_values(str(TABLE)))

                    os.kill(s3.pid, signal.SIGSTOP)
                    try:
                        late = await shared.publish(append_intent("late"))
                        await watched.until_fired(
                            "RootlineStoreFails",
                            "RootlineIntentsWait",
                            "RootlineWorkerFails",
                            "RootlineFlushStalled",
                            "RootlineCatalogErrors",
                            "RootlineExportsFail",
                            meanwhile=partial(ask_in_vain, exported),
                        )
                    finally:
                        os.kill(s3.pid, signal.SIGCONT)
                    await shared.verdicts(late)
                    worker.kill()
                    await shared.commit(long_intent())
                    crowded(catalog)
                    await watched.until_fired(
                        "RootlineWritersWaitLong", "RootlineWorkerDown", "RootlineRootLong", "RootlineFilesNearLimit"
                    )
                    catalog.kill()
                    coordinator.kill()
                    await watched.until_fired(
                        "RootlineCatalogDown",
                        "RootlineCoordinatorDown",
                        "RootlinePartitionsUnread",
                        "RootlineNoCoordinator",
                    )
                    assert {alert.name for alert in alerts()} - watched.seen <= BY_UNIT_TEST_ONLY
