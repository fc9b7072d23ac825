"""Clients find their commits and their newest words in an export, and nothing else changes for those who read it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import ancestors_of

from rootline.catalog.client_snapshots import (
    EARLIER_MAX,
    VERSION,
    SnapshotJson,
    versions_of,
    with_clients,
    with_commits,
)
from rootline.catalog.export_keys import ExportFolder
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.catalog.table_metadata import metadata_json, read_metadata
from rootline.schemas.client_commits import CLIENT_SNAPSHOTS, client_snapshots_word
from rootline.schemas.identifiers import SequenceNumber, Version, snapshot_id_of
from rootline.schemas.parts.progress import ClientSnapshot, JobProgress, Progress
from tests.catalog.exported_lake import TABLE, V3, ExportedLake, metadata_of, rows

UUID = uuid.UUID(int=7)
PARENT = "parent-snapshot-id"


def id_of(version: int) -> int:
    return snapshot_id_of(UUID, Version(version))


def version_json(version: int, parent: int | None, *clients: tuple[int, str]) -> dict[str, Any]:
    """A version as a snapshot, with the commits of clients in it."""
    word = client_snapshots_word([ClientSnapshot(*each) for each in clients])
    return {
        "snapshot-id": id_of(version),
        **({} if parent is None else {PARENT: id_of(parent)}),
        "sequence-number": version,
        "timestamp-ms": 1000 + version,
        "manifest-list": f"list-{version}.avro",
        "summary": {"operation": "append", VERSION: str(version), **({CLIENT_SNAPSHOTS: word} if clients else {})},
        "schema-id": 0,
        "first-row-id": version,
        "added-rows": 1,
    }


def job(identity: str, snapshot_id: int, **words: str) -> JobProgress:
    return JobProgress(identity, SequenceNumber(1), ClientSnapshot(snapshot_id, "append"), words)


def chain(snapshots: Sequence[SnapshotJson]) -> list[SnapshotJson]:
    """The last snapshot and its ancestors."""
    by_id = {each["snapshot-id"]: each for each in snapshots}
    found = [snapshots[-1]]
    while (parent := by_id.get(found[-1].get(PARENT))) is not None:
        found.append(parent)
    return found


def test_a_clients_id_is_a_second_name_of_the_version_that_has_its_commit() -> None:
    versions = [version_json(4, 3), version_json(5, 4, (70, "append"), (71, "overwrite"), (72, "fancy"))]
    *beside, older, newer = with_clients(versions, ())
    assert [older, newer] == versions
    assert [(each["snapshot-id"], each["summary"]["operation"]) for each in beside] == [
        (70, "append"),
        (71, "overwrite"),
        (72, "append"),  # engines refuse an operation that they do not know
    ]
    for each in beside:
        assert each == {**newer, "snapshot-id": each["snapshot-id"], "summary": each["summary"]}
        assert each["summary"].keys() == {"operation", VERSION}
    assert chain([*beside, older, newer]) == [newer, older]


def clients(version: int, count: int) -> list[tuple[int, str]]:
    """So many commits of clients in a version."""
    return [(version * 1000 + place, "append") for place in range(count)]


def test_all_commits_of_the_newest_version_are_listed_and_a_number_of_earlier_ones() -> None:
    each = EARLIER_MAX // 3 + 2
    versions = [version_json(at, at - 1, *clients(at, each)) for at in (1, 2, 3)]
    versions.append(version_json(4, 3, *clients(4, 250)))
    listed = [each["snapshot-id"] for each in with_clients(versions, ())[:-4]]
    assert listed == [
        *range(1000 + 3 * each - EARLIER_MAX, 1000 + each),
        *range(2000, 2000 + each),
        *range(3000, 3000 + each),
        *range(4000, 4000 + 250),
    ]
    assert len(listed) == 250 + EARLIER_MAX


@given(st.lists(st.integers(0, EARLIER_MAX + 4), min_size=2, max_size=8))
def test_an_export_omits_the_lists_of_commits_that_no_later_export_needs(counts: list[int]) -> None:
    versions = [version_json(at, at - 1, *clients(at, count)) for at, count in enumerate(counts, start=1)]
    stored = with_clients(versions[:-1], ())
    known = list(versions_of(UUID, {each["snapshot-id"]: each for each in stored}).values())
    assert with_clients([*known, versions[-1]], ()) == with_clients(versions, ())
    kept = [each for each in known if CLIENT_SNAPSHOTS in each["summary"]]
    assert sum(len(json.loads(each["summary"][CLIENT_SNAPSHOTS])) for each in kept[1:-1]) < EARLIER_MAX
    complete = with_commits(known)
    assert complete == versions[len(known) - len(complete) : len(known)]
    for each in known[: len(known) - len(complete)]:
        assert CLIENT_SNAPSHOTS not in each["summary"]


def test_the_newest_words_of_jobs_stand_behind_the_window_and_the_chain_ends_where_it_ended() -> None:
    versions = [version_json(1, 0), version_json(6, 5), version_json(7, 6)]  # the first is a tag's
    progress = (job("idle", 80, a="1"), job("one", 81, b="2"), job("other", 81, c="3"), job("busy", 82, d="4"))
    found = with_clients(versions, progress)
    walked = chain(found)
    assert [each["snapshot-id"] for each in walked] == [id_of(7), id_of(6), 82, 81, 80]
    assert walked[-1][PARENT] == id_of(5), "a query that began before the window finds that it did"
    assert [each["summary"] for each in walked[2:]] == [
        {"operation": "replace", "d": "4", VERSION: "6"},
        {"operation": "replace", "b": "2", "c": "3", VERSION: "6"},
        {"operation": "replace", "a": "1", VERSION: "6"},
    ]
    for each in walked[2:]:
        same = ("manifest-list", "sequence-number", "timestamp-ms", "schema-id")
        assert [each[name] for name in same] == [versions[1][name] for name in same]
    assert versions[0] in found
    assert walked[0] == versions[-1]


def test_a_chain_that_begins_with_the_table_ends_without_a_parent() -> None:
    """It has everything since the beginning, so a query of the empty table may be validated against it."""
    walked = chain(with_clients([version_json(1, None), version_json(2, 1)], (job("one", 80, a="1"),)))
    assert [each["snapshot-id"] for each in walked] == [id_of(2), id_of(1), 80]
    assert PARENT not in walked[-1]


def test_every_id_is_listed_once_and_words_go_first() -> None:
    versions = [version_json(1, 0, (80, "append"), (90, "append"), (id_of(2), "append")), version_json(2, 1)]
    progress = (job("one", 80, a="1"), job("liar", id_of(1), b="2"), job("old", 99, c="3"))
    found = with_clients(versions, progress, others=[99])
    assert [each["snapshot-id"] for each in found] == [80, 90, id_of(1), id_of(2)]
    assert [each["summary"].get("a") for each in chain(found)] == [None, None, "1"]
    assert with_clients([], progress) == [], "a table without a snapshot has no list to show"


@st.composite
def listings(draw: st.DrawFn) -> tuple[list[dict[str, Any]], Progress]:
    """Versions with gaps, commits of clients and words of jobs, with ids that meet."""
    numbers = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=6)))
    ids = st.one_of(st.integers(1, 6), st.integers(0, 12).map(id_of))
    versions = []
    for number in numbers:
        clients = draw(st.lists(st.tuples(ids, st.sampled_from(["append", "overwrite"])), max_size=3))
        versions.append(version_json(number, None if number == 0 else number - 1, *clients))
    jobs = draw(st.lists(st.builds(job, st.text(max_size=2), ids, a=st.text(max_size=2)), max_size=4))
    return versions, tuple(jobs)


@given(listings())
def test_stored_metadata_gives_back_the_versions_and_nobody_walks_to_a_client(
    listing: tuple[list[dict[str, Any]], Progress],
) -> None:
    versions, progress = listing
    found = with_clients(versions, progress)
    by_id = {each["snapshot-id"]: each for each in found}
    assert len(by_id) == len(found)
    assert list(versions_of(UUID, by_id).values()) == versions
    assert with_clients(list(versions_of(UUID, by_id).values()), progress) == found
    walked = {each["snapshot-id"] for each in chain(found)}
    words = {each["snapshot-id"] for each in found if each["summary"]["operation"] == "replace"}
    beside = by_id.keys() - words - {each["snapshot-id"] for each in versions}
    assert words <= walked
    assert not beside & walked
    assert not beside & {each.get(PARENT) for each in found}


def ancestors(metadata: TableMetadata) -> Iterator[tuple[int, str | None]]:
    current = metadata.current_snapshot()
    assert current is not None
    for each in ancestors_of(current, metadata):
        assert each.summary is not None
        yield each.snapshot_id, each.summary["job"]


def test_pyiceberg_reads_the_metadata_and_finds_the_words_of_a_job(exported: ExportedLake) -> None:
    for number in range(3):
        exported.table.append(rows(number))
    header, plain = exported.table.head(), metadata_of(exported.export(V3))
    versions = [each | {"summary": dict(each["summary"])} for each in plain["snapshots"]]
    versions[1]["summary"][CLIENT_SNAPSHOTS] = client_snapshots_word([ClientSnapshot(70, "append")])
    folder = ExportFolder.of(exported.base_url, TABLE, V3)
    stated = ExportedDefinition.of(exported.table.definition(), V3).metadata()
    told = replace(header, progress=(job("one", 80, job="1"),))
    body = metadata_json(told, stated, folder, versions, {})
    metadata = TableMetadataUtil.parse_raw(body.decode())
    ids = [each["snapshot-id"] for each in versions]
    assert list(ancestors(metadata)) == [*((at, None) for at in reversed(ids)), (80, "1")]
    assert {each.snapshot_id for each in metadata.snapshots} == {*ids, 70, 80}
    assert [each.snapshot_id for each in metadata.snapshot_log] == ids
    assert metadata.refs.keys() == {"main"}
    stored = read_metadata(body, folder, header.version, header.table_uuid)
    assert list(stored.snapshots.values()) == versions
    assert len(stored.in_folder) == len(versions) + 2
    again = metadata_json(told, stated, folder, list(stored.snapshots.values()), {})
    assert again == body
