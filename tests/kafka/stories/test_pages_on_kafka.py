"""Pages whose commands need a broker, run as they are written against a real one and a coordinator of their own."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

import rootline
from rootline.adapters.settings import KafkaSettings
from tests.documents.blocks import HOUSE, blocks_of, statements
from tests.documents.page_shell import free_port, page_shell
from tests.documents.run_where import RUN_BY, is_listed, left_out
from tests.kafka.shared_log import in_environment
from tests.services.kafka_service import KafkaService

pytestmark = pytest.mark.services
PATIENCE_S = 120.0


def make_kcat(folder: Path) -> None:
    """A stand-in for kcat in the folder, on machines that have none."""
    if shutil.which("kcat") is None:
        stand_in = folder / "kcat"
        stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HOUSE}/tests/kafka/stories/kcat_stand_in.py" "$@"\n')
        stand_in.chmod(0o755)


def found_here(settings: KafkaSettings) -> dict[str, str]:
    """Words of pages for people who write from any language, and what they are here."""
    return {
        "localhost:9092": settings.servers(),
        "-t rootline.intents": f"-t {settings.intents_topic}",
        "8080": free_port(),
    }


def test_the_quickstart_for_a_kafka_producer_adds_its_file_once(
    kafka_service: KafkaService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kafka_service.with_topics()
    in_environment(settings, monkeypatch)
    make_kcat(tmp_path)
    with page_shell(tmp_path, monkeypatch, found_here(settings)) as shell:
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


def test_the_readmes_commands_for_kafka_make_a_table_and_any_client_adds_a_file(
    kafka_service: KafkaService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kafka_service.with_topics()
    in_environment(settings, monkeypatch)
    make_kcat(tmp_path)
    service, record = (block for block in blocks_of("README.md", "shell") if "9092" in block.text)
    with page_shell(tmp_path, monkeypatch, found_here(settings)) as shell:
        shell.run(service)
        with rootline.connect("lake-on-kafka", coordinator="elsewhere") as lake:  # the programs above it
            lake.table("demo.flights").append([{"carrier": "UA", "dep_delay": 3}])
        shell.run(record)
        end = time.monotonic() + PATIENCE_S
        while "committed" not in (told := shell.rootline("trace", "--intent", "sensor-7/0")):
            assert time.monotonic() < end, told
        assert "data/sensor-7-0.parquet" in shell.rootline("files", "demo.flights")


def test_the_commands_of_the_page_for_operators_run(
    kafka_service: KafkaService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/operations.md: every block of commands that needs brokers, but for Redis' own."""
    settings = kafka_service.with_topics()
    in_environment(settings, monkeypatch)
    instead = {
        "s3://lake/tables": str(tmp_path / "tables"),
        "kafka://broker-1:9092,broker-2:9092": settings.url,
        "--http-port 8080": "--http-port 0",
        "a.b --watch": "a.b",  # it does not end by itself
        "a.b": "demo.flights",
    }
    blocks = {
        block.first_line: block
        for block in blocks_of("docs/operations.md", "console")
        if not left_out(block) and any(is_listed(block, listed) for listed in RUN_BY)
    }
    begins = ["export", "status", "quarantine list", "dlq list", "check demo", "maintenance run", "topics accept"]
    runs = [
        next(block for line, block in blocks.items() if line.removeprefix("rootline ").startswith(words))
        for words in begins
    ]
    assert len(blocks) == len(runs), "each block is run"
    first, status, quarantine, letters, check, maintenance, accept = runs
    with page_shell(tmp_path, monkeypatch, instead) as shell:
        shell.run(first)
        with rootline.connect(str(tmp_path / "tables"), log=settings.url, coordinator="elsewhere") as lake:
            lake.create_table("demo.flights", {"id": "long"}).append({"id": [1]})
        intent = {
            "intent_id": "gone",
            "table": "demo.flights",
            "kind": "overwrite",
            "remove_files": [{"location": "no"}],
        }
        (tmp_path / "intent.jsonl").write_text(json.dumps(intent))
        shell.exit_codes = {"publish": 1, "quarantine lift": 1}  # rejected; and nothing is quarantined
        assert "file-not-live" in shell.rootline("publish", "intent.jsonl")
        letter = json.loads(shell.rootline("dlq", "list", "--json").splitlines()[-1])
        shell.instead["3/1742"] = letter["record"]
        assert "file-not-live" in shell.run(letters)
        assert "demo.flights" in shell.run(status)
        shell.rootline("resume", "--all")  # as the last line of the block says
        for block in (quarantine, check, maintenance):
            assert shell.run(block)
    with page_shell(tmp_path, monkeypatch, instead) as shell:  # the coordinators have ended
        for line in statements(first.text):
            if line.startswith("export"):
                shell.console(line)
        assert shell.run(accept)
