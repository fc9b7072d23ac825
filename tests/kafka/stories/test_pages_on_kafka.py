"""docs/quickstarts/kafka-producer.md, run as it is written against a real broker and a coordinator of its own."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

import rootline
from tests.documents.blocks import HOUSE, blocks_of
from tests.documents.page_shell import free_port, page_shell
from tests.documents.run_where import left_out
from tests.kafka.shared_log import SharedLog
from tests.services.kafka_service import KafkaService

pytestmark = pytest.mark.services
PATIENCE_S = 120.0


def test_the_quickstart_for_a_kafka_producer_adds_its_file_once(
    kafka_service: KafkaService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kafka_service.with_topics()
    SharedLog(tmp_path / "lake", settings).name_in(monkeypatch)
    if shutil.which("kcat") is None:
        stand_in = tmp_path / "kcat"
        stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HOUSE}/tests/kafka/stories/kcat_stand_in.py" "$@"\n')
        stand_in.chmod(0o755)
    instead = {
        "localhost:9092": settings.servers(),
        "-t rootline.intents": f"-t {settings.intents_topic}",
        "8080": free_port(),
    }
    with page_shell(tmp_path, monkeypatch, instead) as shell:
        for block in blocks_of("docs/quickstarts/kafka-producer.md", "python", "console"):
            if not left_out(block):
                shell.run(block)
        with rootline.connect("lake", coordinator="elsewhere") as lake:
            end = time.monotonic() + PATIENCE_S
            while (found := lake.table("demo.trips").scan().count()) == 0:
                assert time.monotonic() < end, "the intent was not committed"
            assert found == 2
        while "duplicate: demo.trips; version 1" not in (told := shell.rootline("trace", "--intent", "sensor-7/0")):
            assert time.monotonic() < end, told
        assert "sensor-7-0.parquet" in shell.rootline("files", "demo.trips")
