"""`rootline export` and `rootline catalog serve`, and the catalog beside a coordinator."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest

from rootline.connect import connect
from tests.cli.conftest import Run
from tests.cli.test_service_commands import service, stopped


def asked(url: str, token: str | None = None) -> Any:
    """The JSON of an answer."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_export_prints_where_the_metadata_is(run: Run, lake: Path) -> None:
    result = run("export", "demo.flights", "--warehouse", lake)
    assert result.code == 0
    [location] = result.lines
    assert location.startswith(f"file://{lake}/demo/flights/export/v3/")
    assert json.loads(Path(location.removeprefix("file://")).read_bytes())["format-version"] == 3


def test_export_says_what_it_took_and_takes_next_to_nothing_again(run: Run, lake: Path) -> None:
    words = ("export", "demo.flights", "--version", 1, "--format", "v2", "--warehouse", lake, "--json")
    [first], [again] = run(*words).records, run(*words).records
    assert (first["version"], first["format_version"], first["table"]) == (1, 2, "demo.flights")
    assert first["requests"] == first["lists"] + first["gets"] + first["puts"]
    assert min(first["puts"], first["bytes"]) > 0
    assert (again["puts"], again["bytes"], again["gets"]) == (0, 0, 1), (
        "the stored one: the head was read to open the table"
    )
    assert first["seconds"] >= 0
    with connect(lake, coordinator="elsewhere") as opened:
        [of_version] = [item for item in opened.table("demo.flights").history() if item.version == 1]
    assert first["snapshot_id"] == again["snapshot_id"] == of_version.snapshot.snapshot_id
    assert first["location"] == again["location"]


def test_export_refuses_what_it_cannot_find(run: Run, lake: Path) -> None:
    missing = run("export", "demo.absent", "--warehouse", lake)
    assert (missing.code, "table-unknown" in missing.err) == (1, True)
    later = run("export", "demo.flights", "--version", 99, "--warehouse", lake)
    assert (later.code, "version-unknown" in later.err) == (1, True)
    assert run("export", "demo.flights", "--format", "v4", "--warehouse", lake).code == 2
    assert run("export", "demo.flights").code == 2


@pytest.mark.parametrize("warehouse", ["memory://", "ftp://host/x"])
def test_a_catalog_of_what_nobody_can_read_is_refused(run: Run, warehouse: str) -> None:
    result = run("catalog", "serve", "--warehouse", warehouse)
    assert (result.code, "setting-invalid" in result.err) == (2, True)


def test_a_catalog_of_a_folder_that_is_not_there_makes_none(run: Run, tmp_path: Path) -> None:
    result = run("catalog", "serve", "--port", 0, "--warehouse", tmp_path / "mistyped")
    assert (result.code, "there is no such folder" in result.err) == (3, True)
    assert not (tmp_path / "mistyped").exists()


def test_keys_are_not_given_out_without_a_token(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_CATALOG__SHARE_S3_KEYS", "true")
    result = run("catalog", "serve", "--warehouse", lake)
    assert (result.code, "set a token as well" in result.err) == (2, True)


def test_keys_to_share_must_be_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_CATALOG__SHARE_S3_KEYS", "true")
    monkeypatch.setenv("ROOTLINE_CATALOG__TOKEN", "a-word")
    result = run("catalog", "serve", "--warehouse", "s3://bucket/lake")
    assert (result.code, "no keys to share" in result.err) == (2, True)


@pytest.mark.slow
def test_a_catalog_says_where_it_listens_and_stops_when_it_is_told(lake: Path) -> None:
    with service("catalog", "serve", "--warehouse", lake, "--port", 0) as (process, said):
        assert (said["event"], said["roles"]) == ("listening", ["catalog"])
        assert asked(f"{said['url']}/readyz") == {"ready": True, "reason": ""}
        body = asked(f"{said['url']}/v1/namespaces/demo/tables/flights")
        assert body["metadata"]["properties"]["rootline.table"] == "demo.flights"
        with urllib.request.urlopen(f"{said['url']}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert "rootline_build_info{" in text
        assert 'rootline_catalog_request_seconds_count{route="' in text
        code, out = stopped(process, signal.SIGINT)
    assert (code, json.loads(out)) == (0, {"event": "stopped"})


@pytest.mark.slow
def test_a_port_that_is_taken_is_a_usage_error(run: Run, lake: Path) -> None:
    with service("catalog", "serve", "--warehouse", lake, "--port", 0) as (_, said):
        port = said["url"].rsplit(":", 1)[1]
        result = run("catalog", "serve", "--warehouse", lake, "--port", port)
    assert (result.code, "give another --port" in result.err) == (2, True)


@pytest.mark.slow
def test_up_serves_the_catalog_beside_its_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "rootline_catalog__token").write_text("kept in a folder")
    monkeypatch.setenv("ROOTLINE_SECRETS_DIR", str(tmp_path / "secrets"))
    with service("up", "--root", tmp_path / "lake") as (process, said):
        with connect(tmp_path / "lake", coordinator="elsewhere") as lake:
            table = lake.create_table("demo.t", _schema())
            for number in range(2):
                commit = table.append({"id": [number]})
                path = f"{said['url']}/v1/v3/namespaces/demo/tables/t"
                body = asked(path, "kept in a folder")
                assert body["metadata"]["properties"]["rootline.version"] == str(commit.version), "at once"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(f"{said['url']}/v1/config")
        with urllib.request.urlopen(f"{said['url']}/metrics", timeout=30) as answer:
            assert b'rootline_export_lag_seconds{table="demo.t"} 0.0' in answer.read()
        assert stopped(process, signal.SIGTERM)[0] == 0


@pytest.mark.slow
def test_a_coordinator_serves_no_catalog_when_it_is_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOTLINE_COORDINATOR__HTTP_CATALOG", "false")
    with service("up", "--root", tmp_path / "lake") as (_, said), pytest.raises(urllib.error.HTTPError, match="404"):
        asked(f"{said['url']}/v1/config")


@pytest.mark.slow
def test_a_change_of_a_paused_table_is_refused_before_it_is_published(run: Run, tmp_path: Path) -> None:
    with service("up", "--root", tmp_path / "lake") as (_, said):
        with connect(tmp_path / "lake", coordinator="elsewhere") as lake:
            lake.create_table("demo.t", _schema())
        own = f"{said['url']}/v1/own/namespaces/demo/tables/t"
        change = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
        assert run("pause", "demo.t", "--why", "wrong source", "--warehouse", tmp_path / "lake").code == 0
        with httpx.Client(timeout=30) as client:
            while "wrong source" not in client.get(f"{said['url']}/readyz").text:
                pass  # the coordinator learns of the pause in its next round
            answer = client.post(own, json=change)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert "nothing was published, because the table is paused" in answer.json()["error"]["message"]
            assert "wrong source" in answer.json()["error"]["message"]
            assert client.delete(own).status_code == 503
            assert client.get(own).status_code == 200
            assert client.post(f"{own}/metrics", json={}).status_code == 204
            assert run("resume", "demo.t", "--warehouse", tmp_path / "lake").code == 0
            while (answer := client.post(own, json=change)).status_code == 503:
                pass
            assert answer.json()["metadata"]["properties"]["a"] == "b"


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("id", pa.int64())])
