"""Commits of Iceberg clients: what a root lists of them, and how far their streaming jobs are."""

from __future__ import annotations

import dataclasses
import itertools
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rootline.schemas.bytes.root.header_codec import encode_header
from rootline.schemas.client_commits import CLIENT, REFUSED, ClientCommit, client_snapshots_in
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.parts.progress import ClientSnapshot, JobProgress
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.progress import JOBS_MAX, PROGRESS_BYTES_MAX, with_moved
from tests.tree.commit.test_order_of_steps import answer, lake_with_a_past
from tests.tree.intents.test_rewrite import rewrite
from tests.tree.tables import DEFINITION, append, codes, create, data_file, intent, kinds, new_lake, removed

HOUR_MS = 3_600_000


def words_of(snapshot_id: int, jobs: Mapping[str, str], snapshots: int = 1) -> dict[str, str]:
    """The words of a client whose `jobs` are at these steps."""
    made = tuple(ClientSnapshot(snapshot_id + number, "append") for number in range(snapshots))
    progress = {job: (f"{job}.step",) for job in jobs}
    steps = {f"{job}.step": step for job, step in jobs.items()}
    return {"engine": "flink", **steps, CLIENT: ClientCommit(made, "ab" * 32, progress).to_json()}


def commit(snapshot_id: int, read: int | None = None, snapshots: int = 1, name: str = "", /, **jobs: str) -> Intent:
    """A client's append of one file, made on sequence number `read`."""
    named = name or f"c{snapshot_id}"
    return append(
        named,
        writer_id=f"rest/{snapshot_id}",
        writer_sequence=0,
        read_sequence_number=read,
        summary=words_of(snapshot_id, jobs, snapshots),
    )


def with_word(**members: object) -> Intent:
    """A client's append whose word has these members too, or whose intent does."""
    word = {"snapshots": [[7, "append"]], "digest": "ab" * 32}
    return append("c", writer_id="rest/7", writer_sequence=0, summary={CLIENT: json.dumps(word | members)})


def steps(header: RootHeader) -> dict[str, str]:
    """Job → its newest step, the job that was idle longest first."""
    return {job.identity: job.words[f"{job.identity}.step"] for job in header.progress}


def listed(header: RootHeader) -> list[int]:
    return [snapshot_id for snapshot_id, _ in client_snapshots_in(header.snapshot.summary)]


def test_two_jobs_in_one_root_are_both_remembered_and_the_summary_has_the_words_of_neither() -> None:
    lake = new_lake()
    read = lake.head.header.snapshot.sequence_number
    assert codes(lake.put(commit(7, read, a="1"), commit(8, read, b="1"), append("native"))) == [None] * 3
    header = lake.head.header
    assert header.progress == (
        JobProgress("a", SequenceNumber(read + 1), ClientSnapshot(7, "append"), {"a.step": "1"}),
        JobProgress("b", SequenceNumber(read + 2), ClientSnapshot(8, "append"), {"b.step": "1"}),
    )
    own = {key for key in header.snapshot.summary if not key.startswith(("added-", "total-"))}
    assert own == {"engine", "rootline.client-snapshots"}
    assert listed(header) == [7, 8]
    assert lake.reloaded().header == header


def test_all_snapshots_of_a_commit_are_listed_and_its_jobs_are_at_the_last_one() -> None:
    lake = new_lake()
    lake.put(commit(7, 1, 3, a="1", b="2"))
    assert listed(lake.head.header) == [7, 8, 9]
    assert [job.snapshot.snapshot_id for job in lake.head.header.progress] == [9, 9]


def test_a_snapshot_id_that_two_commits_of_a_root_state_is_listed_once() -> None:
    lake = new_lake()
    assert codes(lake.put(commit(7, 1, 3), commit(8, 1, 2))) == [None, None]
    assert listed(lake.head.header) == [7, 8, 9]


def test_a_job_that_moved_since_its_client_read_rejects_the_commit() -> None:
    lake = new_lake()
    read = lake.head.header.snapshot.sequence_number
    lake.put(commit(7, read, a="1"))
    assert codes(lake.put(commit(8, read, a="2"))) == ["progress-moved"]
    assert codes(lake.put(commit(9, read, b="1"))) == [None], "another job does not mind"
    assert codes(lake.put(commit(10, read + 1, a="2"))) == [None]
    assert steps(lake.head.header) == {"b": "1", "a": "2"}


def test_of_two_instances_of_a_job_in_one_batch_the_first_one_goes_on() -> None:
    lake = new_lake()
    read = lake.head.header.snapshot.sequence_number
    verdicts = lake.put(commit(7, read, a="1"), commit(8, read, a="1"), commit(9, read, a="2", b="1"))
    assert codes(verdicts) == [None, "progress-moved", "progress-moved"]
    assert listed(lake.head.header) == [7]
    assert steps(lake.head.header) == {"a": "1"}, "a rejected commit moves none of its jobs"
    [message] = {verdict.message for verdict in verdicts[1:]}
    assert message == (
        "demo.flights: job 'a' moved at sequence number 2, after 1, which its client read: reload the table, and "
        "continue after the job's newest commit"
    )


def test_a_copy_of_a_commit_is_a_duplicate_although_its_own_job_moved() -> None:
    lake = new_lake()
    first = commit(7, 1, a="1")
    assert kinds(lake.put(first, first)) == ["committed", "duplicate"]
    assert kinds(lake.put(commit(8, 2, a="2"), first)) == ["committed", "duplicate"]
    assert steps(lake.head.header) == {"a": "2"}


def test_a_copy_that_the_ledger_has_forgotten_is_recognized_by_its_files_before_its_job() -> None:
    lake = new_lake()
    first = commit(7, 1, a="1")
    lake.put(first)
    lake.now_ms += HOUR_MS + 60_000
    lake.put(append("later"))
    assert "rest/7" not in lake.head.header.ledger.writers
    assert codes(lake.put(first)) == ["file-already-live"]
    lake.now_ms += HOUR_MS + 60_000
    lake.put(rewrite(lake, "r", "data/c7.parquet", adds=(data_file("merged", rows=10),)))
    assert kinds(lake.put(replace_id(first, "again"))) == ["duplicate"]


def replace_id(item: Intent, intent_id: str) -> Intent:
    return item.model_copy(update={"intent_id": intent_id})


def test_a_job_that_moved_is_the_reason_before_the_age_of_the_files() -> None:
    lake = lake_with_a_past()
    assert answer(lake, commit(7, 1, a="1"), oldest_ms=lake.now_ms) == "committed"
    assert answer(lake, commit(8, 1, a="2")) == "progress-moved"
    assert answer(lake, commit(9, lake.head.header.snapshot.sequence_number, a="2")) == "expired"


@pytest.mark.parametrize("read", [None, 2, 2**63 - 1])
def test_a_commit_with_progress_says_what_its_client_read(read: int | None) -> None:
    lake = new_lake()
    assert codes(lake.put(commit(7, read, a="1"))) == ["version-unknown"]
    assert codes(lake.put(commit(8, read))) == [None], "one without progress has no need to"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (with_word(snapshots=[]), "no snapshot"),
        (with_word(snapshots=[[8, "append"]]), "is of writer 'rest/8' with sequence 0"),
        (with_word().model_copy(update={"writer_sequence": 1}), "'rest/7' with 1"),
        (with_word().model_copy(update={"writer_id": "ingest"}), "'ingest' with 0"),
        (with_word().model_copy(update={"writer_id": None, "writer_sequence": None}), "None with None"),
        (
            with_word().model_copy(
                update={"kind": IntentKind.REMOVE, "add_data_files": (), "remove_files": (removed("data/a.parquet"),)}
            ),
            "does not belong to an intent of kind remove",
        ),
        (with_word().model_copy(update={"summary": {"rootline.client-snapshots": "[]"}}), "is reserved"),
        (with_word().model_copy(update={"summary": {"rootline.client-x": "[]"}}), "is reserved"),
        (commit(7, 1, a="é" * 3_000), "job 'a' has 18019 bytes, at most 8192 are allowed"),
        (commit(7, 1, a="x" * 4_000), "more than 4096 characters"),
    ],
)
def test_a_commit_that_a_client_cannot_have_made_is_malformed(wrong: Intent, words: str) -> None:
    lake = new_lake(append("a"))
    [verdict] = lake.put(wrong)
    assert verdict.code == "intent-malformed"
    assert words in (verdict.message or "")
    assert (listed(lake.head.header), lake.head.header.progress) == ([], ())


def test_a_root_takes_a_thousand_snapshots_of_clients_and_the_rest_waits_for_the_next() -> None:
    lake = new_lake()
    before = len(encode_header(lake.head.header)["rootline.snapshot"])
    ids = range(2**62, 2**62 + 100 * 200, 100)
    items = [commit(snapshot_id, 1, 6) for snapshot_id in ids]
    began = len(lake.states)
    assert set(codes(lake.put(*items[:150], append("native"), *items[150:]))) == {None}
    roots = [state.header for state in lake.states[began:]]
    assert [len(listed(header)) for header in roots] == [1_002, 198]
    assert sorted(itertools.chain(*map(listed, roots))) == sorted(first + more for first in ids for more in range(6))
    assert max(len(encode_header(header)["rootline.snapshot"]) for header in roots) - before < 45_000
    assert roots[0].totals.data_files == 168, "the native append does not wait"


def test_the_progress_of_a_table_survives_what_is_not_a_new_table() -> None:
    lake = new_lake(commit(7, 1, a="1"))
    known = lake.head.header.progress
    for item in (
        append("native"),
        lake.flush("f", lake.leaf(lake.root_entries())),
        intent(IntentKind.RESTORE, "back", ref=VersionReference(version=0)),
        intent(IntentKind.DROP, "drop", table_uuid=DEFINITION.table_uuid),
    ):
        assert codes(lake.put(item)) == [None]
        assert lake.head.header.progress == known
    dropped = lake.head.header.version
    again = intent(IntentKind.RESTORE, "again", ref=VersionReference(version=dropped), table_uuid=DEFINITION.table_uuid)
    assert codes(lake.put(again)) == [None]
    assert lake.head.header.progress == known
    assert codes(lake.put(commit(8, 1, a="1"))) == ["table-uuid-missing"]
    late = commit(9, 1, a="1").model_copy(update={"table_uuid": DEFINITION.table_uuid})
    assert codes(lake.put(late)) == ["progress-moved"]


def test_a_new_table_of_the_name_knows_no_job_of_the_earlier_one_and_begins_with_its_own() -> None:
    lake = new_lake(commit(7, 1, a="1"))
    another = replace(DEFINITION, table_uuid=uuid.UUID(int=77))
    lake.put(intent(IntentKind.DROP, "drop", table_uuid=DEFINITION.table_uuid))
    made = create(
        "made",
        another.to_json().decode(),
        writer_id="rest/8",
        writer_sequence=0,
        summary=words_of(8, {"b": "1"}),
    )
    assert kinds(lake.put(made, made)) == ["committed", "duplicate"]
    [header] = [state.header for state in lake.states if state.header.table_uuid == another.table_uuid][:1]
    assert steps(header) == {"b": "1"}
    assert listed(header) == [8]
    item = commit(9, 0, a="5").model_copy(update={"table_uuid": another.table_uuid})
    assert codes(lake.put(item)) == [None]


def test_a_header_without_progress_has_no_key_for_it() -> None:
    lake = new_lake(append("a", summary={"a.step": "1"}), commit(7, 1))
    assert "rootline.progress" not in encode_header(lake.head.header)
    assert "rootline.client-snapshots" not in lake.states[-2].header.snapshot.summary


def test_many_jobs_leave_the_newest_that_fit() -> None:
    lake = new_lake()
    for number in range(JOBS_MAX + 6):
        lake.put(commit(7 + number, 1, **{f"job-{number}": "1"}))
    assert list(steps(lake.head.header)) == [f"job-{number}" for number in range(6, JOBS_MAX + 6)]
    assert codes(lake.put(commit(1_000, 1, **{"job-3": "2"}))) == [None], "a job that was dropped is not fenced"
    assert codes(lake.put(commit(1_001, 1, **{"job-60": "2"}))) == ["progress-moved"]


def planned(snapshot_id: int, plan: int, **jobs: str) -> Intent:
    """One of the plans of a client's request."""
    made = commit(snapshot_id, 1, 1, f"c{snapshot_id}-{plan}", **jobs)
    return made.model_copy(update={"intent_id": f"request-{snapshot_id}/{plan}", "table_uuid": DEFINITION.table_uuid})


def refusal(snapshot_id: int, reason: str = "the client may not write") -> Intent:
    return intent(
        IntentKind.APPEND,
        f"request-{snapshot_id}",
        table_uuid=DEFINITION.table_uuid,
        writer_id=f"rest/{snapshot_id}",
        writer_sequence=0,
        summary={REFUSED: reason},
    )


def test_a_request_that_was_refused_is_not_committed_by_another_plan_of_it() -> None:
    lake = new_lake(planned(6, 1))
    rejected = lake.put(refusal(7), planned(7, 1, a="1"), planned(7, 2))
    assert codes(rejected) == ["request-refused"] * 3
    assert {verdict.message for verdict in rejected} == {"the client may not write"}
    assert codes(lake.put(planned(7, 3), planned(8, 1))) == ["request-refused", None]
    assert (listed(lake.head.header), lake.head.header.progress) == ([8], ())
    other = planned(7, 1).model_copy(update={"intent_id": "another-request/1"})
    assert codes(lake.put(other)) == [None], "the client may use the id for another request"


def test_the_refusal_of_a_request_that_is_committed_is_a_duplicate() -> None:
    lake = new_lake()
    assert kinds(lake.put(planned(7, 1), refusal(7), planned(7, 2))) == ["committed", "duplicate", "duplicate"]
    assert kinds(lake.put(refusal(7))) == ["duplicate"]
    assert lake.head.header.totals.data_files == 1


def test_a_refusal_lasts_while_the_table_is_dropped_and_restored() -> None:
    lake = new_lake(append("a"))
    lake.put(intent(IntentKind.DROP, "drop", table_uuid=DEFINITION.table_uuid))
    dropped = VersionReference(version=lake.head.header.version)
    assert codes(lake.put(refusal(7))) == ["request-refused"]
    back = intent(IntentKind.RESTORE, "back", ref=dropped, table_uuid=DEFINITION.table_uuid)
    assert codes(lake.put(back, planned(7, 1))) == [None, "request-refused"]


def test_a_create_that_was_refused_because_its_name_was_taken_is_not_committed_when_the_name_is_free() -> None:
    lake = new_lake()
    another = replace(DEFINITION, table_uuid=uuid.UUID(int=77)).to_json().decode()
    names = {"writer_sequence": 0, "add_data_files": [data_file("b")]}
    made, later = (
        create(f"request-{number}", another, writer_id=f"rest/{number}", summary=words_of(number, {}), **names)
        for number in (7, 8)
    )
    assert codes(lake.put(refusal(7))) == ["request-refused"]
    assert codes(lake.put(intent(IntentKind.DROP, "drop", table_uuid=DEFINITION.table_uuid))) == [None]
    assert codes(lake.put(made, later)) == ["request-refused", None]
    assert listed(lake.states[-1].header) == [8]


def test_a_create_follows_no_table_that_was_dropped_after_its_catalog_read_the_name() -> None:
    def table(number: int) -> str:
        return replace(DEFINITION, table_uuid=uuid.UUID(int=number)).to_json().decode()

    def drop(table_uuid: uuid.UUID) -> Intent:
        return intent(IntentKind.DROP, f"drop-{table_uuid}", table_uuid=table_uuid)

    def made(snapshot_id: int, read_version: int) -> Intent:
        files = {"writer_sequence": 0, "add_data_files": [data_file(f"b{snapshot_id}")], "read_version": read_version}
        words = words_of(snapshot_id, {})
        return create(f"r{snapshot_id}/create", table(77), writer_id=f"rest/{snapshot_id}", summary=words, **files)

    lake = new_lake()
    assert codes(lake.put(refusal(7))) == ["request-refused"]
    assert codes(lake.put(drop(DEFINITION.table_uuid))) == [None]
    assert codes(lake.put(create("next", table(2)))) == [None], "its ledger does not know the request"
    assert codes(lake.put(drop(uuid.UUID(int=2)))) == [None]
    seen = lake.head.header.version
    assert codes(lake.put(made(7, 0), made(8, seen - 1), made(9, seen))) == ["table-dropped", "table-dropped", None]


def test_an_intent_that_refuses_commits_nothing_whatever_it_carries() -> None:
    lake = new_lake()
    item = append("c", summary={REFUSED: "no"})
    assert codes(lake.put(item)) == ["request-refused"]
    assert lake.head.header.totals.data_files == 0


jobs = st.builds(
    JobProgress,
    st.sampled_from("abcdefgh"),
    st.just(SequenceNumber(1)),
    st.just(ClientSnapshot(2**62, "append")),
    st.dictionaries(st.text(max_size=5), st.integers(0, 8_000).map(lambda size: "é" * (size // 6)), max_size=2),
)


@given(st.lists(jobs, max_size=30))
def test_the_progress_that_stays_is_what_moved_last_and_fits(moved: Iterable[JobProgress]) -> None:
    progress: tuple[JobProgress, ...] = ()
    latest: list[JobProgress] = []
    for job in moved:
        before, progress = progress, with_moved(progress, job)
        latest = [*(each for each in latest if each.identity != job.identity), job]
        assert progress == tuple(latest[len(latest) - len(progress) :])
        size = len(encode_progress(progress))
        assert len(progress) == 1 or size <= PROGRESS_BYTES_MAX
        dropped = [each for each in before if each.identity not in {kept.identity for kept in progress}]
        assert not dropped or len(encode_progress((dropped[-1], *progress))) > PROGRESS_BYTES_MAX
        latest = list(progress)


def encode_progress(progress: tuple[JobProgress, ...]) -> bytes:
    header = dataclasses.replace(new_lake().head.header, progress=progress)
    return encode_header(header).get("rootline.progress", b"[]")
