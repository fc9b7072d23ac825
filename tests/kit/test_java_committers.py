"""Flink's and Kafka Connect's ways to commit exactly once, by Iceberg's Java client, through the catalog."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.java_committers import JavaCommitters, running_committers
from tests.rest.writing_catalog import WritingCatalog, writing_catalog

pytestmark = [pytest.mark.services, pytest.mark.slow]

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
ROWS = pa.schema([pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})])
FLINK = {"job": "job-1", "operator": "sink-1"}
CONNECT = {"topic": "flights", "group": "sink"}
OTHERS = 200
ONE_ATTEMPT = {"commit.retry.num-retries": "0"}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WritingCatalog]:
    with writing_catalog(tmp_path_factory.mktemp("committers") / "lake") as found:
        yield found


@pytest.fixture(scope="module")
def java(catalog: WritingCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCommitters]:
    with running_committers(catalog.url, tmp_path_factory.mktemp("java")) as found:
        yield found


class Sink:
    """A table, and the files that a sink wrote for it and did not commit yet."""

    def __init__(self, catalog: WritingCatalog, name: str, **properties: str) -> None:
        assert catalog.create("demo", name=name, schema=SCHEMA, properties=properties).status_code == 200
        self.name, self._lake = f"demo.{name}", catalog.lake
        self._folder = Path(catalog.load(self.name)["location"].removeprefix("file://"))

    def file(self, *ids: int) -> list[dict[str, Any]]:
        """A file of the table's folder that has these ids."""
        path = self._folder / "data" / f"{uuid.uuid4()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": list(ids)}, schema=ROWS), path)
        return [{"path": f"file://{path}", "bytes": path.stat().st_size, "rows": len(ids)}]

    def others(self, number: int) -> None:
        """Commits of a native writer, of a row with the id -1 each."""
        table = self._lake.table(self.name)
        for _ in range(number):
            table.append({"id": [-1]})

    def ids(self) -> list[int]:
        """The ids of the sink's rows."""
        found: list[int] = self._lake.table(self.name).scan("id >= 0").to_arrow().column("id").to_pylist()
        return sorted(found)


def checkpoint(java: JavaCommitters, sink: Sink, **words: str) -> int:
    found: int = java.ask(do="checkpoint", table=sink.name, **(words or FLINK))["found"]
    return found


def offsets(java: JavaCommitters, sink: Sink) -> dict[str, int]:
    found: dict[str, int] = java.ask(do="offsets", table=sink.name, **CONNECT)["found"]
    return found


def test_both_find_their_newest_words_behind_two_hundred_commits_of_others(
    catalog: WritingCatalog, java: JavaCommitters
) -> None:
    sink = Sink(catalog, "long_ago")
    assert checkpoint(java, sink) == -1
    assert offsets(java, sink) == {}
    for number in (6, 7):
        done = java.commit(sink.name, **FLINK, checkpoint=number, files=sink.file(number))
        assert done == {"outcome": "committed"}
    other = {**FLINK, "operator": "sink-2"}
    java.commit(sink.name, **other, checkpoint=9, files=sink.file(9))
    java.commit(sink.name, **CONNECT, expected={}, offsets={"0": 10, "1": 20}, files=sink.file(10, 20))
    sink.others(OTHERS)
    assert (checkpoint(java, sink), checkpoint(java, sink, **other)) == (7, 9)
    assert offsets(java, sink) == {"0": 10, "1": 20}
    assert sink.ids() == [6, 7, 9, 10, 20]
    done = java.commit(sink.name, **CONNECT, expected={"0": 10, "1": 20}, offsets={"0": 30}, files=sink.file(30))
    assert done == {"outcome": "committed"}
    assert java.commit(sink.name, **FLINK, checkpoint=8, files=sink.file(8)) == {"outcome": "committed"}
    assert (checkpoint(java, sink), checkpoint(java, sink, **other), offsets(java, sink)) == (8, 9, {"0": 30})
    assert sink.ids() == [6, 7, 8, 9, 10, 20, 30]


def test_of_two_coordinators_of_kafka_connect_on_one_version_one_commits_and_the_other_fails(
    catalog: WritingCatalog, java: JavaCommitters
) -> None:
    sink = Sink(catalog, "two_coordinators", **ONE_ATTEMPT)
    words = {"table": sink.name, **CONNECT, "expected": {}, "offsets": {"0": 5}}
    outcomes = java.race({**words, "files": sink.file(1)}, {**words, "files": sink.file(2)})
    assert sorted(each["outcome"] for each in outcomes) == ["CommitFailedException", "committed"]
    assert sink.ids() == [1 if outcomes[0]["outcome"] == "committed" else 2]


def test_a_coordinator_that_lost_finds_its_offsets_stale_at_its_next_attempt(
    catalog: WritingCatalog, java: JavaCommitters
) -> None:
    sink = Sink(catalog, "stale_offsets")
    words = {"table": sink.name, **CONNECT, "expected": {}, "offsets": {"0": 5}}
    outcomes = java.race({**words, "files": sink.file(1)}, {**words, "files": sink.file(2)})
    lost = next(each for each in outcomes if each["outcome"] != "committed")
    assert lost["outcome"] == "ValidationException"
    assert 'stale offsets: expected {}, committed are {"0":5}' in lost["message"]
    assert sink.ids() == [1 if outcomes[0]["outcome"] == "committed" else 2]


def test_of_two_flink_jobs_with_one_id_on_one_version_one_commits_its_checkpoint(
    catalog: WritingCatalog, java: JavaCommitters
) -> None:
    once, again = Sink(catalog, "zombie_once", **ONE_ATTEMPT), Sink(catalog, "zombie_again")
    for sink, refusal in ((once, "CommitFailedException"), (again, "BadRequestException")):
        words = {"table": sink.name, **FLINK, "checkpoint": 3}
        outcomes = java.race({**words, "files": sink.file(1)}, {**words, "files": sink.file(2)})
        assert sorted(each["outcome"] for each in outcomes) == [refusal, "committed"]
        assert sink.ids() == [1 if outcomes[0]["outcome"] == "committed" else 2]
        assert checkpoint(java, sink) == 3


def test_a_checkpoint_that_is_not_above_the_committed_one_is_refused(
    catalog: WritingCatalog, java: JavaCommitters
) -> None:
    sink = Sink(catalog, "repeated")
    assert java.commit(sink.name, **FLINK, checkpoint=3, files=sink.file(1))["outcome"] == "committed"
    refused = java.commit(sink.name, **FLINK, checkpoint=3, files=sink.file(2))
    assert refused["outcome"] == "BadRequestException"
    assert sink.ids() == [1]


def test_jobs_that_commit_at_once_hide_no_words_of_each_other(catalog: WritingCatalog, java: JavaCommitters) -> None:
    sink, jobs = Sink(catalog, "at_once"), range(4)
    outcomes = java.race(
        *(
            {"table": sink.name, "job": f"job-{job}", "operator": "o", "checkpoint": job, "files": sink.file(job)}
            for job in jobs
        )
    )
    assert [each["outcome"] for each in outcomes] == ["committed"] * 4
    assert [checkpoint(java, sink, job=f"job-{job}", operator="o") for job in jobs] == list(jobs)
    assert sink.ids() == list(jobs)


def test_a_checkpoint_without_files_is_answered_as_committed_and_makes_no_version(
    catalog: WritingCatalog, java: JavaCommitters
) -> None:
    sink = Sink(catalog, "empty")
    java.commit(sink.name, **FLINK, checkpoint=1, files=sink.file(1))
    before = catalog.lake.table(sink.name).head()
    assert java.commit(sink.name, **FLINK, checkpoint=2)["outcome"] == "committed"
    assert catalog.lake.table(sink.name).head() == before
    assert java.commit(sink.name, **FLINK, checkpoint=3, files=sink.file(3))["outcome"] == "committed"
    assert (checkpoint(java, sink), sink.ids()) == (3, [1, 3])
