"""No secret is in what commands and services write: their lines, errors, tracebacks, logs, answers and files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from rootline.adapters.open import store_settings
from rootline.catalog.rest.http_settings import catalog_settings, http_settings
from rootline.connect import connect
from tests.cli.conftest import Run

SECRETS = {
    "ROOTLINE_CATALOG__TOKEN": "catalog-token-5f2c",
    "ROOTLINE_HTTP__TOKEN": "http-token-81aa",
    "ROOTLINE_S3__ACCESS_KEY_ID": "s3-access-key-2b1e",
    "ROOTLINE_S3__SECRET_ACCESS_KEY": "s3-secret-c077",
    "ROOTLINE_S3__SESSION_TOKEN": "s3-session-19be",
    "ROOTLINE_KAFKA__SASL_PASSWORD": "kafka-password-d3d3",
    "ROOTLINE_REDIS__PASSWORD": "redis-password-77ab",
}
IN_URLS = {"ROOTLINE_REDIS__URL": "redis://someone:url-p@ssword-9d41@127.0.0.1:9/0"}
BESIDE = {
    "ROOTLINE_S3__ENDPOINT": "http://127.0.0.1:9",
    "ROOTLINE_S3__REGION": "nowhere",
    "ROOTLINE_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "ROOTLINE_KAFKA__SASL_MECHANISM": "PLAIN",
    "ROOTLINE_KAFKA__SASL_USERNAME": "someone",
    "ROOTLINE_KAFKA__REQUEST_TIMEOUT_S": "1",
}
ODD = ("someone:first-3c1d/second-9e2b", "so me:77 first-3c1d/sec@nd-9e2b")
"""Logins that no URL may have as they are: a slash, a space, or a piece that looks like a port."""
NEVER = (*SECRETS.values(), "ssword-9d41", "url-p@", "3c1d", "9e2b")
LAKE = ("--warehouse", "s3://bucket/lake", "--log", "kafka://127.0.0.1:9")


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every secret there is, of services that do not answer."""
    for name, value in (SECRETS | IN_URLS | BESIDE).items():
        monkeypatch.setenv(name, value)


def secrets_in(text: str) -> list[str]:
    return [secret for secret in NEVER if secret in text]


@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("config", "print", *LAKE), {}),
        (("config", "check", *LAKE), {}),
        (("status", *LAKE), {}),
        (("topics", "check", "--log", LAKE[-1]), {}),
        (("tasks", "list", *LAKE), {}),
        (("store", "probe", LAKE[1]), {}),
        (("scan", "demo.t", *LAKE), {}),
        (("worker", *LAKE), {"ROOTLINE_WORKER__TASKS_MAX": "kafka-password-d3d3"}),
        (("config", "print"), {"ROOTLINE_CATALOG__TOKEN_FILE": "/absent"}),
        (("config", "print"), {"ROOTLINE_S3__SECRET_ACCESS_KEY_FILE": "/absent"}),
        (("config", "print"), {"ROOTLINE_S3__CONNECTIONS_MAX": "s3-secret-c077"}),
        (("config", "print"), {"ROOTLINE_S3__ENDPOINT": "http://someone:s3-secret-c077@127.0.0.1:9"}),
        (("config", "print"), {"ROOTLINE_KAFKA__BOOTSTRAP_SERVERS": "someone:kafka-password-d3d3@broker:9092"}),
        (("config", "print"), {"ROOTLINE_REDIS__URL": "http://someone:redis-password-77ab@cache"}),
        (("table", "list", "--warehouse", "s4://someone:s3-secret-c077@bucket/lake"), {}),
        (("table", "list", "--warehouse", "s3://someone:s3-secret-c077@bucket/lake"), {}),
        (("table", "list", "--log", "amqp://someone:kafka-password-d3d3@broker", *LAKE[:2]), {}),
        (("table", "list", "--log", "kafka://someone:kafka-password-d3d3@broker", *LAKE[:2]), {}),
    ],
    ids=lambda value: " ".join([*value][:3]),
)
def test_commands_and_their_errors_and_tracebacks_show_no_secret(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], changed: dict[str, str]
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    result = run(*words)
    assert secrets_in(result.out + result.err) == []
    assert result.out + result.err
    if words[0] != "config":
        assert result.code != 0


@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize("login", ODD)
@pytest.mark.parametrize(
    ("words", "variable", "value"),
    [
        (("table", "list", "--warehouse", "s4://{}@bucket/lake"), "", ""),
        (("table", "list", "--warehouse", "s3://{}@bucket/lake"), "", ""),
        (("table", "list", "--log", "amqp://{}@broker", *LAKE[:2]), "", ""),
        (("table", "list", "--log", "kafka://{}@broker", *LAKE[:2]), "", ""),
        (("config", "print", "--warehouse", "s3://{}@bucket/lake"), "", ""),
        (("config", "print"), "ROOTLINE_S3__ENDPOINT", "http://{}@127.0.0.1:9"),
        (("config", "print"), "ROOTLINE_REDIS__URL", "redis://{}@cache:9/0"),
        (("tasks", "list", *LAKE), "ROOTLINE_REDIS__URL", "redis://{}@cache:9/0"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_login_that_no_url_may_have_is_not_shown_either(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variable: str, value: str, login: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, value.format(login))
    result = run(*(word.format(login) for word in words))
    assert secrets_in(result.out + result.err) == []
    assert result.out + result.err


@pytest.mark.usefixtures("secrets")
def test_settings_show_no_secret_when_they_are_shown() -> None:
    for settings in (store_settings(), catalog_settings(), http_settings(), http_settings().tokens()):
        assert secrets_in(repr(settings) + str(settings)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("secrets")
def test_a_service_at_debug_writes_no_secret_while_it_is_asked_with_all_of_them(tmp_path: Path) -> None:
    """Its output, its log, its answers and every file that it leaves."""
    program = [sys.executable, "-c", "from rootline.cli.app import main; main()"]
    words = [*program, "up", "--root", "lake", "--log-level", "debug", "--json"]
    given = {**os.environ, "ROOTLINE_TRACEBACK": "1", "ROOTLINE_LOG": ""}
    answers = []
    with (tmp_path / "up.err").open("wb") as errors:
        process = subprocess.Popen(words, cwd=tmp_path, env=given, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        with connect(tmp_path / "lake", coordinator="elsewhere") as lake:
            lake.create_table("demo.t", {"id": "long"}).append({"id": [1]})
        for token in ("wrong", *SECRETS.values()):
            for path in ("/v1/config", "/v1/namespaces/none/tables/none", "/absent", "/readyz", "/metrics"):
                asked = Request(json.loads(said)["url"] + path, headers={"Authorization": f"Bearer {token}"})
                try:
                    with urlopen(asked, timeout=60) as answer:
                        answers.append(answer.read().decode())
                except HTTPError as refused:
                    answers.append(refused.read().decode())
        process.terminate()
        said += process.communicate(timeout=60)[0]
    finally:
        process.kill()
        process.communicate()
    files = {path: path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "log.sqlite" for path in files)
    assert secrets_in("".join((said, *answers))) == []
    assert {str(path): found for path, text in files.items() if (found := secrets_in(text))} == {}
