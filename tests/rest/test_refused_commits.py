"""A commit is not refused while the table has its files, because clients delete their files after a refusal."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rootline.rest import bodies
from rootline.rest.writing import READ_AT_ONCE, SMALL_BYTES, CommitsAtOnce
from rootline.schemas.identifiers import TableName
from tests.rest.hand_made import HandMade, fresh_id
from tests.rest.writing_catalog import SCHEMA, problem, writing_catalog

ONE, OTHER = TableName("demo.one"), TableName("demo.other")
UNKNOWN = 500
"""The status after which no client deletes a file."""
FLINK = {"flink.job-id": "a", "flink.operator-id": "s", "flink.max-committed-checkpoint-id": "5"}
OFFSETS = "kafka.connect.offsets.control.group"
Request = tuple[list[Any], list[Any]]


def _status(client: HandMade, request: Request) -> int:
    return client.catalog.commit(client.table, *request).status_code


def test_a_job_that_restarts_and_repeats_its_files_under_another_id_is_done(client: HandMade) -> None:
    file = client.file(1, 2)
    assert _status(client, client.append(file, **FLINK)) == 200
    assert _status(client, client.append(file, **FLINK)) == 200, "the checkpoint is committed, and so are its files"
    assert _status(client, client.append(client.file(3), **FLINK)) == 400
    assert client.ids() == [1, 2]


def test_a_copy_of_a_request_whose_body_stalls_is_not_refused_while_the_first_one_may_be_committed(
    client: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_BODY_S", 0.3)
    url = urlsplit(client.catalog.url)
    head = f"POST /v1/own/namespaces/demo/tables/kept HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: 9\r\n\r\n"
    with socket.create_connection((str(url.hostname), int(url.port or 0)), timeout=30) as connection:
        connection.sendall(head.encode() + b"{")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 503")


def test_an_overwrite_of_a_stale_base_whose_files_are_in_the_table_is_done(client: HandMade) -> None:
    stale, file = HandMade(client.catalog, client.table), client.file(1)
    assert _status(client, client.append(file)) == 200
    again = stale.append(file)
    again[0][0]["snapshot"]["summary"]["operation"] = "overwrite"
    assert _status(stale, again) == 200
    assert client.ids() == [1]


def test_a_file_that_was_rewritten_since_is_not_refused_with_a_4xx(client: HandMade) -> None:
    first, second = client.file(1), client.file(2)
    assert _status(client, client.append(first, second)) == 200
    client.catalog.lake.table(client.table).rewrite()
    client.load()
    assert _status(client, client.append(first, client.file(3))) == UNKNOWN
    assert client.ids() == [1, 2]


def test_a_file_of_the_table_with_another_number_of_rows_is_not_done(client: HandMade) -> None:
    file = client.file(1, 2)
    assert _status(client, client.append(file)) == 200
    client.load()
    assert _status(client, client.append(client.file(1, 2, path=file.file_path, record_count=3))) == UNKNOWN


def test_the_rows_of_a_commit_that_the_ledger_has_forgotten_do_not_come_back(
    client: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = client.append(client.file(1, 2))
    assert _status(client, request) == 200
    client.catalog.lake.table(client.table).delete_where("id < 3")
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 3_700 * 10**9)
    for number in (50, 51):  # the ledger forgets with a commit
        assert _status(client.load(), client.append(client.file(number))) == 200
    assert _status(client, request) == UNKNOWN
    assert client.ids() == [50, 51]


def test_a_table_that_was_created_with_its_rows_is_the_requests_own_under_any_id(tmp_path: Path) -> None:
    with writing_catalog(tmp_path) as catalog:
        staged = catalog.create("demo", name="r", schema=SCHEMA, **{"stage-create": True}).json()["metadata"]
        client = HandMade(catalog, "demo.r", metadata=staged)
        file = client.file(1, 2)

        def request() -> Request:
            updates, _ = client.append(file, snapshot_id=fresh_id())
            made = [
                {"action": "assign-uuid", "uuid": staged["table-uuid"]},
                {"action": "add-schema", "schema": staged["schemas"][-1]},
                {"action": "set-current-schema", "schema-id": -1},
            ]
            return [*made, *updates], [{"type": "assert-create"}]

        assert _status(client, request()) == 200
        assert _status(client, request()) == 200
        assert client.ids() == [1, 2]


def test_a_second_instance_of_a_kafka_connector_does_not_double_the_rows_of_the_first(client: HandMade) -> None:
    zombie = HandMade(client.catalog, client.table)
    words = {OFFSETS: '{"0":100,"1":7}', "kafka.connect.commit-id": "x"}
    late = zombie.append(zombie.file(1, 2), **words)
    assert _status(client, client.append(client.file(1, 2), **words)) == 200
    assert problem(client.catalog.commit(client.table, *late))[0] == 409, "it compares offsets when it has reloaded"
    zombie.load()
    for offsets in ('{"0":100,"1":7}', '{"0":50,"1":8}'):
        assert _status(zombie, zombie.append(zombie.file(1, 2), **{OFFSETS: offsets})) == 400
    assert _status(zombie, zombie.append(zombie.file(3), **{OFFSETS: '{"0":100,"1":8}'})) == 200
    assert client.ids() == [1, 2, 3]


async def test_a_small_commit_does_not_wait_while_a_large_manifest_is_decoded() -> None:
    commits, large = CommitsAtOnce(), SMALL_BYTES + 1
    async with commits.turn(ONE, large), commits.turn(ONE, SMALL_BYTES):
        for table, size in ((OTHER, large), (OTHER, 1_000)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), commits.turn(table, size):
                    pass


async def test_many_large_commits_to_one_table_delay_that_of_another_table_by_one_only() -> None:
    commits, order = CommitsAtOnce(), []

    async def commit(table: TableName) -> None:
        async with commits.reading.of(table), commits.large.of(table):
            await asyncio.sleep(0)
            order.append(table)

    async with commits.large.of(ONE):
        tasks = [asyncio.create_task(commit(table)) for table in (*[ONE] * 2 * READ_AT_ONCE, OTHER)]
        for _ in range(10):
            await asyncio.sleep(0)  # all of them wait
    await asyncio.gather(*tasks)
    assert order.index(OTHER) <= 1
    assert len(order) == 2 * READ_AT_ONCE + 1
