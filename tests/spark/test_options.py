"""Options are known, of the right form and meant for what is done, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rootline.client.time_travel import PointInTime
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Isolation
from rootline.spark.options import OnRejected, Use, parse_options

PLACE = {"path": "demo.flights", "warehouse": "/lake"}


def test_the_case_of_names_does_not_matter_and_defaults_stand_behind() -> None:
    options = parse_options({**PLACE, "VERSIONASOF": "3", "Columns": " carrier, delay,carrier "}, {})
    assert (options.table, options.warehouse, options.log) == ("demo.flights", "/lake", None)
    assert options.point == PointInTime(version=3)
    assert options.columns == ("carrier", "delay")
    assert (options.verdict_timeout_ms, options.target_file_size_bytes) == (60_000, 128 * 1024 * 1024)
    assert (options.on_rejected, options.isolation) == (OnRejected.FAIL, Isolation.SERIALIZABLE)


def test_the_environment_stands_behind_the_options() -> None:
    variables = {"ROOTLINE_WAREHOUSE": "/other", "ROOTLINE_LOG": "sqlite:///log"}
    options = parse_options({"path": "demo.flights"}, variables)
    assert (options.warehouse, options.log) == ("/other", "sqlite:///log")
    assert parse_options(PLACE, variables).warehouse == "/lake"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colums": "a"}, "option 'colums' does not exist; write 'columns'"),
        ({"zzz": "a"}, "option 'zzz' does not exist; the options are path, warehouse"),
        ({"provider": "rootline", "owner": "me"}, "makes a table that Spark cannot read: create a temporary view"),
        ({"versionAsOf": "three"}, "option 'versionAsOf' is 'three'; it must be a whole number"),
        ({"versionAsOf": "-1"}, "option 'versionAsOf' is '-1'"),
        ({"versionAsOf": "1", "snapshotId": "2"}, "exclude each other"),
        ({"versionAsOf": "1", "tag": "release"}, "exclude each other"),
        ({"columns": " , "}, "option 'columns' names no column"),
        ({"timestampAsOf": "2013-01-31 12:00:00"}, "as in 2013-01-31T12:00:00Z"),
        ({"timestampAsOf": "yesterday"}, "option 'timestampAsOf' is 'yesterday'"),
        ({"onRejected": "ignore"}, "option 'onRejected' is 'ignore'; it must be 'fail' or 'deadLetter'"),
        ({"isolationLevel": "none"}, "it must be 'snapshot' or 'serializable'"),
        ({"pushFilters": "maybe"}, "it must be 'true' or 'false'"),
        ({"verdictTimeoutMs": "0"}, "option 'verdictTimeoutMs' is 0; it must be at least 1"),
        ({"warehouse": ""}, "no warehouse"),
        ({"path": "flights"}, "flights"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_options({**PLACE, **given}, {})
    assert said in refused.value.message


def test_a_relative_warehouse_is_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("lake", "./lake"):
        assert parse_options({**PLACE, "warehouse": given}, {}).warehouse == str(tmp_path / "lake")
    for given in ("s3://lake/tables", "s3a://lake/tables"):
        assert parse_options({**PLACE, "warehouse": given}, {}).warehouse == "s3://lake/tables"


def test_options_that_spark_adds_to_a_stream_are_no_error() -> None:
    given = {**PLACE, "queryname": "nightly", "checkpointlocation": "/checkpoints"}
    assert parse_options(given, {}).checked_for(Use.STREAM_WRITE).table == "demo.flights"


def test_without_a_table_the_message_says_how_to_name_one() -> None:
    with pytest.raises(Invalid, match=re.escape("load('namespace.table')")):
        parse_options({"warehouse": "lake"}, {})


def test_a_moment_is_milliseconds_or_iso_8601_with_its_offset() -> None:
    for text in ("1359633600000", "2013-01-31T12:00:00Z", "2013-01-31T07:00:00-05:00"):
        assert parse_options({**PLACE, "timestampAsOf": text}, {}).point.timestamp == 1_359_633_600_000


@pytest.mark.parametrize(
    ("use", "given", "said"),
    [
        (Use.READ, {"writerId": "a"}, "option 'writerId' has no meaning for a read: leave it out"),
        (Use.BATCH_WRITE, {"versionAsOf": "1"}, "option 'versionAsOf' has no meaning for a batch write: leave it out"),
        (Use.BATCH_WRITE, {"writerId": "a"}, "need each other"),
        (Use.BATCH_WRITE, {"writerSequence": "1"}, "need each other"),
        (
            Use.STREAM_WRITE,
            {"writerId": "a", "writerSequence": "1"},
            "has no meaning for a stream, which counts by its batch id",
        ),
    ],
)
def test_an_option_that_has_no_meaning_here_is_refused(use: Use, given: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_options({**PLACE, **given}, {}).checked_for(use)
    assert said in refused.value.message
