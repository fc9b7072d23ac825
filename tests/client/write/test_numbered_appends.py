"""Appends under a writer and a number, which a program may repeat after it restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rootline.client import new_files
from rootline.client.lake import Lake
from rootline.client.producer import await_verdict
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.hosting.on_demand import LogOnDemand
from rootline.ports.intent_log import NewRecord
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import Verdict

ROWS = {"id": [1, 2], "carrier": ["UA", None]}
NIGHTLY: dict[str, Any] = {"writer_id": "nightly", "writer_sequence": 20130131}


def test_an_append_that_a_restarted_program_repeats_adds_its_rows_once(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        first = lake.create_table("demo.flights", {"id": "long", "carrier": "string"}).append(ROWS, **NIGHTLY)
    with connect(tmp_path / "lake") as lake:
        flights = lake.table("demo.flights")
        flights.append({"id": [3]}, writer_id="nightly", writer_sequence=20130201)
        again = flights.append(ROWS, **NIGHTLY)
        assert flights.scan().count() == 3
    assert (first.is_new, first.added_rows) == (True, 2)
    assert (again.version, again.snapshot_id, again.is_new) == (first.version, first.snapshot_id, False)
    assert (again.added_rows, again.deleted_rows) == (0, 0)


@pytest.fixture
def lossy_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log appends each record, and loses its first answer to each call."""
    publish, lost = LogOnDemand.publish_many, set[tuple[NewRecord, ...]]()

    async def publish_and_lose(self: LogOnDemand, records: Sequence[NewRecord], **named: Any) -> list[LogPosition]:
        positions = await publish(self, records, **named)
        if tuple(records) in lost:
            return positions
        lost.add(tuple(records))
        raise OutcomeUnknown("publish-unknown", "the answer was lost")

    monkeypatch.setattr(LogOnDemand, "publish_many", publish_and_lose)


@pytest.mark.usefixtures("lossy_log")
@pytest.mark.parametrize("properties", [{}, {"rootline.append.leaf-files": "1"}])
@pytest.mark.parametrize("rows", [ROWS, {**ROWS, "gate": ["B7", "B8"]}])
def test_an_append_that_was_sent_twice_is_new_and_its_repetition_is_not(
    lake: Lake, properties: dict[str, str], rows: dict[str, Any]
) -> None:
    table = lake.create_table("demo.t", {"id": "long", "carrier": "string"}, properties=properties)
    first, again = (table.append(rows, merge_schema=True, **NIGHTLY) for _ in range(2))
    assert (first.is_new, first.added_rows, again.is_new, again.added_rows) == (True, 2, False, 0)
    assert again.version == first.version
    assert table.scan().count() == 2


def test_an_append_whose_outcome_was_unknown_is_repeated_safely(flights: TableHandle) -> None:
    with pytest.raises(OutcomeUnknown):
        flights.append(ROWS, timeout_s=0, **NIGHTLY)
    flights.append(ROWS, **NIGHTLY)
    assert flights.scan().count() == 2


def test_numbers_are_counted_for_each_table_and_each_writer(lake: Lake, flights: TableHandle) -> None:
    planes = lake.create_table("demo.planes", {"id": "long"})
    for table in (flights, planes):
        for writer in ("a", "b"):
            assert table.append({"id": [1]}, writer_id=writer, writer_sequence=0).is_new
    assert (flights.scan().count(), planes.scan().count()) == (2, 2)


def test_a_number_is_not_used_for_other_rows(flights: TableHandle) -> None:
    flights.append(ROWS, **NIGHTLY)
    with pytest.raises(Invalid) as caught:
        flights.append({"id": [1, 2, 3]}, **NIGHTLY)
    assert caught.value.code == "sequence-reused"
    assert flights.scan().count() == 2


def test_a_repeated_append_adds_its_columns_and_rows_once(flights: TableHandle) -> None:
    wider = [{"id": 1, "gate": "B7"}]
    first = flights.append(wider, merge_schema=True, **NIGHTLY)
    again = flights.append(wider, merge_schema=True, **NIGHTLY)
    assert (first.is_new, again.is_new, again.version) == (True, False, first.version)
    assert flights.scan().to_arrow().column("gate").to_pylist() == ["B7"]


def test_an_append_that_was_refused_is_repeated_under_its_number(flights: TableHandle) -> None:
    with pytest.raises(Invalid):
        flights.append({"id": [1], "gate": ["B7"]}, **NIGHTLY)
    assert flights.append(ROWS, **NIGHTLY).is_new


def test_an_append_without_rows_does_not_use_its_number(flights: TableHandle) -> None:
    assert not flights.append([], **NIGHTLY).is_new
    assert flights.append(ROWS, **NIGHTLY).is_new


def test_an_old_append_whose_version_is_no_longer_recorded_is_answered_with_the_newest(
    flights: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgotten(*given: Any, **named: Any) -> Verdict:
        verdict = await await_verdict(*given, **named)
        return verdict.model_copy(update={"version": None, "snapshot_id": None})

    flights.append(ROWS, **NIGHTLY)
    flights.append({"id": [3]})
    with monkeypatch.context() as changed:
        changed.setattr(new_files, "await_verdict", forgotten)
        again = flights.append(ROWS, **NIGHTLY)
    assert (again.version, again.is_new) == (flights.head().version, False)


def test_coroutines_number_their_appends_too(lake: Lake, flights: TableHandle) -> None:
    async def twice() -> list[bool]:
        table = lake.async_table(flights.name)
        return [(await table.append(ROWS, **NIGHTLY)).is_new for _ in range(2)]

    assert asyncio.run(twice()) == [True, False]
    assert flights.scan().count() == 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"writer_id": "nightly"}, "need each other"),
        ({"writer_sequence": 1}, "need each other"),
        ({"writer_id": "", "writer_sequence": 1}, "1 to 256 characters"),
        ({"writer_id": "process/mine", "writer_sequence": 1}, "choose another"),
        ({"writer_id": "nightly", "writer_sequence": -1}, "give 0 or more"),
    ],
)
def test_a_pair_that_cannot_be_one_is_refused(flights: TableHandle, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        flights.append(ROWS, **given)
    assert caught.value.code == "setting-invalid"
    assert flights.scan().count() == 0
