"""The catalog's settings: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from rootline.catalog.rest.http_settings import CatalogSettings, catalog_settings
from rootline.schemas.errors import Invalid


def test_the_environment_is_read_and_the_token_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_CATALOG__TOKEN", "hidden")
    monkeypatch.setenv("ROOTLINE_CATALOG__HTTP_PORT", "9000")
    settings = catalog_settings()
    assert (settings.tokens().allow("Bearer hidden"), settings.http_port) == (True, 9000)
    assert "hidden" not in repr(settings)


def test_a_token_comes_from_a_secrets_folder_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rootline_catalog__token").write_text("in a folder")
    (tmp_path / "token").write_text("in a file\n")
    assert CatalogSettings(token_file=tmp_path / "token").tokens().allow("Bearer in a file")
    monkeypatch.setenv("ROOTLINE_SECRETS_DIR", str(tmp_path))
    assert catalog_settings().tokens().allow("Bearer in a folder")


def test_without_a_token_there_is_none() -> None:
    assert not CatalogSettings().tokens().are_needed


def test_a_file_without_a_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    for name, reason in (("empty", "is empty"), ("absent", "cannot be read")):
        with pytest.raises(Invalid, match=reason):
            CatalogSettings(token_file=tmp_path / name).tokens()


def test_two_tokens_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="not both"):
        CatalogSettings(token=SecretStr("one"), token_file=tmp_path / "two")
    with pytest.raises(ValidationError, match="token"):
        CatalogSettings(token=SecretStr(""))


def test_keys_are_shared_behind_a_token_only() -> None:
    with pytest.raises(ValidationError, match="set a token as well"):
        CatalogSettings(share_s3_keys=True)
    assert CatalogSettings(share_s3_keys=True, token=SecretStr("a")).share_s3_keys


def test_what_is_wrong_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_CATALOG__REQUEST_TIMEOUT_S", "0")
    with pytest.raises(Invalid, match="ROOTLINE_CATALOG__REQUEST_TIMEOUT_S") as refused:
        catalog_settings()
    assert refused.value.code == "setting-invalid"
