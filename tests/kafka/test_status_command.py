"""`rootline status` over a real broker: who owns a table, what waits on its partition, and why a table waits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.kafka.shared_log import SharedLog, in_environment
from tests.services.kafka_service import KafkaService
from tests.support.small_intents import TABLE, adding

pytestmark = pytest.mark.services
PATIENCE_S = 240.0


def test_owner_lag_oldest_intent_and_state_are_those_of_the_log(
    kafka_service: KafkaService, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SharedLog(tmp_path / "lake", kafka_service.with_topics(partitions=3))
    log.folder.mkdir()
    in_environment(log.settings, monkeypatch)
    with log.open() as lake:
        with log.coordinated():
            lake.create_table(TABLE, {"id": "int"}, timeout_s=PATIENCE_S)
            end = time.monotonic() + PATIENCE_S
            while (row := run("status", TABLE, *log.words, "--json").records[0])["state"] != "idle":
                assert time.monotonic() < end, row
            assert (row["head"], row["lag"], row["oldest"]) == (0, 0, None)
            assert "127.0.0.1" in row["owner"]
        with lake.producer() as producer:
            for number in range(4):
                producer.publish(adding(f"n{number}"))
        unowned = run("status", *log.words, "--json").records
        assert [(row["table"], row["state"], row["owner"], row["lag"]) for row in unowned] == [
            (TABLE, "unowned", None, 4)
        ]
        assert unowned[0]["oldest_s"] >= 0
        run("pause", TABLE, *log.words)
        (paused,) = run("status", TABLE, *log.words, "--json").records
        assert (paused["state"], paused["lag"], paused["why"]) == ("paused", 4, "paused by an operator")
