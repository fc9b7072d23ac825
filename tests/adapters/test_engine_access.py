"""Where other engines find a warehouse's files, and what they are told about the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from rootline.adapters.open import engine_storage, warehouse_url
from rootline.adapters.settings import S3Settings
from rootline.schemas.errors import Invalid

KEYS = S3Settings(
    endpoint="http://store:7070",
    region="eu-1",
    access_key_id="me",
    secret_access_key=SecretStr("hidden"),
    session_token=SecretStr("short"),
)


@pytest.mark.parametrize(
    ("url", "absolute"),
    [
        ("/lake/of tables", "file:///lake/of tables"),
        ("file:///lake/of%20tables", "file:///lake/of tables"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
    ],
)
def test_a_warehouse_has_one_absolute_url(url: str, absolute: str) -> None:
    assert warehouse_url(url) == absolute


def test_a_relative_folder_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert warehouse_url("lake") == f"file://{tmp_path}/lake"


def test_an_empty_url_is_refused() -> None:
    with pytest.raises(Invalid, match="empty"):
        warehouse_url(" ")


def test_engines_hear_how_a_bucket_is_reached_but_no_keys() -> None:
    assert engine_storage("s3://bucket/lake", KEYS, share_keys=False) == {
        "s3.endpoint": "http://store:7070",
        "s3.path-style-access": "true",
        "s3.region": "eu-1",
        "client.region": "eu-1",
        "s3.delete-enabled": "false",
    }


def test_amazons_own_store_is_left_to_the_engines_ways() -> None:
    assert engine_storage("s3://bucket", S3Settings(), share_keys=True) == {
        "s3.region": "us-east-1",
        "client.region": "us-east-1",
        "s3.delete-enabled": "false",
    }


def test_keys_are_handed_on_when_asked_for() -> None:
    found = engine_storage("s3://bucket/lake", KEYS, share_keys=True)
    assert found["s3.access-key-id"] == "me"
    assert found["s3.secret-access-key"] == "hidden"
    assert found["s3.session-token"] == "short"


def test_a_folder_needs_no_settings() -> None:
    assert engine_storage("/lake", KEYS, share_keys=True) == {}
