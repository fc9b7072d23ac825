"""A lake with its log on Kafka: writers and coordinators of the release and of the current tree, together."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.compatibility.both_ways import DECIDED, assert_grown, assert_read, write_all
from tests.compatibility.sides import both_sides, without_rootline
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service

pytestmark = [pytest.mark.services, pytest.mark.slow]
OFTEN = {"ROOTLINE_COORDINATOR__OFFSETS_COMMIT_INTERVAL_S": "0.1", "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "0"}
WORDS = ("coordinator", "--http-port", "0")


class ReleasedProcess(RootlineProcess):
    """The release's command, started as a user starts it."""

    def __init__(self, python: Path, name: str, environment: Mapping[str, str], folder: Path) -> None:
        super().__init__(name, WORDS, environment, folder)
        self._command = python.with_name("rootline")

    def begun(
        self, words: tuple[str, ...], variables: Mapping[str, str], output: BinaryIO, log: BinaryIO
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self._command), *words],
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            start_new_session=True,
        )


@pytest.fixture
def lake(s3_service: S3Service, kafka_service: KafkaService) -> KafkaLake:
    return KafkaLake(s3_service, kafka_service.with_topics(partitions=2, session_timeout_s=6, rebalance_deadline_s=3))


def test_the_log_is_written_and_decided_by_either_and_by_both_in_one_group(
    released_python: Path, lake: KafkaLake, tmp_path: Path
) -> None:
    variables = lake.environment()
    old = ReleasedProcess(released_python, "old", {**variables, **OFTEN}, tmp_path)
    new = RootlineProcess("new", WORDS, {**variables, **OFTEN}, tmp_path)
    sides = both_sides(released_python, lake.warehouse, lake.kafka.url, variables)
    with ending(old, new), sides as (released, current):
        old.start()
        old.wait_ready()
        written, sent = write_all(current)
        assert_read(released, written, sent)
        stop(old)
        undecided = [*released("leave_undecided", "early"), *current("leave_undecided", "late")]

        new.start()
        new.wait_ready()
        duplicates = [["duplicate" if kind == "committed" else kind, code] for kind, code in DECIDED]
        decided = released("send_again", undecided)
        assert [[kind, code] for kind, _, code in decided] == duplicates * 2, "what waited was decided first"
        assert_read(current, written, sent)

        old.start()
        old.wait_ready()
        for first, side in ((1_000, released), (2_000, current)):
            side.begin("append", first, 8)
        assert [len(side.answer()) for side in (released, current)] == [8, 8]
        assert {*range(1_000, 1_008), *range(2_000, 2_008)} <= {*current("ids")}
        stop(new)
        assert_grown(current, released)


def stop(process: RootlineProcess) -> None:
    """Ask it to stop, and wait."""
    process.request_stop()
    assert process.wait() == 0, process.tail()


def test_the_release_sees_no_setting_of_the_tests() -> None:
    assert without_rootline({"ROOTLINE_LOG": "x", "PYTHONPATH": "y", "HOME": "z"}) == {"HOME": "z"}
