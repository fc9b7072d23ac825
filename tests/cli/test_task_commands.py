"""`rootline tasks`: what workers took and never ended, seen and tried again by an operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from rootline.adapters.redis_calls import LakeKeys
from tests.cli.conftest import Run
from tests.services.valkey_service import ValkeyService

pytestmark = pytest.mark.services
LAKE = ("--warehouse", "s3://lake/a", "--log", "kafka://nowhere:1")


@pytest.fixture
def dead(valkey_service: ValkeyService, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[redis.Redis, LakeKeys]]:
    """Two dead tasks of one table, and one of another."""
    prefix = valkey_service.prefix().rstrip(":")
    monkeypatch.setenv("ROOTLINE_REDIS__URL", valkey_service.url)
    monkeypatch.setenv("ROOTLINE_REDIS__PREFIX", prefix)
    keys = LakeKeys.of(prefix, "s3://lake/a/")
    with redis.Redis.from_url(valkey_service.url, protocol=2) as client:
        for like in ("root demo.flights", "history demo.flights", "root demo.planes"):
            client.hset(keys.dead, like, "7 5 1700000000000")
        yield client, keys


def test_dead_tasks_are_listed(run: Run, dead: tuple[redis.Redis, LakeKeys]) -> None:
    records = run("tasks", "list", *LAKE, "--json").records
    assert [(record["table"], record["kind"], record["attempts"]) for record in records] == [
        ("demo.flights", "history", 5),
        ("demo.flights", "root", 5),
        ("demo.planes", "root", 5),
    ]
    assert "demo.planes" in run("tasks", "list", *LAKE).out


def test_a_dead_task_is_queued_again_and_a_dry_run_changes_nothing(
    run: Run, dead: tuple[redis.Redis, LakeKeys]
) -> None:
    client, keys = dead
    assert run("tasks", "retry", "demo.flights", *LAKE, "--dry-run").code == 0
    assert client.hlen(keys.dead) == 3
    result = run("tasks", "retry", "demo.flights", "--kind", "root", *LAKE, "--json")
    assert [record["outcome"] for record in result.records] == ["queued"]
    assert (client.hlen(keys.dead), client.xlen(keys.tasks)) == (2, 1)


def test_a_dead_task_is_forgotten_and_one_that_is_not_dead_is_told(
    run: Run, dead: tuple[redis.Redis, LakeKeys]
) -> None:
    client, keys = dead
    assert run("tasks", "drop", "demo.flights", *LAKE, "--dry-run").code == 0
    assert run("tasks", "drop", "demo.flights", *LAKE).code == 0
    assert (client.hlen(keys.dead), client.xlen(keys.tasks)) == (1, 0)
    assert run("tasks", "drop", "demo.flights", *LAKE).code == 1
    assert run("tasks", "retry", "demo.flights", *LAKE).code == 1


def test_where_nothing_is_shared_the_reason_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOTLINE_REDIS__URL", raising=False)
    result = run("tasks", "list", *LAKE)
    assert result.code == 2
    assert "ROOTLINE_REDIS__URL" in result.err
    monkeypatch.setenv("ROOTLINE_REDIS__URL", "redis://user:hunter2@127.0.0.1:1")
    result = run("tasks", "list", *LAKE)
    assert result.code == 3
    assert "hunter2" not in result.err
    monkeypatch.setenv("ROOTLINE_REDIS__URL", "http://127.0.0.1")
    assert run("tasks", "list", *LAKE).code == 2
