"""`rootline trace` on the embedded log: where an intent, a writer's sequence, or a file is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import VerdictKind
from tests.cli.conftest import Result, Run
from tests.support.small_intents import TABLE, adding, removing

SCHEMA = pa.schema([("id", pa.int64())])


class Lake:
    """A lake with the empty table `demo.flights`."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self._run = run
        with connect(folder) as lake:
            lake.create_table(TABLE, SCHEMA)

    def trace(self, *words: object) -> Result:
        return self._run("trace", *words, "--warehouse", self.folder)

    def one(self, *words: object) -> dict[str, Any]:
        """The one answer."""
        result = self.trace(*words, "--json")
        assert len(result.records) == 1, result.out + result.err
        record: dict[str, Any] = result.records[0]
        return record

    def commit(self, *intents: Intent) -> list[Any]:
        with connect(self.folder) as lake, lake.producer() as producer:
            return [producer.publish(intent).verdict(timeout_s=30) for intent in intents]

    def publish(self, value: bytes, key: bytes = TABLE.encode(), *, decide: bool) -> int:
        """The offset of a record that is no producer's."""

        async def operation(session: Any) -> int:
            position = await session.log.publish(key, value)
            if decide:
                assert await session.log.wait_verdict(position, timeout_s=30) is not None
            return int(position.offset)

        with connect(self.folder, coordinator="auto" if decide else "elsewhere") as lake:
            return lake.holder.run(operation)

    def table(self) -> TableHandle:
        return connect(self.folder, coordinator="elsewhere").table(TABLE)


@pytest.fixture
def lake(tmp_path: Path, run: Run) -> Lake:
    return Lake(tmp_path / "lake", run)


def json_of(intent: Intent) -> bytes:
    return intent.model_dump_json(exclude_defaults=True).encode()


def test_a_committed_intent_is_told_with_its_version_and_place(lake: Lake) -> None:
    _, verdict = lake.commit(adding("one"), adding("two", writer_id="w", writer_sequence=7))

    found = lake.one("--intent", "two")

    assert found["state"] == "committed"
    assert (found["version"], found["snapshot_id"], found["sequence_number"]) == (
        verdict.version,
        verdict.snapshot_id,
        verdict.sequence_number,
    )
    assert (found["partition"], found["offset"], found["log"]) == (0, verdict.offset, verdict.log)
    assert (found["writer_id"], found["writer_sequence"], found["kind"]) == ("w", 7, "append")
    assert found["committed_at"] >= found["appended_at"]
    text = lake.trace("--intent", "two", "--table", TABLE)
    assert text.code == 0
    assert f"committed: {TABLE}; version {verdict.version}, snapshot {verdict.snapshot_id}" in text.out


def test_a_writers_sequence_is_answered_by_the_ledger_without_the_log(lake: Lake) -> None:
    first, *_ = lake.commit(*(adding(f"f-{n}", writer_id="ingest-7", writer_sequence=n) for n in range(3)))
    (lake.folder / ".rootline" / "log.sqlite").touch()

    found = lake.one("--writer", "ingest-7", "--sequence", 0, "--table", TABLE)

    assert (found["state"], found["source"], found["version"]) == ("committed", "ledger", first.version)
    assert found["snapshot_id"] == first.snapshot_id
    nobody = lake.trace("--writer", "ingest-7", "--sequence", 3, "--table", TABLE, "--json")
    assert (nobody.code, nobody.records) == (1, [{"state": "nowhere", "records_searched": 4, "whole_log": True}])


def test_an_intent_that_nobody_decided_yet_is_pending_at_its_place(lake: Lake) -> None:
    offset = lake.publish(json_of(adding("one")), decide=False)

    found = lake.trace("--intent", "one", "--json")

    assert found.code == 0
    (record,) = found.records
    assert (record["state"], record["offset"], record["applied_to"]) == ("pending", offset, offset)
    assert "committed_at" not in record


def test_a_rejected_intent_is_told_with_its_reason_and_its_dead_letter(lake: Lake) -> None:
    (verdict,) = lake.commit(removing("nothing"))
    assert verdict.kind is VerdictKind.REJECTED

    result = lake.trace("--intent", "no-nothing", "--json")

    assert result.code == 1
    (found,) = result.records
    assert (found["state"], found["code"], found["dead_letter"]) == (
        "rejected",
        "file-not-live",
        f"0/{verdict.offset}",
    )
    assert f"`rootline dlq show 0/{verdict.offset}`" in lake.trace("--intent", "no-nothing").out


def test_a_repetition_is_a_duplicate_of_the_version_that_has_it(lake: Lake) -> None:
    first, again = lake.commit(*[adding("one", writer_id="w", writer_sequence=0)] * 2)

    found = lake.one("--intent", "one")

    assert (found["state"], found["offset"], found["version"]) == ("duplicate", again.offset, first.version)


def test_without_a_writer_a_repetition_does_not_hide_the_commit(lake: Lake) -> None:
    offsets = [lake.publish(json_of(adding("one")), decide=True) for _ in range(2)]

    found = lake.trace("--intent", "one", "--json")

    assert [(record["state"], record["offset"]) for record in found.records] == [
        ("rejected", offsets[1]),
        ("committed", offsets[0]),
    ]
    assert found.code == 0


def test_a_rejected_sequence_that_was_filled_later_is_committed_and_one_that_was_not_tells_every_reason(
    lake: Lake,
) -> None:
    refused = removing("nothing").model_copy(update={"writer_id": "w", "writer_sequence": 5})
    lake.commit(refused, refused.model_copy(update={"writer_sequence": 6, "intent_id": "another"}))
    filled = lake.commit(adding("one", writer_id="w", writer_sequence=5))[0]

    assert lake.one("--writer", "w", "--sequence", 5, "--table", TABLE)["version"] == filled.version
    words = ("--writer", "w", "--sequence", 6, "--table", TABLE)
    told = lake.one(*words)
    assert (told["state"], told["source"], told["intent_id"]) == ("rejected", "verdict", "another")
    remembered = lake.one(*words, "--limit", 1)
    assert (remembered["state"], remembered["source"], remembered["code"]) == ("rejected", "ledger", "file-not-live")


def test_a_live_file_is_told_from_the_table_however_it_is_named(lake: Lake) -> None:
    lake.commit(adding("zero"), adding("one"))
    location = "data/one.parquet"
    expected = ("live", TABLE, location, 2)

    for named in (location, f"demo/flights/{location}", f"s3://bucket/prefix/demo/flights/{location}"):
        for words in ((), ("--table", TABLE)):
            found = lake.one("--file", named, *words)
            assert (found["state"], found["table"], found["location"], found["version"]) == expected
    assert found["sequence_number"] == 3
    assert lake.trace("--file", location).code == 0


def test_a_file_that_is_gone_is_told_with_the_version_that_removed_it(lake: Lake) -> None:
    lake.commit(adding("one"), adding("two"), adding("three"), removing("two"), adding("four"))

    found = lake.trace("--file", "data/two.parquet", "--json")

    assert found.code == 0
    assert [(record["state"], record["part"], record["version"]) for record in found.records] == [
        ("committed", "removes the file", 4),
        ("committed", "adds the file", 2),
    ]


def test_where_the_log_does_not_reach_the_versions_tell_when_a_file_went(lake: Lake) -> None:
    lake.commit(adding("one"), adding("two"), *(adding(f"f-{n}") for n in range(6)), removing("one"), adding("end"))

    found = lake.trace("--file", "data/one.parquet", "--limit", 1, "--json")

    assert found.code == 1
    (record,) = found.records
    assert (record["state"], record["version"], record["source"]) == ("removed", 9, "versions")
    lived = lake.trace("--file", "data/two.parquet", "--limit", 1, "--json")
    assert lived.records[0]["state"] == "live"


def test_an_undecodable_record_is_found_by_the_name_it_was_given(lake: Lake) -> None:
    offset = lake.publish(b"\x00 neither", decide=True)
    (listed,) = (lake._run("dlq", "list", "--warehouse", lake.folder, "--json")).records

    found = lake.one("--intent", listed["intent_id"])

    assert (found["state"], found["code"], found["dead_letter"]) == ("rejected", "undecodable", f"0/{offset}")


def test_an_intent_of_no_table_waits_or_was_rejected(lake: Lake) -> None:
    elsewhere = json_of(adding("one").model_copy(update={"table": "demo.nothing"}))
    lake.publish(elsewhere, b"demo.nothing", decide=False)
    assert lake.one("--intent", "one")["state"] == "pending"

    lake.publish(elsewhere, b"demo.nothing", decide=True)
    assert lake.one("--intent", "one", "--limit", 1)["code"] == "table-unknown"


def test_a_search_ends_at_its_limit_and_says_so(lake: Lake) -> None:
    lake.commit(*(adding(f"f-{n}") for n in range(5)))

    result = lake.trace("--intent", "f-0", "--limit", 3)
    assert result.code == 1
    assert (
        "no trace of intent f-0 in the tables and the newest 3 records; raise --limit or set --since earlier"
        in result.out
    )
    assert lake.trace("--intent", "f-0", "--since", "1h").code == 0
    assert lake.trace("--intent", "f-0", "--since", "2999-01-01T00:00:00Z").code == 1


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--intent", "a", "--file", "b"),
        ("--writer", "w", "--sequence", 1),
        ("--writer", "w", "--table", TABLE),
        ("--sequence", 1, "--table", TABLE),
        ("--intent", "a", "--since", "yesterday"),
        ("--intent", "a", "--table", "nonsense"),
    ],
)
def test_a_question_that_names_nothing_or_too_much_is_a_usage_error(lake: Lake, words: tuple[object, ...]) -> None:
    assert lake.trace(*words).code == 2


def test_tracing_changes_nothing(lake: Lake) -> None:
    lake.commit(adding("one"))
    before = {
        path: path.stat().st_mtime_ns for path in lake.folder.rglob("*") if path.suffix not in ("", ".sqlite-shm")
    }
    lake.trace("--intent", "one")
    lake.trace("--file", "data/none.parquet")
    after = {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*") if path.suffix not in ("", ".sqlite-shm")}
    assert {path for path in before if path.suffix != ".sqlite-wal"} == {
        path for path in after if path.suffix != ".sqlite-wal"
    }
    assert json.loads(json.dumps(lake.one("--intent", "one")))["state"] == "committed"
