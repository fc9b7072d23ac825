"""Records on topics that steer coordinators: whatever is written there, what can be read still counts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from rootline.adapters.kafka.control_records import SKIPPED
from rootline.adapters.kafka.frontier_codec import (
    ANSWERS_MAX,
    AnswerRecord,
    ParkingRecord,
    lake_outgoing,
    lift_outgoing,
    next_parking_record,
    next_record,
    outgoing,
    parking_outgoing,
    pause_outgoing,
)
from rootline.adapters.kafka.frontiers import FrontierReading, Recorded, frontier_record
from rootline.adapters.kafka.membership import upgrade_outgoing
from rootline.adapters.kafka.parked_topic import parked_header_of
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedRun, ParkedTable, Pause, RecordedRejection
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.identifiers import LogId, LogPosition, TableName

SETTINGS = KafkaSettings()
LOG = LogId("cluster/topic")
TABLE = TableName("a.b")
ANSWER = RecordedRejection(LogPosition(LOG, 0, 7), "table-unknown", "there is no table a.b", TABLE)
ANSWERS = AnswerRecord(LOG, 0, "one", 4, {7: ANSWER})
PARKED = ParkedTable(TABLE, LOG, 0, 9, 5, "slow", 3, 2, 20, 1, (ParkedRun("one", 0, 1),))
NAMES = ParkingRecord(LOG, 0, "one", 4, {TABLE: PARKED}, began=True)
LIFTED = Lift(TABLE, LOG, 0, without_missing=True, first_offset=3, name="x")
PAUSE = Pause(TABLE, 5, "an operator")
GOOD = (
    frontier_record(SETTINGS, LOG, 0, 6),
    outgoing(SETTINGS, ANSWERS),
    parking_outgoing(SETTINGS, NAMES),
    lift_outgoing(SETTINGS, LIFTED),
    upgrade_outgoing(SETTINGS, LOG),
    pause_outgoing(SETTINGS, PAUSE),
)


def key(*parts: object) -> bytes:
    return json.dumps(parts).encode()


GROUP = SETTINGS.group_id
_ROW = b'{"table":"a.b","next":1,"since":1,"why":"x","first":1,"records":1,"bytes":1,"oldest":1,"runs":[]}'
HOSTILE: list[tuple[bytes | None, bytes]] = [
    (b"[" * 100_000, b"{}"),
    (None, b"{}"),
    (b"\xff", b"{}"),
    (b"{}", b"{}"),
    (b"[]", b"{}"),
    (b"1" * 20_000, b"{}"),
    (key(GROUP, LOG), b"{}"),
    (key(GROUP, LOG, -1), b'{"next-offset":1}'),
    (key(GROUP, LOG, True), b'{"next-offset":1}'),
    (key(GROUP, LOG, 0), b"[" * 100_000),
    (key(GROUP, LOG, 0), b'{"next-offset":1e999}'),
    (key(GROUP, LOG, 0), b'{"next-offset":' + b"9" * 30 + b"}"),
    (key(GROUP, LOG, 0), b"{" + b" " * 1_100_000 + b"}"),
    (key(GROUP, LOG, "upgraded"), b"[]"),
    (key(GROUP, LOG, "upgraded"), b""),
    (key(GROUP, LOG, 0, "parked", "n"), _ROW),
    (key(GROUP, LOG, 0, "parked", "n"), b'{"epoch":1,"tables":[' + _ROW.replace(b'"next":1', b'"next":1e999') + b"]}"),
    (key(GROUP, LOG, 0, "parked", "n"), b'{"epoch":Infinity,"tables":[]}'),
    (key(GROUP, LOG, 0, "parked", "n"), b'{"epoch":1,"tables":[1]}'),
    (key(GROUP, LOG, 0, "parked", "n"), b"[]"),
    (key(GROUP, LOG, 0, "parked", "n"), b'{"epoch":1,"tables":[' + _ROW.replace(b"[]", b"[[1]]") + b"]}"),
    (key(GROUP, LOG, 0, "parked", "n"), b'{"epoch":1,"tables":[' + _ROW.replace(b"a.b", b"\\ud800") + b"]}"),
    (key(GROUP, LOG, 0, "parked"), b'{"epoch":1,"tables":[]}'),
    (key(GROUP, LOG, 0, "answers", "n"), b'{"epoch":1e999,"runs":[]}'),
    (key(GROUP, LOG, 0, "answers", "n"), b'{"epoch":1,"runs":[],"tables":[]}'),
    (key(GROUP, LOG, 0, "answers", "n"), b'{"epoch":1,"runs":[],"tables":{"a.b":["xy"]}}'),
    (key(GROUP, LOG, 0, "answers", "n"), b'{"epoch":1,"runs":[[5,4,"c","m"]]}'),
    (key(GROUP, LOG, 0, "answers", "n"), b'{"epoch":1,"runs":[[0,9,"c","m"],[9,9,"c","m"]]}'),
    (key(GROUP, LOG, 0, "answers", "n"), b'{"epoch":1,"runs":[[0,10000000000,"c","m"]],"tables":{}}'),
    (key(GROUP, LOG, [0], "answers", "n"), b'{"epoch":1,"runs":[],"tables":{}}'),
    (key(GROUP, LOG, 0, "lift", "a.b"), b"[]"),
    (key(GROUP, LOG, 0, "lift", "a.b", "c", "d"), b"{}"),
    (f'["{GROUP}","{LOG}",1e999,"lift","a.b"]'.encode(), b"{}"),
]


def reading(*records: Outgoing | tuple[bytes | None, bytes | None]) -> FrontierReading:
    made = FrontierReading(GROUP, LOG)
    for offset, held in enumerate(records):
        of, value = (held.key, held.value) if isinstance(held, Outgoing) else held
        made.take(SimpleNamespace(topic="frontiers", partition=0, offset=offset, key=of, value=value))
    return made


def told(recorded: Recorded) -> tuple[Any, ...]:
    return (
        recorded.frontiers,
        recorded.answers,
        recorded.parked,
        recorded.lifts,
        recorded.is_upgraded,
        recorded.pauses,
    )


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_record_that_cannot_be_read_is_skipped_and_the_others_count(hostile: tuple[bytes | None, bytes]) -> None:
    before = SKIPPED.labels("frontiers")._value.get()
    found = reading(*GOOD, hostile).recorded()
    assert SKIPPED.labels("frontiers")._value.get() == before + 1
    assert told(found) == ({0: 6}, (ANSWERS,), (NAMES,), (LIFTED,), True, (PAUSE,))


@pytest.mark.parametrize("good", GOOD)
def test_under_the_key_of_a_readable_record_the_readable_one_still_counts(good: Outgoing) -> None:
    found = reading(*GOOD, (good.key, b"[" * 100_000)).recorded()
    pauses = (PAUSE,) if b"paused" not in (good.key or b"") else (Pause(TABLE, 0, "its record cannot be read"),)
    assert told(found) == ({0: 6}, (ANSWERS,), (NAMES,), (LIFTED,), True, pauses)


def test_a_record_of_another_group_or_log_costs_no_more_than_its_key() -> None:
    run = b'{"epoch":1,"runs":[],"tables":{"a.b":[[0,10000000000]]}}'
    found = reading((key("other", LOG, 0, "answers", "n"), run), (key(GROUP, "other/log", 0, "answers", "n"), run))
    assert found.recorded() == Recorded({}, ())


def test_a_table_of_many_offsets_is_looked_up_and_never_spelled_out() -> None:
    spans = b'{"epoch":1,"runs":[[3,4,"c","m"]],"tables":{"a.b":[[0,10000000000]]}}'
    (found,) = reading((key(GROUP, LOG, 0, "answers", "n"), spans)).recorded().answers
    assert dict(found.answers) == {
        offset: RecordedRejection(LogPosition(LOG, 0, offset), "c", "m", TABLE) for offset in (3, 4)
    }


def test_many_records_of_one_epoch_take_the_memory_of_two() -> None:
    def runs(number: int, first: int, last: int) -> tuple[bytes, bytes]:
        body = f'{{"epoch":1,"runs":[[{first},{last},"c","m"]],"tables":{{}}}}'
        return key(GROUP, LOG, 0, "answers", f"n{number}"), body.encode()

    full, more, newest = runs(1, 0, ANSWERS_MAX - 1), runs(2, 0, ANSWERS_MAX - 1), runs(3, 2**40, 2**40)
    one, two = reading(full, newest).recorded().answers, reading(full, more, newest).recorded().answers
    assert next_record(one, LOG, 0, "next", 2**40)[0].answers.keys() == {2**40}
    assert next_record(two, LOG, 0, "next", 2**40)[0].answers.keys() == set()


def test_what_cannot_be_read_is_logged_in_one_line_with_its_coordinates() -> None:
    with structlog.testing.capture_logs() as lines:
        found = reading(*HOSTILE)
        found.skipped.log()
        found.skipped.log()
    (line,) = lines
    assert (line["action"], line["records"], len(line["first"])) == ("control-records-skipped", len(HOSTILE), 5)
    assert line["first"][0].startswith("frontiers/0/0 (key b'[[[")


def test_where_names_or_answers_cannot_be_read_the_partition_is_doubted_until_a_tombstone_or_a_newer_record() -> None:
    names = parking_outgoing(SETTINGS, NAMES)
    damaged = (names.key, b"?")
    assert reading(names, damaged).recorded().is_unread(0, "parked")
    assert not reading(names, damaged).recorded().is_unread(0, "answers")
    assert not reading(names, damaged).recorded().is_unread(1)
    assert not reading(names, damaged, names).recorded().unread
    assert reading(names, damaged, (names.key, None)).recorded() == Recorded({}, ())


def test_the_next_owner_of_a_doubted_partition_is_ahead_of_an_owner_whose_record_was_not_read() -> None:
    unread_epoch = 900
    mine, _ = next_parking_record([NAMES], LOG, 0, "next", step=1_000_000)
    late = ParkingRecord(LOG, 0, "unread", unread_epoch, {}, began=True)
    assert next_parking_record([late, mine], LOG, 0, "third")[0].tables == {TABLE: PARKED}


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'["g","w",1e999,"a.b","l",0,0,0,true]',
        b'["g","w",0,"a.b","l",[0],0,0,true]',
        b'["g","w",0,["a.b"],"l",0,0,0,true]',
        b"[]",
        b"{}",
        None,
    ],
)
def test_a_parked_record_whose_header_cannot_be_read_is_passed_over(header: bytes | None) -> None:
    assert parked_header_of([("own", b"1"), ("rootline.parked", header)]) is None


def test_the_first_lake_that_a_group_named_counts_until_it_is_taken_back() -> None:
    wrong, right = Lake("a" * 32, "s3://wrong"), Lake("b" * 32, "s3://right")
    said = [lake_outgoing(SETTINGS, wrong), lake_outgoing(SETTINGS, right), lake_outgoing(SETTINGS, wrong)]
    assert reading(*said).recorded().lake == wrong
    assert reading(*said, (said[0].key, None)).recorded().lake == right
    assert reading(said[0], (said[0].key, None)).recorded().lake is None
