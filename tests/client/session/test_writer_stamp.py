"""The pair of writer and sequence that makes a retry safe."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from rootline.client.session import WriterStamp
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, Intent, IntentKind


def _intent(table: str = "demo.flights") -> Intent:
    file = DataFile(location="data/a.parquet", record_count=1, file_size_in_bytes=10)
    return Intent(intent_id="i", table=table, kind=IntentKind.APPEND, add_data_files=(file,))


def test_a_minted_writer_counts_each_table_from_zero() -> None:
    stamp = WriterStamp()
    first, second, other = stamp.stamp(_intent()), stamp.stamp(_intent()), stamp.stamp(_intent("demo.planes"))
    assert [first.writer_sequence, second.writer_sequence, other.writer_sequence] == [0, 1, 0]
    assert first.writer_id is not None
    assert first.writer_id.startswith("process/")


def test_two_minted_writers_never_share_an_id() -> None:
    assert WriterStamp().stamp(_intent()).writer_id != WriterStamp().stamp(_intent()).writer_id


def test_many_threads_never_get_one_number_twice() -> None:
    stamp = WriterStamp()
    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(lambda _: stamp.stamp(_intent()).writer_sequence, range(500)))
    assert sorted(number for number in numbers if number is not None) == list(range(500))


def test_a_stamped_intent_keeps_its_pair() -> None:
    stamp = WriterStamp()
    stamped = stamp.stamp(_intent())
    assert stamp.stamp(stamped) is stamped


def test_a_supplied_writer_must_count() -> None:
    with pytest.raises(Invalid, match="writer_sequence=n") as caught:
        WriterStamp("ingest-7").stamp(_intent())
    assert caught.value.code == "setting-invalid"
    assert WriterStamp("ingest-7").stamp(_intent(), 41).writer_sequence == 41


def test_a_minted_writer_counts_by_itself_only() -> None:
    with pytest.raises(Invalid, match="writer_id"):
        WriterStamp().stamp(_intent(), 3)


def test_an_intent_of_another_writer_is_refused_by_a_supplied_one() -> None:
    stamped = WriterStamp("other").stamp(_intent(), 3)
    with pytest.raises(Invalid, match="carries writer 'other'"):
        WriterStamp("ingest-7").stamp(stamped)


@pytest.mark.parametrize("writer_id", ["", "x" * 257, "process/mine", "rest/7"])
def test_an_id_that_the_ledger_would_misread_is_refused(writer_id: str) -> None:
    with pytest.raises(Invalid):
        WriterStamp(writer_id)


@pytest.mark.parametrize("sequence", [-1, 2**63])
def test_a_sequence_outside_its_range_is_refused(sequence: int) -> None:
    with pytest.raises(Invalid, match=r"writer_sequence .*: give one from 0 to 2"):
        WriterStamp("ingest-7").stamp(_intent(), sequence)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_under_an_id_of_its_own() -> None:
    stamp = WriterStamp()
    ours = stamp.stamp(_intent()).writer_id or ""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        stamped = stamp.stamp(_intent())
        os.write(writing, f"{stamped.writer_id} {stamped.writer_sequence}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    theirs, number = os.read(reading, 1000).decode().split()
    os.close(reading)
    assert theirs != ours
    assert number == "0"


def test_an_intent_with_a_process_id_that_no_producer_made_is_refused() -> None:
    with pytest.raises(Invalid, match="made by Rootline and expire") as caught:
        WriterStamp().stamp(_intent().model_copy(update={"writer_id": "process/nightly", "writer_sequence": 0}))
    assert caught.value.code == "setting-invalid"
    minted = WriterStamp().stamp(_intent())
    assert WriterStamp().stamp(minted) is minted


def test_an_intent_with_the_id_of_a_client_is_refused_unless_it_states_the_client() -> None:
    intent = _intent().model_copy(update={"writer_id": "rest/7", "writer_sequence": 0})
    with pytest.raises(Invalid, match="rest/ or process/ are made by Rootline"):
        WriterStamp().stamp(intent)
    stated = intent.model_copy(update={"summary": {"rootline.client": "{}"}})
    assert WriterStamp().stamp(stated) is stated
