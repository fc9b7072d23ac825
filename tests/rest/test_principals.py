"""Principals: each role against each kind of route, namespaces, and the file that names them."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from rootline.catalog.rest.http_settings import CatalogSettings
from rootline.catalog.rest.principals import Principal, Principals, Role
from rootline.catalog.rest.responses import Refusal
from rootline.cli.catalog_service import open_catalog
from rootline.client.lake import Lake
from rootline.schemas.errors import Invalid
from tests.catalog.served_catalog import asked

SALES = "/v1/own/namespaces/sales"
OTHER = "/v1/own/namespaces/other"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def entry(name: str, role: str, *namespaces: str) -> str:
    """An entry of the file. The token is the name."""
    limited = f"namespaces = {list(namespaces)}\n" if namespaces else ""
    return f'[principals.{name}]\ntoken_sha256 = "{digest(name)}"\nrole = "{role}"\n{limited}'


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "principals.toml"
    path.write_text(
        "".join(
            [
                *(entry(role, role) for role in ("read", "write", "admin")),
                *(entry(f"{role}-sales", role, "sales") for role in ("read", "write", "admin")),
                entry("deep", "read", "sales.eu.raw"),
            ]
        )
    )
    return path


@pytest.fixture
def client(lake: Lake, folder: Path, file: Path) -> Iterator[httpx.Client]:
    """A client of a catalog with principals, and tables in five namespaces."""
    for name in ("sales.t", "sales.eu.t", "sales.eu.raw.t", "salesforce.t", "other.t"):
        lake.create_table(name, {"id": "long"})
    lake.create_view("sales.v", "SELECT 1")
    with asked(folder, log="", principals_file=file) as opened:
        yield opened


def status(client: httpx.Client, name: str, method: str, path: str) -> int:
    return client.request(method, path, headers=bearer(name), json={} if method == "POST" else None).status_code


READING = [
    ("GET", "/v1/config"),
    ("GET", "/v1/own/namespaces"),
    *((method, f"{SALES}{rest}") for method in ("GET", "HEAD") for rest in ("", "/tables/t", "/views/v")),
    ("GET", f"{SALES}/tables"),
    ("GET", f"{SALES}/views"),
    ("POST", f"{SALES}/tables/t/metrics"),
]
WRITING = [
    ("POST", "/v1/own/namespaces"),
    ("POST", f"{SALES}/properties"),
    ("POST", f"{SALES}/tables"),
    ("POST", f"{SALES}/tables/t"),
    ("POST", f"{SALES}/views"),
    ("POST", f"{SALES}/register-view"),
    ("POST", f"{SALES}/views/v"),
    ("POST", "/v1/own/tables/rename"),
    ("POST", "/v1/own/views/rename"),
    ("DELETE", f"{SALES}/tables/absent"),
    ("DELETE", f"{SALES}/views/absent"),
]
OF_ADMINS = [("POST", f"{SALES}/register"), ("DELETE", f"{SALES}/tables/absent?purgeRequested=true")]


def test_each_role_may_do_what_the_roles_below_it_may_do(client: httpx.Client) -> None:
    for least, routes in ((Role.READ, READING), (Role.WRITE, WRITING), (Role.ADMIN, OF_ADMINS)):
        for role in Role:
            for method, path in routes:
                found = status(client, role.name.lower(), method, path)
                assert (found == 403) == (role < least), (role, method, path)
                assert found != 401


def test_a_client_that_may_write_finds_the_folder_for_its_metadata(client: httpx.Client, folder: Path) -> None:
    place = folder / "sales/t/rest/metadata"
    for name, is_made in (("read", False), ("write-sales", True)):
        assert status(client, name, "GET", f"{SALES}/tables/t") == 200
        assert place.is_dir() == is_made
    assert status(client, "write", "GET", f"{SALES}/tables/absent") == 404
    assert not (folder / "sales/absent").exists()
    assert not (folder / "other/t/rest").exists()


def test_a_refusal_names_the_role_that_the_request_needs(client: httpx.Client) -> None:
    for name, method, path, needed in (
        ("read", "POST", f"{SALES}/views", "read has the role read, and this request needs write"),
        ("write", *OF_ADMINS[1], "write has the role write, and this request needs admin"),
        ("write-sales", "DELETE", OTHER, "write-sales has no role in the namespace 'other'; this request needs write"),
        ("admin-sales", *OF_ADMINS[0], "this request needs admin in all of them"),
    ):
        error = client.request(method, path, headers=bearer(name)).json()["error"]
        assert (error["code"], error["type"]) == (403, "ForbiddenException")
        assert needed in error["message"]


def test_a_namespace_covers_those_below_it_and_no_other(client: httpx.Client) -> None:
    for path in (SALES, f"{SALES}%1Feu", f"{SALES}.eu/tables", f"{SALES}%1Feu%1Fraw/tables/t"):
        assert status(client, "read-sales", "GET", path) == 200, path
    for path in (OTHER, "/v1/own/namespaces/salesforce", "/v1/own/namespaces/absent", f"{OTHER}/tables/t"):
        for name in ("read-sales", "admin-sales"):
            assert status(client, name, "GET", path) == 403, "whether it exists is not shown"
    for path in (SALES, f"{SALES}%1Feu/tables"):
        assert status(client, "deep", "GET", path) == 403
    assert status(client, "deep", "GET", f"{SALES}%1Feu%1Fraw/tables/t") == 200


def test_lists_show_what_a_principal_may_read_and_the_way_there(client: httpx.Client) -> None:
    def listed(name: str, parent: str = "") -> list[str]:
        answer = client.get("/v1/own/namespaces", params={"parent": parent}, headers=bearer(name))
        assert answer.status_code == 200
        return [".".join(namespace) for namespace in answer.json()["namespaces"]]

    assert listed("read") == ["other", "sales", "salesforce"]
    assert listed("read-sales") == listed("deep") == ["sales"]
    assert listed("deep", "sales") == ["sales.eu"]
    assert listed("deep", "sales\x1feu") == ["sales.eu.raw"]
    for parent in ("other", "absent"):
        refused = client.get("/v1/own/namespaces", params={"parent": parent}, headers=bearer("deep"))
        assert refused.status_code == 403


def test_a_body_that_names_another_namespace_is_refused(client: httpx.Client, lake: Lake) -> None:
    def send(path: str, body: Mapping[str, object]) -> int:
        return client.post(f"/v1/own/{path}", json=body, headers=bearer("write-sales")).status_code

    assert send("namespaces", {"namespace": ["other", "new"]}) == 403
    assert send("namespaces", {"namespace": ["sales", "new"]}) == 200
    for route in ("tables", "views"):
        for source, destination in (("sales", "other"), ("other", "sales")):
            names = {
                "source": {"namespace": [source], "name": "t"},
                "destination": {"namespace": [destination], "name": "w"},
            }
            assert send(f"{route}/rename", names) == 403
    assert "other.new" not in lake.namespaces()


def test_a_wrong_token_learns_nothing(client: httpx.Client) -> None:
    paths = ["/v1/config", SALES, f"{SALES}/tables/t", f"{SALES}/tables/absent", "/v1/other"]
    given = [{}, bearer("nobody"), {"Authorization": "Basic read"}, {"Authorization": "read"}, bearer(digest("read"))]
    answers = [client.request(method, path, headers=headers) for method in ("GET", "POST", "DELETE") for path in paths
               for headers in given]  # fmt: skip
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1


def test_a_token_of_http_is_no_principal(lake: Lake, folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_HTTP__TOKEN", "of-http")
    with asked(folder, principals_file=file) as client:
        assert status(client, "of-http", "GET", "/v1/config") == 401
        assert status(client, "read", "GET", "/v1/config") == 200
        assert lake.views() == []


def test_a_changed_file_counts_at_the_next_request_and_a_broken_one_keeps_what_was_known(
    client: httpx.Client, file: Path
) -> None:
    file.write_text(entry("read", "write") + entry("new", "read"))
    os.utime(file, ns=(1, 1))
    assert [status(client, name, "GET", "/v1/config") for name in ("read", "new", "write")] == [200, 200, 401]
    assert status(client, "read", "DELETE", f"{SALES}/views/absent") == 404, "its role is another one"
    for broken in ("[principals", "", entry("read", "owner"), entry("a b", "read")):
        file.write_text(broken)
        with capture_logs() as logs:
            assert status(client, "new", "GET", "/v1/config") == 200
        assert any("could not be re-read" in line["event"] for line in logs)
        assert digest("read") not in str(logs)
    file.unlink()
    assert [status(client, name, "GET", "/v1/config") for name in ("new", "write")] == [200, 401]
    file.write_text(entry("write", "read"))
    assert [status(client, name, "GET", "/v1/config") for name in ("new", "write")] == [401, 200]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[principals", "is not TOML"),
        ("", "principals is missing"),
        ("[principals]", "principals must have 1 items or more"),
        (entry("a", "owner"), "principals.a.role must be one of"),
        (entry("a", "read").replace(digest("a"), "a"), "principals.a.token_sha256 must match"),
        (entry("a", "read") + 'token = "a"\n', "principals.a.token is no field"),
        (entry("a", "read") + "namespaces = []\n", "principals.a.namespaces must have 1 items or more"),
        (entry("a", "read", "x..y"), "is not a namespace"),
        (entry("a", "read", "x.*"), "is not a namespace"),
        (entry("a", "read") + entry("b", "read").replace(digest("b"), digest("a").upper()), "a and b have one token"),
        ('[principals."a b"]\ntoken_sha256 = "' + digest("a") + '"\nrole = "read"\n', "a name has up to 64 letters"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(Invalid, match="principals_file") as refused:
        Principals.of_file(tmp_path / "file")
    assert reason in refused.value.message
    assert refused.value.code == "setting-invalid"
    assert digest("a") not in refused.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        CatalogSettings(principals_file=tmp_path / "absent").principals()


def test_every_known_digest_is_compared_whatever_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a comparison would show a part of a digest, or the place of an entry in the file."""
    (tmp_path / "file").write_text("".join(entry(name, "read") for name in "abc"))
    known = Principals.of_file(tmp_path / "file")
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for token in ("a", "c", "nobody"):
        compared.clear()
        known.find(f"Bearer {token}")
        assert compared == [bytes.fromhex(digest(name)) for name in "abc"]


def test_a_token_that_may_do_everything_is_not_set_beside_principals(tmp_path: Path) -> None:
    for also in ({"token": SecretStr("a")}, {"token_file": tmp_path / "b"}):
        with pytest.raises(ValidationError, match="not both"):
            CatalogSettings(principals_file=tmp_path / "a", **also)
    with pytest.raises(ValidationError, match="keys to all of the store"):
        CatalogSettings(principals_file=tmp_path / "a", share_s3_keys=True)


def test_a_writing_request_is_logged_with_its_principal(client: httpx.Client) -> None:
    with capture_logs() as logs:
        for name, method, path in (
            ("write", "DELETE", f"{SALES}/views/v"),
            ("read", "DELETE", f"{SALES}/views/v"),
            ("nobody", "DELETE", f"{SALES}/views/v"),
            ("read", "GET", SALES),
        ):
            status(client, name, method, path)
    lines = [line for line in logs if line.get("action") == "catalog-write"]
    assert [(line["principal"], line["route"], line["status"]) for line in lines] == [
        ("write", "drop-view", 204),
        ("read", "drop-view", 403),
        (None, "drop-view", 401),
    ]
    assert lines[0]["path"] == f"{SALES}/views/v"


@pytest.mark.parametrize(
    ("host", "secured", "writes"),
    [("127.0.0.1", "", True), ("0.0.0.0", "", False), ("0.0.0.0", "token", True), ("0.0.0.0", "principals", True)],
)
async def test_without_a_token_the_catalog_writes_only_for_this_machine(
    folder: Path, lake: Lake, file: Path, host: str, secured: str, writes: bool
) -> None:
    from prometheus_client import CollectorRegistry

    lake.create_namespace("demo")
    settings = CatalogSettings(
        token=SecretStr("a") if secured == "token" else None, principals_file=file if secured == "principals" else None
    )
    async with open_catalog(str(folder), "", host, settings, CollectorRegistry()) as served:
        assert bool(served.writing) == writes
        assert served.needs_token == bool(secured)


def test_a_principal_without_namespaces_may_use_every_one() -> None:
    anywhere = Principal("a", Role.READ)
    anywhere.check(Role.READ, "demo")
    anywhere.check_everywhere(Role.READ)
    with pytest.raises(Refusal, match="needs write"):
        anywhere.check(Role.WRITE, "demo")
