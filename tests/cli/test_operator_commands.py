"""`explain`, `config`, `store probe`, and what every command shares."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rootline.schemas.error_codes import CODES
from tests.cli.conftest import Run


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_is_explained(run: Run, code: str) -> None:
    result = run("explain", code)
    assert result.code == 0
    assert CODES[code].do in result.out


def test_a_code_that_does_not_exist_ends_with_one_and_a_hint(run: Run) -> None:
    result = run("explain", "stale-sauce")
    assert result.code == 1
    assert "stale-source" in result.err


def test_all_codes_are_listed(run: Run) -> None:
    assert {record["code"] for record in run("explain", "--json").records} == set(CODES)


def test_a_folder_keeps_its_word(run: Run, tmp_path: Path) -> None:
    result = run("store", "probe", tmp_path / "store", "--rounds", 1, "--json")
    assert (result.code, result.records[0]["conditional_put"]) == (0, "kept")


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://"])
def test_a_url_of_no_known_form_is_a_usage_error(run: Run, url: str) -> None:
    assert run("store", "probe", url).code == 2


def test_settings_are_printed_with_their_secrets_masked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_S3__ACCESS_KEY_ID", "an-identity")
    monkeypatch.setenv("ROOTLINE_S3__SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("ROOTLINE_REDIS__URL", "rediss://user:hunter2@cache.example/0")
    monkeypatch.setenv("ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX", "7")
    result = run("config", "print", "--warehouse", "s3://bucket/prefix")
    assert result.code == 0
    assert "hunter2" not in result.out
    assert "an-identity" not in result.out
    assert "ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX = 7" in result.lines
    assert "ROOTLINE_WAREHOUSE = s3://bucket/prefix" in result.lines
    assert "ROOTLINE_REDIS__URL = rediss://********@cache.example/0" in result.lines


def test_config_check_reaches_the_lake(run: Run, lake: Path) -> None:
    assert run("config", "check", "--warehouse", lake).code == 0


@pytest.mark.parametrize("name", ["ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX", "ROOTLINE_S3__CONNECTIONS_MAX"])
def test_a_setting_that_cannot_be_used_is_named(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "many")
    result = run("config", "check", "--warehouse", lake)
    assert result.code == 2
    assert name in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ROOTLINE_COORDINATOR__BATCH_INTENT_MAX", "ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX"),
        ("ROOTLINE_S3_ENDPOINT", "ROOTLINE_S3__ENDPOINT"),
        ("ROOTLINE_WAREHUSE", "ROOTLINE_WAREHOUSE"),
    ],
)
def test_a_misspelt_setting_is_named_with_the_one_that_was_meant(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "7")
    result = run("config", "check", "--warehouse", lake)
    assert result.code == 2
    assert f"{name}: no setting has this name; did you mean {meant}?" in result.err


def test_variables_that_kubernetes_sets_for_services_are_no_misspelt_settings(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROOTLINE_COORDINATOR_PORT", "ROOTLINE_COORDINATOR_SERVICE_HOST", "ROOTLINE_CATALOG_PORT_8181_TCP"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:8181")
    assert run("config", "check", "--warehouse", lake).code == 0


def test_a_port_that_is_taken_is_a_usage_error_that_names_the_port(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("coordinator", "--warehouse", tmp_path / "lake", "--http-port", port)
    assert result.code == 2
    assert f"127.0.0.1:{port}" in result.err
    assert "--http-port" in result.err


def _schema(folder: Path) -> Path:
    path = folder / "schema.json"
    path.write_text('{"id": "long"}')
    return path


def test_checking_the_settings_makes_no_folder(run: Run, tmp_path: Path) -> None:
    assert run("config", "check", "--warehouse", tmp_path / "typo").code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_reached_ends_with_three(run: Run, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run("config", "check", "--warehouse", blocked / "lake").code == 3
    assert run("table", "create", "demo.t", "--schema", _schema(tmp_path), "--warehouse", blocked / "lake").code == 3


def test_the_version_is_printed(run: Run) -> None:
    result = run("--version")
    assert result.code == 0
    assert result.out.strip()


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, rootline.cli.app; "
        "print(sorted({'pyarrow', 'pyiceberg', 'pydantic', 'rich', 'asyncio', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_a_start_loads_is_not_searched_for_garbage_again_and_again(run: Run) -> None:
    gc.set_threshold(700, 10, 10)
    assert run("--version").code == 0
    assert gc.get_threshold()[0] > 10_000


def test_an_unexpected_failure_is_one_line_too(run: Run, lake: Path) -> None:
    result = run("tree", "demo.flights", "--warehouse", lake, "--svg", lake / "no" / "folder.svg")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) == 1
