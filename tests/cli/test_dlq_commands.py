"""`rootline dlq` on the embedded log: rejected intents listed, shown, and published again."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.connect import connect
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.client_commits import CLIENT, REFUSED
from rootline.schemas.verdict import Verdict
from tests.cli.conftest import Result, Run

SCHEMA = pa.schema([("id", pa.int64())])
_LEAF = {
    "location": "metadata/leaf.parquet",
    "content_type": 3,
    "file_size_in_bytes": 9,
    "record_count": 1,
    "partition_spec_id": 0,
}
_VECTOR = {
    "location": "metadata/dv.puffin",
    "offset": 4,
    "size_in_bytes": 9,
    "file_size_in_bytes": 20,
    "cardinality": 1,
    "referenced_file": "data/one.parquet",
}
MAINTENANCE: dict[str, dict[str, Any]] = {
    "flush": {"made_from_version": 0, "add_manifests": [_LEAF]},
    "compact_leaves": {"made_from_version": 0, "add_manifests": [_LEAF]},
    "convert_equality_deletes": {
        "made_from_version": 0,
        "read_sequence_number": 0,
        "remove_files": [{"location": "data/e.parquet", "content_type": 2}],
    },
    "compact_vectors": {"made_from_version": 0, "add_vectors": [_VECTOR]},
}


def append(name: str, **more: Any) -> dict[str, Any]:
    file = {"location": f"data/{name}.parquet", "record_count": 1, "file_size_in_bytes": 10}
    return {"intent_id": name, "table": "demo.later", "kind": "append", "add_data_files": [file], **more}


class Lake:
    """A lake without tables; `run(...)` a command on it."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self._run = run

    def run(self, *words: object) -> Result:
        return self._run(*words, "--warehouse", self.folder)

    def publish(self, *intents: dict[str, Any]) -> list[Any]:
        file = self.folder.parent / "intents.jsonl"
        file.write_text("\n".join(map(json.dumps, intents)))
        return self.run("publish", file, "--json").records

    def publish_bytes(self, value: bytes) -> Verdict:
        async def operation(session: Any) -> Verdict:
            position = await session.log.publish(b"demo.later", value)
            verdict: Verdict = await session.log.wait_verdict(position, timeout_s=30)
            return verdict

        with connect(self.folder) as lake:
            return lake.holder.run(operation)

    def create_table(self) -> None:
        with connect(self.folder) as lake:
            lake.create_table("demo.later", SCHEMA)

    def files(self) -> list[str]:
        with connect(self.folder) as lake:
            return sorted(task.location for task in lake.table("demo.later").scan().plan())


@pytest.fixture
def lake(tmp_path: Path, run: Run) -> Lake:
    folder = tmp_path / "lake"
    folder.mkdir()
    return Lake(folder, run)


def test_an_intent_that_was_rejected_is_replayed_once_however_often_it_is_replayed(lake: Lake) -> None:
    (rejected,) = lake.publish(append("one", writer_id="ingest-7", writer_sequence=3))
    assert (rejected["kind"], rejected["code"]) == ("rejected", "table-unknown")
    lake.create_table()
    place = f"0/{rejected['offset']}"

    first = lake.run("dlq", "replay", place, "--json")
    again = lake.run("dlq", "replay", "one", "--json")

    assert (first.code, again.code) == (0, 0)
    (committed,), (duplicate,) = first.records, again.records
    assert (committed["record"], committed["kind"], committed["version"]) == (place, "committed", 1)
    assert (duplicate["record"], duplicate["kind"], duplicate["version"]) == (place, "duplicate", 1)
    assert len({"one", committed["intent_id"], duplicate["intent_id"]}) == 3
    assert lake.files() == ["data/one.parquet"]
    assert lake.run("dlq", "replay", place).out == f"{place}: duplicate: demo.later has had it since version 1\n"


def test_without_a_writer_its_live_files_tell_a_repetition(lake: Lake) -> None:
    letter = lake.publish_bytes(json.dumps(append("one")).encode())
    lake.create_table()
    place = f"0/{letter.offset}"

    first, again = lake.run("dlq", "replay", place), lake.run("dlq", "replay", place)

    assert first.lines == [f"{place}: committed demo.later version 1 sequence number 2"]
    assert again.code == 1
    assert again.lines[0].startswith(f"{place}: rejected again: ")
    assert "[file-already-live]" in again.lines[0]
    assert lake.files() == ["data/one.parquet"]


def test_all_of_a_table_are_replayed_in_the_order_of_the_log_and_one_that_is_none_stops_no_other(lake: Lake) -> None:
    numbered = [append(f"f-{n}", writer_id="w", writer_sequence=n) for n in range(3)]
    lake.publish(*numbered[:2])
    undecodable = lake.publish_bytes(b"\x00\x01 neither Avro nor JSON")
    lake.publish(numbered[2], append("elsewhere", table="demo.other"))
    lake.create_table()

    result = lake.run("dlq", "replay", "--table", "demo.later", "--yes", "--json")

    assert result.code == 1
    assert [record["kind"] for record in result.records] == ["committed", "committed", "unreplayable", "committed"]
    numbers = [record["sequence_number"] for record in result.records if record["kind"] == "committed"]
    assert numbers == sorted(numbers)
    place = f"0/{undecodable.offset}"
    message = result.records[2]["message"]
    assert f"record {place} contains no intent that can be published" in message
    assert f"`rootline dlq show {place} --raw`" in message
    assert "`rootline publish`" in message
    only = lake.run("dlq", "replay", "--table", "demo.later", "--code", "undecodable", "--yes", "--json")
    assert [record["record"] for record in only.records] == [place]


def test_a_replay_that_is_rejected_again_says_why_and_ends_with_one(lake: Lake) -> None:
    (rejected,) = lake.publish(append("one"))
    result = lake.run("dlq", "replay", f"0/{rejected['offset']}")
    assert result.code == 1
    assert "rejected again: there is no table demo.later [table-unknown]" in result.out


def test_a_dry_run_says_what_would_be_published_and_publishes_nothing(lake: Lake) -> None:
    lake.publish(append("one", writer_id="w", writer_sequence=1))
    lake.publish_bytes(json.dumps(append("two")).encode())
    lake.create_table()

    result = lake.run("dlq", "replay", "--code", "table-unknown", "--dry-run")

    assert result.code == 0
    assert "would publish append of demo.later, writer w sequence 1; it was rejected with table-unknown" in result.out
    assert "no writer, so only the locations of its files show a repetition" in result.out
    assert lake.files() == []
    lake.publish_bytes(b"{")
    assert lake.run("dlq", "replay", "--table", "demo.later", "--dry-run", "--json").code == 1


@pytest.mark.parametrize("kind", ["flush", "compact_leaves", "compact_vectors", "convert_equality_deletes"])
def test_a_workers_intent_is_left_out_and_nothing_is_wrong_with_that(lake: Lake, kind: str) -> None:
    (rejected,) = lake.publish({"intent_id": "w", "table": "demo.later", "kind": kind, **MAINTENANCE[kind]})
    assert (rejected["kind"], rejected["code"]) == ("rejected", "table-unknown")

    result = lake.run("dlq", "replay", f"0/{rejected['offset']}", "--json")
    assert (result.code, [record["kind"] for record in result.records]) == (0, ["left-out"]), result.out
    assert "workers plan it again" in result.records[0]["message"]


@pytest.mark.parametrize(
    "changed",
    [
        {
            "intent_id": "request/plan",
            "summary": {CLIENT: '{"snapshots": [[7, "append"]], "digest": "%s"}' % ("ab" * 32)},
        },
        {"intent_id": "request", "summary": {REFUSED: "no"}, "add_data_files": []},
    ],
    ids=["commit", "refusal"],
)
def test_a_request_of_an_iceberg_client_is_left_out_because_its_files_may_be_deleted(
    lake: Lake, changed: dict[str, Any]
) -> None:
    item = append("one", writer_id="rest/7", writer_sequence=0) | changed
    letter = lake.publish_bytes(json.dumps(item).encode())
    lake.create_table()
    result = lake.run("dlq", "replay", f"0/{letter.offset}", "--json")
    assert (result.code, [record["kind"] for record in result.records]) == (0, ["left-out"]), result.out
    assert "let the client make a new commit" in result.records[0]["message"]
    assert lake.files() == []


def test_replaying_by_table_or_code_asks_first(lake: Lake) -> None:
    lake.publish(append("one"))
    result = lake.run("dlq", "replay", "--table", "demo.later")
    assert result.code == 2
    assert "1 dead letters are chosen: give --yes" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["replay"], "name what to replay"), (["replay", "0/7"], "0/7"), (["show", "nobody's"], "nobody's")],
)
def test_what_is_not_there_or_not_named_is_a_usage_error(lake: Lake, words: list[str], said: str) -> None:
    lake.publish(append("one"))
    result = lake.run("dlq", *words)
    assert result.code == 2
    assert said in result.err
    assert "rootline dlq list" in result.err


def test_the_list_shows_the_newest_and_every_letter_is_shown_whole(lake: Lake) -> None:
    lake.publish(*(append(f"f-{n}") for n in range(5)))

    listed = lake.run("dlq", "list", "--limit", 2, "--json").records
    assert [record["intent_id"] for record in listed] == ["f-3", "f-4"]
    (shown,) = lake.run("dlq", "show", "f-3", "--json").records
    assert decode_intent(shown["intent"].encode()).intent_id == "f-3"
    assert shown["headers"] == []


def test_a_lake_without_a_log_is_told_so_and_gets_none(lake: Lake) -> None:
    result = lake.run("dlq", "list")
    assert result.code == 3
    assert "there is no log" in result.err
    assert list(lake.folder.iterdir()) == []


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_who_is_asked_decides(lake: Lake, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    lake.publish(append("one", writer_id="w", writer_sequence=0))
    lake.create_table()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    result = lake.run("dlq", "replay", "--table", "demo.later")
    assert (result.code, "replay 1 dead letters?" in result.err) == (code, True)
    assert lake.files() == (["data/one.parquet"] if code == 0 else [])
