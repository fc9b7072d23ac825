"""Streaming jobs that commit through the catalog are kept apart, and none of them goes back."""

from __future__ import annotations

from typing import Any

import pytest

from rootline.rest.job_progress import progress_in
from tests.rest.hand_made import HandMade
from tests.rest.writing_catalog import WritingCatalog, problem


def _flink(checkpoint: int, job: str = "a") -> dict[str, str]:
    return {
        "flink.job-id": job,
        "flink.operator-id": "sink",
        "flink.max-committed-checkpoint-id": str(checkpoint),
    }


def _commit(client: HandMade, words: dict[str, str], first: int) -> Any:
    updates, requirements = client.append(client.file(first))
    updates[0]["snapshot"]["summary"] |= words
    return client.catalog.commit(client.table, updates, requirements)


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (
            {"flink.job-id": "a", "flink.operator-id": "b", "x": "1"},
            {"flink a b": ("flink.job-id", "flink.operator-id")},
        ),
        ({"spark.sql.streaming.queryId": "q", "x": "1"}, {"spark q": ("spark.sql.streaming.queryId",)}),
        (
            {"kafka.connect.offsets.t.g": "{}", "kafka.connect.commit-id": "c", "kafka.connect.valid-through-ts": "1"},
            {
                "kafka.connect.offsets.t.g": (
                    "kafka.connect.offsets.t.g",
                    "kafka.connect.commit-id",
                    "kafka.connect.valid-through-ts",
                )
            },
        ),
        ({"my.offset": "1", "other": "2"}, {"my.offset": ("my.offset",)}),
        ({"engine-name": "spark"}, {}),
    ],
)
def test_the_words_of_each_engine_are_its_jobs_progress(
    words: dict[str, str], jobs: dict[str, tuple[str, ...]]
) -> None:
    assert progress_in(words, {"rootline.rest.progress-keys": "my.offset, absent"}) == jobs


def test_a_checkpoint_that_is_not_above_the_committed_one_is_refused(catalog: WritingCatalog, table: str) -> None:
    client = HandMade(catalog, table)
    assert _commit(client, _flink(5), 1).status_code == 200
    client.load()
    for old in (4, 5):
        status, message = problem(_commit(client, _flink(old), 2))
        assert status == 400
        assert f"checkpoint {old}" in message
    assert _commit(client, _flink(6), 3).status_code == 200
    assert _commit(client.load(), _flink(1, job="another"), 4).status_code == 200
    assert sorted(catalog.lake.table(table).scan().to_arrow().column("id").to_pylist()) == [1, 3, 4]


def test_of_two_instances_of_a_job_on_one_snapshot_one_fails(catalog: WritingCatalog, table: str) -> None:
    one, other = HandMade(catalog, table), HandMade(catalog, table)
    assert _commit(one, _flink(1), 1).status_code == 200
    answer = _commit(other, _flink(2), 2)
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "CommitFailedException")
    assert "progress-moved" in problem(answer)[1]
    assert _commit(other.load(), _flink(2), 3).status_code == 200


def test_two_jobs_in_one_request_are_refused(catalog: WritingCatalog, table: str) -> None:
    client = HandMade(catalog, table)
    updates, requirements = client.append(client.file(1))
    first = updates[0]["snapshot"] | {"snapshot-id": 11}
    updates[0]["snapshot"] |= {"parent-snapshot-id": 11}
    first["summary"] = first["summary"] | _flink(1, job="one") | {"added-data-files": "0"}
    updates[0]["snapshot"]["summary"] |= _flink(1, job="two")
    status, message = problem(
        catalog.commit(table, [{"action": "add-snapshot", "snapshot": first}, *updates], requirements)
    )
    assert status == 400
    assert "several streaming jobs" in message
