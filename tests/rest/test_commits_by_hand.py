"""Commits with snapshots that no honest client sends, or sends again: nothing is committed twice, and nothing wrong."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile

from rootline.client import new_files
from rootline.client.producer import await_verdict
from rootline.rest.client_files import MANIFESTS_MAX
from rootline.schemas.bytes.avro_encoding import encode_long
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.verdict import Verdict, VerdictKind
from tests.catalog.pyiceberg_catalog import catalog_at
from tests.rest.hand_made import ADDED, DELETED, EXISTING, MAIN, HandMade, fresh_id
from tests.rest.writing_catalog import SCHEMA, WritingCatalog, problem, writing_catalog
from tests.storage.rows.test_file_formats import orc_bytes

_FAILED = (409, "CommitFailedException")


def _main(client: HandMade) -> int | None:
    """The newest snapshot. Verdicts alone make versions, but no snapshots."""
    found: int | None = client.catalog.load(client.table)["refs"].get("main", {}).get("snapshot-id")
    return found


def _send(client: HandMade, request: tuple[list[Any], list[Any]]) -> httpx.Response:
    return client.catalog.commit(client.table, *request)


def _refused(client: HandMade, request: tuple[list[Any], list[Any]], status: int = 400) -> str:
    """The message of a refusal, after which the table is unchanged."""
    before = _main(client), client.ids()
    answer = _send(client, request)
    found, message = problem(answer)
    assert found == status, message
    assert (_main(client), client.ids()) == before
    return message


def test_an_honest_append_is_committed(client: HandMade) -> None:
    answer = _send(client, client.append(client.file(1, 2), client.file(3), note="kept"))
    assert answer.status_code == 200, answer.text
    assert client.ids() == [1, 2, 3]
    [*_, newest] = answer.json()["metadata"]["snapshots"]
    assert newest["summary"]["added-data-files"] == "2"


def test_a_client_that_writes_orc_commits_it_and_only_its_timestamps_are_refused_to_readers(client: HandMade) -> None:
    asked = {"action": "set-properties", "updates": {"write.format.default": "orc"}}
    assert client.catalog.commit(client.table, [asked]).status_code == 200
    stored = client.load().file(1, 2, 3).file_path
    body = orc_bytes(pq.read_table(stored.removeprefix("file://")))
    file = client.file(1, 2, 3, path=stored, file_format=FileFormat.ORC, file_size_in_bytes=len(body))
    Path(stored.removeprefix("file://")).write_bytes(body)
    answer = _send(client, client.append(file))
    assert answer.status_code == 200, answer.text
    table = client.catalog.lake.table(client.table)
    table.delete_where("id = 2")
    with pytest.raises(Invalid, match="column ts: ORC timestamps are not supported"):
        table.scan().to_arrow()
    assert table.scan(columns=["id"]).to_arrow().column("id").to_pylist() == [1, 3]


@pytest.mark.parametrize("total", ["-1", "many", "", "9" * 30])
def test_the_totals_of_a_client_are_ignored_whatever_they_are(client: HandMade, total: str) -> None:
    totals = {"total_data_files": total, "total_records": total, "added_records": total}
    answer = _send(client, client.append(client.file(1), **totals))
    assert answer.status_code == 200, answer.text
    [*_, newest] = answer.json()["metadata"]["snapshots"]
    assert (newest["summary"]["total-data-files"], newest["summary"]["total-records"]) == ("1", "1")


def test_the_same_request_again_is_answered_as_done(client: HandMade) -> None:
    request = client.append(client.file(1))
    assert _send(client, request).status_code == 200
    newest = _main(client)
    assert _send(client, request).status_code == 200
    assert (_main(client), client.ids()) == (newest, [1])


def test_the_same_request_after_its_manifests_were_deleted_is_answered_as_done(client: HandMade) -> None:
    request = client.append(client.file(1))
    assert _send(client, request).status_code == 200
    for each in (client.folder / "rest/metadata").iterdir():
        each.unlink()
    assert _send(client, request).status_code == 200
    assert client.ids() == [1]


def test_the_same_request_after_its_table_was_dropped_is_no_4xx(client: HandMade, catalog: WritingCatalog) -> None:
    request = client.append(client.file(1))
    assert _send(client, request).status_code == 200
    catalog.lake.drop_table(client.table)
    answer = _send(client, request)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "CommitStateUnknownException")
    assert _send(client, client.append(client.file(2))).status_code == 404
    catalog.lake.restore_table(client.table)
    assert _send(client, request).status_code == 200
    assert client.ids() == [1]


def test_the_same_request_sent_at_once_is_committed_once(client: HandMade) -> None:
    request, answers = client.append(client.file(1)), []
    threads = [threading.Thread(target=lambda: answers.append(_send(client, request).status_code)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 4
    assert client.ids() == [1]


def test_another_commit_under_a_committed_snapshot_id_fails(client: HandMade) -> None:
    same = fresh_id()
    assert _send(client, client.append(client.file(1), snapshot_id=same)).status_code == 200
    answer = _send(client, client.append(client.file(2), snapshot_id=same))
    assert (answer.status_code, answer.json()["error"]["type"]) == _FAILED
    assert "with other files" in problem(answer)[1]
    assert client.ids() == [1]


def test_the_same_files_under_another_id_are_not_added_again(client: HandMade) -> None:
    file = client.file(1)
    assert _send(client, client.append(file)).status_code == 200
    newest = _main(client)
    assert _send(client, client.append(file)).status_code == 200
    assert _send(client.load(), client.append(file)).status_code == 200
    assert (_main(client), client.ids()) == (newest, [1])


def test_files_of_which_some_are_live_are_refused_so_that_no_client_deletes_them(client: HandMade) -> None:
    file = client.file(1)
    assert _send(client, client.append(file)).status_code == 200
    answer = _send(client, client.append(file, client.file(2)))
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "CommitStateUnknownException")
    assert client.ids() == [1]


def test_a_refused_id_may_be_used_for_another_attempt(client: HandMade) -> None:
    same = fresh_id()
    _refused(client, client.append(client.file(1, path="s3://elsewhere/x.parquet"), snapshot_id=same))
    assert _send(client, client.append(client.file(2), snapshot_id=same)).status_code == 200
    assert client.ids() == [2]


def test_a_snapshot_without_a_change_is_answered_as_done(client: HandMade) -> None:
    assert _send(client, client.append(client.file(1))).status_code == 200
    client.load()
    newest = _main(client)
    assert _send(client, client.append()).status_code == 200
    assert _main(client) == newest


def test_manifests_that_were_only_rewritten_change_nothing(client: HandMade) -> None:
    file = client.file(1)
    assert _send(client, client.append(file)).status_code == 200
    client.load()
    made = fresh_id()
    where = client.manifest_list(made, [client.manifest(made, [(EXISTING, file)])])
    newest = _main(client)
    assert _send(client, client.request(client.snapshot(made, where, operation="replace"))).status_code == 200
    assert _main(client) == newest


def test_a_list_made_from_another_parent_removes_nothing(client: HandMade) -> None:
    assert _send(client, client.append(client.file(1))).status_code == 200
    client.load()
    made = fresh_id()
    where = client.manifest_list(made, [client.manifest(made, [(ADDED, client.file(2))])])
    message = _refused(client, client.request(client.snapshot(made, where, added_data_files="1")), 409)
    assert "made from another snapshot" in message


def test_files_that_are_said_to_leave_are_not_taken_yet(client: HandMade) -> None:
    file = client.file(1)
    assert _send(client, client.append(file)).status_code == 200
    client.load()
    made = fresh_id()
    where = client.manifest_list(made, [client.manifest(made, [(DELETED, file)])])
    counts = {"operation": "delete", "deleted_data_files": "1"}
    assert "does not take commits that remove files" in _refused(
        client, client.request(client.snapshot(made, where, **counts))
    )


def test_a_removal_that_the_counts_state_and_the_list_lacks_fails(client: HandMade) -> None:
    made = fresh_id()
    where = client.manifest_list(made, [client.manifest(made, [(ADDED, client.file(2))])])
    counts = {"operation": "overwrite", "added_data_files": "1", "deleted_data_files": "1"}
    assert "delete 1" in _refused(client, client.request(client.snapshot(made, where, **counts)), 409)


def test_an_overwrite_that_removes_nothing_misses_no_row_that_came_meanwhile(client: HandMade) -> None:
    assert _send(client, client.append(client.file(1))).status_code == 200
    client.load()
    request = client.append(client.file(2), operation="overwrite")
    client.catalog.lake.table(client.table).append({"id": [7], "ts": [None]})
    _refused(client, request, 409)
    assert _send(client.load(), client.append(client.file(2), operation="overwrite")).status_code == 200
    assert client.ids() == [1, 2, 7]


def test_deletes_of_rows_are_not_taken_yet(client: HandMade) -> None:
    made = fresh_id()
    file = client.file(1, content=DataFileContent.POSITION_DELETES)
    manifest = client.manifest(made, [(ADDED, file)], content=ManifestContent.DELETES)
    where = client.manifest_list(made, [_as_deletes(client, manifest)])
    assert "does not take deletes" in _refused(client, client.request(client.snapshot(made, where)))


def test_a_base_that_is_no_version_of_the_table_fails(client: HandMade) -> None:
    updates, [uuid_of, _] = client.append(client.file(1))
    message = _refused(client, (updates, [uuid_of, {**MAIN, "snapshot-id": 5}]), 409)
    assert message.startswith("Requirement failed: branch main has changed")


def test_what_an_export_has_not_seen_yet_is_required_of_the_newest_version(client: HandMade) -> None:
    assert _send(client, client.append(client.file(1))).status_code == 200
    client.load()  # the catalog has just read this version
    updates, requirements = client.append(client.file(2))
    with client.catalog.lake.table(client.table).alter() as change:
        change.add_column("extra", "long")
    requirements.append({"type": "assert-current-schema-id", "current-schema-id": 1})
    assert _send(client, (updates, requirements)).status_code == 200
    assert client.ids() == [1, 2]


def test_the_uuid_is_required_of_the_newest_version(client: HandMade) -> None:
    updates, [_, main] = client.append(client.file(1))
    other = {"type": "assert-table-uuid", "uuid": "11111111-1111-4111-8111-111111111111"}
    assert "UUID does not match" in _refused(client, (updates, [other, main]), 409)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("{parent}/other/rest/metadata/m.avro", "not a place for metadata"),
        ("{table}/rest/../../other/rest/metadata/m.avro", "not a place for metadata"),
        ("{table}/rest/%2e%2e/m.avro", "not a place for metadata"),
        ("{table}/metadata/roots/m.avro", "not a place for metadata"),
        ("{table}/data/m.avro", "not a place for metadata"),
        ("{upper}/rest/metadata/m.avro", "not a place for metadata"),
        ("http://169.254.169.254/latest", "not a place for metadata"),
        ("s3://elsewhere/m.avro", "not a place for metadata"),
        ("/etc/passwd", "not a place for metadata"),
        ("{table}/rest/metadata", "not a place for metadata"),
        ("{table}/rest/metadata/absent.avro", "does not exist"),
    ],
)
def test_a_list_or_a_manifest_elsewhere_is_not_read(client: HandMade, where: str, words: str) -> None:
    location = client.location
    at = where.format(table=location, parent=location.rpartition("/")[0], upper=location.replace("/demo/", "/DEMO/"))
    assert words in _refused(client, client.request(client.snapshot(fresh_id(), at)))
    made = fresh_id()
    manifest = client.manifest(made, [(ADDED, client.file(1))])
    manifest[0] = at
    listed = client.manifest_list(made, [manifest])
    assert words in _refused(client, client.request(client.snapshot(made, listed)))


@pytest.mark.parametrize(
    "path",
    [
        "{table}/metadata/x.parquet",
        "{table}/rest/x.parquet",
        "{table}/export/x.parquet",
        "{table}/data/../x.parquet",
        "{table}/data/%2e%2e/x.parquet",
        "{table}/data//x.parquet",
        "{parent}/other/data/x.parquet",
        "{upper}/data/x.parquet",
        "s3://elsewhere/x.parquet",
        "data/x.parquet",
        "",
    ],
)
def test_a_data_file_outside_of_the_tables_own_folder_is_refused(client: HandMade, path: str) -> None:
    location = client.location
    at = path.format(table=location, parent=location.rpartition("/")[0], upper=location.replace("/demo/", "/DEMO/"))
    _refused(client, client.append(client.file(1, path=at)))


@pytest.mark.parametrize(
    "folder",
    ["x%3F", "a%20b", "a+b", "a b", "a%2Fb", "%C3%BC", "ü", "100%25", "100%", "%253F", "http%3A%2F%2Fhost%3Fa%23b"],
)
def test_a_partition_value_is_encoded_in_a_files_name_or_not_and_the_name_is_taken_unchanged(
    client: HandMade, folder: str
) -> None:
    at = f"{client.location}/data/carrier={folder}/x.parquet"
    Path(at.removeprefix("file://")).parent.mkdir(parents=True)
    Path(client.file(4).file_path.removeprefix("file://")).rename(at.removeprefix("file://"))
    size = Path(at.removeprefix("file://")).stat().st_size
    answer = _send(client, client.append(client.file(4, path=at, file_size_in_bytes=size)))
    assert answer.status_code == 200, answer.text
    assert client.ids() == [4]
    with catalog_at(client.catalog.url, "own") as theirs:
        scan = theirs.load_table(client.table).scan()
        assert [task.file.file_path for task in scan.plan_files()] == [at]
        assert scan.to_arrow().column("id").to_pylist() == [4]


@pytest.mark.parametrize(
    "facts",
    [{"record_count": -1}, {"file_size_in_bytes": -1}, {"record_count": 10**17}],
)
def test_entries_with_impossible_numbers_are_refused(client: HandMade, facts: dict[str, Any]) -> None:
    _refused(client, client.append(client.file(1, **facts)))


def test_a_file_that_is_listed_twice_is_refused(client: HandMade) -> None:
    file = client.file(1)
    assert "twice" in _refused(client, client.append(file, file))


def test_a_manifest_that_is_listed_twice_is_refused(client: HandMade) -> None:
    made = fresh_id()
    manifest = client.manifest(made, [(ADDED, client.file(1))])
    where = client.manifest_list(made, [manifest, manifest])
    assert "twice" in _refused(client, client.request(client.snapshot(made, where)))


@pytest.mark.parametrize("length", [-1, 0, 7, 2**40])
def test_a_manifest_of_another_length_than_its_list_states_is_refused(client: HandMade, length: int) -> None:
    made = fresh_id()
    manifest = client.manifest(made, [(ADDED, client.file(1))])
    manifest[1] = length
    _refused(client, client.request(client.snapshot(made, client.manifest_list(made, [manifest]))))


def test_more_manifests_than_are_read_are_refused_before_any_is_read(client: HandMade) -> None:
    made = fresh_id()
    manifest = client.manifest(made, [(ADDED, client.file(1))])
    many = []
    for number in range(MANIFESTS_MAX + 1):
        copied = ManifestFile(*manifest._data)
        copied[0] = f"{client.location}/rest/metadata/absent-{number}.avro"
        many.append(copied)
    message = _refused(client, client.request(client.snapshot(made, client.manifest_list(made, many))))
    assert f"{MANIFESTS_MAX + 1} manifests" in message


@pytest.mark.parametrize("of_list", [True, False])
def test_a_block_that_decompresses_to_gigabytes_is_refused(client: HandMade, of_list: bool) -> None:
    made = fresh_id()
    manifest = client.manifest(made, [(ADDED, client.file(1))])
    where = client.manifest_list(made, [manifest])
    bomb = where if of_list else manifest.manifest_path
    size = _append_bomb(Path(bomb.removeprefix("file://")))
    if not of_list:
        manifest[1] = size
        where = client.manifest_list(made, [manifest])
    assert "decompress" in _refused(client, client.request(client.snapshot(made, where)))


@pytest.mark.parametrize("body", [b"", b"Obj\x01", b"\0" * 500])
def test_a_list_that_is_no_avro_file_is_refused(client: HandMade, body: bytes) -> None:
    where = client.manifest_list(1, [])
    Path(where.removeprefix("file://")).write_bytes(body)
    _refused(client, client.request(client.snapshot(1, where)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"summary": {"operation": "append", "x": "y" * 1_000_000}}, "characters"),
        ({"summary": {"operation": "append", "added-data-files": "many"}}, "write a whole number"),
        ({"summary": {"operation": "append", "deleted-data-files": "-1"}}, "write a whole number"),
        ({"summary": None}, "summary"),
        ({"snapshot-id": -1}, "snapshot-id"),
        ({"snapshot-id": 2**63}, "snapshot-id"),
        ({"manifest-list": None}, "manifest-list"),
        ({"manifest-list": "x" * 5_000}, "manifest-list"),
    ],
)
def test_a_snapshot_with_a_wrong_member_is_refused(client: HandMade, change: dict[str, Any], words: str) -> None:
    updates, requirements = client.append(client.file(1))
    updates[0]["snapshot"] |= change
    updates[1]["snapshot-id"] = updates[0]["snapshot"]["snapshot-id"]
    assert words in _refused(client, (updates, requirements))


def test_snapshots_that_are_staged_or_on_another_branch_are_refused(client: HandMade) -> None:
    updates, requirements = client.append(client.file(1))
    assert "staged snapshots" in _refused(client, (updates[:1], requirements))
    branch = [updates[0], {**updates[1], "ref-name": "audit"}]
    assert "sets no branch or tag" in _refused(client, (branch, requirements))
    twice = [updates[0], updates[0], updates[1]]
    assert "same id" in _refused(client, (twice, requirements))
    other = {"action": "add-snapshot", "snapshot": {**updates[0]["snapshot"], "snapshot-id": 7}}
    assert "its parent is not 7" in _refused(client, ([other, *updates], requirements))


def test_main_is_not_moved_to_an_older_snapshot(client: HandMade) -> None:
    assert _send(client, client.append(client.file(1))).status_code == 200
    older = client.load().base
    assert _send(client, client.append(client.file(2))).status_code == 200
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": older}
    assert "does not move main" in _refused(client, ([main], []))
    newest = client.load().base
    assert _send(client, ([{**main, "snapshot-id": newest}], [])).status_code == 200


def test_replacing_a_table_with_its_rows_is_not_taken_yet(client: HandMade) -> None:
    updates, requirements = client.append(client.file(1))
    replace = {"action": "remove-snapshot-ref", "ref-name": "main"}
    assert "not taken yet" in _refused(client, ([replace, *updates], requirements))


def test_metadata_where_a_client_that_ignores_the_property_writes_it_is_read(client: HandMade) -> None:
    made = fresh_id()
    manifest = client.manifest(made, [(ADDED, client.file(1))], path=f"{client.location}/metadata/{uuid4()}-m0.avro")
    where = client.manifest_list(made, [manifest], path=f"{client.location}/metadata/snap-{made}-0-{uuid4()}.avro")
    assert _send(client, client.request(client.snapshot(made, where))).status_code == 200
    assert client.ids() == [1]


def test_a_list_where_it_would_stop_sweeps_is_refused_with_what_to_set(client: HandMade) -> None:
    off = {"action": "set-properties", "updates": {"rootline.sweep.client-files": "false"}}
    on = {"action": "set-properties", "updates": {"rootline.sweep.client-files": "true"}}
    assert client.catalog.commit(client.table, [off]).status_code == 200
    made = fresh_id()
    manifest = client.manifest(made, [(ADDED, client.file(1))])
    where = client.manifest_list(made, [manifest], path=f"{client.location}/metadata/snap-{made}-0-{uuid4()}.avro")
    request = client.request(client.snapshot(made, where))
    message = _refused(client, request)
    assert (
        "is in metadata/, where it stops sweeps of this table: set its property rootline.sweep.client-files" in message
    )
    assert f"write lists and manifests to {client.location}/rest/metadata" in message
    assert client.catalog.commit(client.table, [on]).status_code == 200
    assert _send(client, request).status_code == 409, "what was refused stays refused"
    assert _send(client, client.request(client.snapshot(made, where, tries="2"))).status_code == 200
    assert client.ids() == [1]


def test_statistics_of_columns_that_are_gone_are_dropped(client: HandMade) -> None:
    file = client.file(1, value_counts={1: 1, 2: 1, 77: 9}, lower_bounds={77: b"x"}, upper_bounds={77: b"y"})
    assert _send(client, client.append(file)).status_code == 200
    assert client.ids() == [1]


def test_many_files_are_listed_in_leaves(client: HandMade) -> None:
    file = client.file(1)
    copies = [client.file(number) for number in range(3)]
    assert _send(client, client.append(file, *copies)).status_code == 200
    few = {"action": "set-properties", "updates": {"rootline.append.leaf-files": "2"}}
    assert client.catalog.commit(client.table, [few]).status_code == 200
    client.load()
    assert _send(client, client.append(client.file(8), client.file(9))).status_code == 200
    assert client.ids() == [0, 1, 1, 2, 8, 9]


def test_files_below_a_prefix_of_the_coordinators_are_taken_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = tmp_path / "landing"
    allowed.mkdir()
    monkeypatch.setenv("ROOTLINE_COORDINATOR__FILE_PREFIXES", f'["{allowed}/"]')
    with writing_catalog(tmp_path / "lake") as catalog:
        few = {"rootline.append.leaf-files": "3"}
        assert catalog.create("demo", name="t", schema=SCHEMA, properties=few).status_code == 200
        client = HandMade(catalog, "demo.t")

        def at(number: int, folder: Path) -> DataFile:
            made = client.file(number)
            place = folder / f"{uuid4()}.parquet"
            Path(made.file_path.removeprefix("file://")).rename(place)
            return client.file(number, path=str(place), file_size_in_bytes=place.stat().st_size)

        for numbers in ((1, 2), (3, 4, 5)):
            inside = [at(number, allowed) for number in numbers]
            assert _send(client.load(), client.append(*inside)).status_code == 200
            outside = [at(number, tmp_path) for number in numbers]
            assert "location-invalid" in _refused(client.load(), client.append(*outside))
        assert client.ids() == [1, 2, 3, 4, 5]


def test_a_coordinator_that_does_not_know_commits_of_clients_is_unavailable(
    client: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def old(*given: Any, **named: Any) -> Verdict:
        verdict = await await_verdict(*given, **named)
        refusal = {"code": "intent-malformed", "message": "summary: 'rootline.client' is reserved"}
        return verdict.model_copy(update={"kind": VerdictKind.REJECTED, **refusal})

    request = client.append(client.file(1))
    with monkeypatch.context() as changed:
        changed.setattr(new_files, "await_verdict", old)
        answer = _send(client, request)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableException")
    assert "update all coordinators" in problem(answer)[1]
    assert answer.headers["Retry-After"]


def test_an_append_without_a_verdict_is_unknown_and_done_when_it_is_sent_again(
    client: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("log-unavailable", "the log is away")

    request = client.append(client.file(1))
    with monkeypatch.context() as changed:
        changed.setattr(new_files, "await_verdict", away)
        answer = _send(client, request)
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "CommitStateUnknownException")
    assert _send(client, request).status_code == 200
    assert client.ids() == [1]


def test_a_client_finds_its_own_id_in_the_answer_and_may_set_main_to_it(client: HandMade) -> None:
    mine = fresh_id()
    answer = _send(client, client.append(client.file(1), snapshot_id=mine))
    listed = [each["snapshot-id"] for each in answer.json()["metadata"]["snapshots"]]
    assert mine in listed
    assert answer.json()["metadata"]["current-snapshot-id"] != mine
    newest = _main(client)
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": mine}
    assert _send(client, ([main], [])).status_code == 200
    assert _main(client) == newest


def test_a_staged_table_is_created_with_its_rows_as_one_version(catalog: WritingCatalog) -> None:
    staged = catalog.create("demo", name="filled", schema=SCHEMA, **{"stage-create": True}).json()["metadata"]
    client = HandMade.__new__(HandMade)
    client.catalog, client.table, client.io, client.metadata = catalog, "demo.filled", PyArrowFileIO(), staged
    updates, _ = client.append(client.file(1, 2))
    made = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0], "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
        {"action": "set-properties", "updates": {"owner": "me"}},
    ]
    request = [*made, *updates], [{"type": "assert-create"}]
    assert _send(client, request).status_code == 200
    assert client.ids() == [1, 2]
    assert len(catalog.load("demo.filled")["snapshots"]) == 2, "the version, and the client's own id"
    assert catalog.load("demo.filled")["table-uuid"] == staged["table-uuid"]
    assert _send(client, request).status_code == 200, "the same request again"
    other = fresh_id()
    updates[0]["snapshot"]["snapshot-id"] = updates[1]["snapshot-id"] = other
    assert problem(_send(client, ([*made, *updates], [{"type": "assert-create"}]))) == (
        409,
        "Requirement failed: table already exists",
    )


def _as_deletes(client: HandMade, manifest: ManifestFile) -> ManifestFile:
    """The manifest with the content `deletes` in its own head too."""
    at = Path(manifest.manifest_path.removeprefix("file://"))
    body = at.read_bytes().replace(b"\x0econtent\x08data", b"\x0econtent\x0edeletes", 1)
    at.write_bytes(body)
    manifest[1] = len(body)
    return manifest


def _append_bomb(at: Path) -> int:
    """Append a block that decompresses to 10 GB, and return the length of the file."""
    body = at.read_bytes()
    sync = body[-16:]
    packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = b"".join(packing.compress(bytes(1 << 20)) for _ in range(512)) + packing.flush()
    whole = body + encode_long(1) + encode_long(len(packed)) + packed + sync
    at.write_bytes(whole)
    return len(whole)
