"""HTTP's tokens and TLS: health and metrics are open, the rest is not, and a token can take another's place."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from rootline.catalog.rest.http_settings import HttpSettings, http_settings
from rootline.catalog.rest.principals import tokens_of
from rootline.catalog.rest.serving import read_route, serve_app
from rootline.schemas.errors import Invalid
from tests.catalog.served_catalog import asked
from tests.services.kafka_certificates import make_certificates


async def here(_: Request) -> PlainTextResponse:
    return PlainTextResponse("here")


def an_app() -> Starlette:
    return Starlette(
        routes=[read_route(path, here) for path in ("/healthz", "/readyz", "/metrics", "/page", "/v1/own")]
    )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_health_and_metrics_are_open_and_everything_else_needs_one_of_the_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("old\nnew\n")
    async with (
        serve_app(an_app(), "127.0.0.1", 0, HttpSettings(token_file=file)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200
        refused = await client.get("/page")
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "ROOTLINE_HTTP__TOKEN" in refused.text
        for wrong in ("old", "Basic old", "Bearer o", "Bearer old\u00e9", "Bearer", "Bearer old new"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert (await client.get("/page", headers=headers)).status_code == 401
        for path in ("/healthz/", "//page", "/readyz/../page", "/Healthz"):
            assert (await client.get(path)).status_code in (307, 401, 404)
        assert {(await client.get("/page", headers=bearer(token))).status_code for token in ("old", "new")} == {200}
        file.write_text("new\nnewer\n")
        os.utime(file, ns=(1, 1))
        assert (await client.get("/page", headers=bearer("old"))).status_code == 401
        assert (await client.get("/page", headers=bearer("newer"))).status_code == 200
        file.unlink()  # what was known goes on to count
        assert (await client.get("/page", headers=bearer("newer"))).status_code == 200
        assert (await client.get("/page")).status_code == 401


FOREIGN = (
    "lake.example",
    "127.0.0.1.example",
    "10.0.0.1",
    "2130706433",
    "127.0.0.1@lake.example",
    "[bad",
    "localhost.",
)
OWN = ("localhost", "localhost:1", "127.0.0.1:9", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]:1")


async def test_without_a_token_a_request_at_loopback_must_name_this_machine() -> None:
    """DNS rebinding: a page has its browser ask us under the page's own name."""
    async with serve_app(an_app(), "127.0.0.1", 0, HttpSettings()) as url, httpx.AsyncClient(base_url=url) as client:
        for path in ("/page", "/metrics", "/readyz", "/healthz"):
            said = [(await client.get(path, headers={"Host": host})).status_code for host in (*FOREIGN, *OWN)]
            assert said == [403] * len(FOREIGN) + [200] * len(OWN), path
        assert "ROOTLINE_HTTP__TOKEN" in (await client.get("/page", headers={"Host": "lake.example"})).text
    settings = HttpSettings(token=SecretStr("secret"))
    async with serve_app(an_app(), "127.0.0.1", 0, settings) as url, httpx.AsyncClient(base_url=url) as client:
        named = bearer("secret") | {"Host": "lake.example"}
        assert (await client.get("/page", headers=named)).status_code == 200, "with a token, by whatever name"


def test_the_catalog_without_a_token_answers_no_foreign_name(tmp_path: Path) -> None:
    with asked(tmp_path) as client:
        for path in ("/v1/config", "/v1/namespaces"):
            for host in FOREIGN:
                refused = client.get(path, headers={"Host": host})
                assert (refused.status_code, refused.json()["error"]["type"]) == (403, "ForbiddenException")
            assert client.get(path).status_code == 200
    with asked(tmp_path, token=SecretStr("of-catalog")) as client:
        headers = bearer("of-catalog") | {"Host": "lake.example"}
        assert client.get("/v1/config", headers=headers).status_code == 200


FOREIGN_PAGES = ("https://lake.example", "http://10.0.0.1:80", "null", "http://[bad", "")


def test_without_a_token_a_web_page_of_another_host_changes_nothing(tmp_path: Path) -> None:
    """A page may send a POST as plain text to 127.0.0.1 without asking first. The browser adds the page's origin."""
    body = '{"namespace": ["taken"]}'
    with asked(tmp_path, log="") as client:
        for page in FOREIGN_PAGES:
            headers = {"Origin": page, "Content-Type": "text/plain"}
            refused = client.post("/v1/own/namespaces", content=body, headers=headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (403, "ForbiddenException"), page
        assert client.get("/v1/own/namespaces").json()["namespaces"] == []
        own = client.post("/v1/own/namespaces", content=body, headers={"Origin": "http://localhost:8181"})
        assert own.status_code == 200


def test_the_catalog_takes_its_own_tokens_and_those_of_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_HTTP__TOKEN", "of-http")
    with asked(tmp_path, token=SecretStr("of-catalog")) as client:
        answers = [client.get("/v1/config", headers=bearer(token)) for token in ("of-http", "of-catalog", "other")]
        assert [answer.status_code for answer in answers] == [200, 200, 401]
        assert client.get("/v1/config").json()["error"]["type"] == "NotAuthorizedException"
        assert client.get("/metrics").status_code == 200


async def test_with_a_certificate_all_of_http_is_https(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    settings = HttpSettings(tls_certificate_file=made.key_store)
    async with serve_app(an_app(), "127.0.0.1", 0, settings) as url:
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(made.authority))
        async with httpx.AsyncClient(verify=trusted) as client:
            assert (await client.get(f"{url}/page")).text == "here"
        async with httpx.AsyncClient() as stranger:
            with pytest.raises(httpx.ConnectError):
                await stranger.get(f"{url}/healthz")
            with pytest.raises(httpx.HTTPError):
                await stranger.get(url.replace("https", "http") + "/healthz")


def test_a_certificate_that_cannot_be_used_is_refused_with_its_name_and_without_its_content(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    other = tmp_path / "other.pem"
    other.write_text("-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----\n")
    for certificate, key, reason in (
        (tmp_path / "absent", None, "cannot be read"),
        (made.key_store, tmp_path / "absent", "tls_key_file .*absent cannot be read"),
        (made.key_store, other, "cannot be used"),
        (made.authority, None, "cannot be used"),
    ):
        with pytest.raises(Invalid, match=reason) as refused:
            HttpSettings(tls_certificate_file=certificate, tls_key_file=key).tls()
        assert "hidden" not in str(refused.value)
    with pytest.raises(ValidationError, match="needs tls_certificate_file"):
        HttpSettings(tls_key_file=made.key_store)


def test_settings_come_from_the_environment_and_show_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_HTTP__TOKEN", "hidden")
    assert http_settings().tokens().allow("bearer hidden")
    assert "hidden" not in f"{http_settings()!r} {http_settings().tokens().file!r}"
    monkeypatch.setenv("ROOTLINE_HTTP__TOKEN_FILE", str(tmp_path / "absent"))
    with pytest.raises(Invalid, match="not both") as refused:
        http_settings()
    assert "hidden" not in str(refused.value)
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(Invalid, match="is empty"):
        tokens_of(None, tmp_path / "empty")


def test_tokens_are_not_in_the_text_of_what_holds_them(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("hidden\n")
    assert "hidden" not in repr(tokens_of(None, tmp_path / "tokens"))
    assert "hidden" not in repr(tokens_of(SecretStr("hidden"), None))
