"""Prefixes below which intents may add data files: none of them contains a file of the warehouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.adapters.object_key_rules import check_file_prefixes
from rootline.coordinator.settings import CoordinatorSettings
from rootline.hosting.lake_parts import embedded_settings
from rootline.schemas.errors import Invalid


@pytest.mark.parametrize("warehouse", ["s3://bucket/lake", "/srv/lake"])
def test_folders_apart_from_the_warehouse_and_from_each_other_are_allowed(warehouse: str) -> None:
    check_file_prefixes((), warehouse)
    check_file_prefixes(
        ("s3://bucket/lake2/", "s3a://bucket/landing/", "s3://other/", "/srv/lake-2/", "file:///mnt/x/"), warehouse
    )


@pytest.mark.parametrize(
    ("warehouse", "prefix"),
    [
        ("s3://bucket/lake", "s3://bucket/lake/"),
        ("s3://bucket/lake", "s3a://bucket/lake/db/t/data/"),
        ("s3://bucket/lake", "s3n://bucket/"),
        ("s3://bucket/lake", "s3://bucket/LAKE/"),
        ("s3://bucket", "s3://bucket/anything/"),
        ("/srv/lake", "/srv/lake/"),
        ("/srv/lake", "/srv/"),
        ("/srv/lake", "/"),
        ("/srv/lake", "file:/srv/lake/db/"),
        ("/srv/lake", "file:///Srv/Lake/db/"),
        ("/srv/lake", "file://localhost/srv/lake/db/"),
    ],
)
def test_a_prefix_that_contains_files_of_the_warehouse_is_refused(warehouse: str, prefix: str) -> None:
    with pytest.raises(Invalid, match="the warehouse contain the same files") as caught:
        check_file_prefixes((prefix,), warehouse)
    assert caught.value.code == "setting-invalid"


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("s3://other/x", "slash at its end"),
        ("s3://other/x/../lake/", "part that is"),
        ("s3://other//x/", "absolute"),
        ("s3://other/x//", "empty part"),
        ("s3://other/%2e%2e/", "encoded form"),
        ("s3://other/a?b/", "question mark"),
        ("/srv/../lake/", "without"),
        ("//host/share/", "machine host"),
        ("https://other/x/", "not known"),
        ("data/", "not known"),
        ("", "slash at its end"),
    ],
)
def test_a_prefix_with_another_spelling_than_its_own_is_refused(prefix: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        check_file_prefixes((prefix,), "s3://bucket/lake")
    assert caught.value.code == "setting-invalid"


@pytest.mark.parametrize("second", ["s3://other/x/y/", "s3a://other/x/", "s3://other/", "s3://other/X/"])
def test_two_prefixes_never_name_one_file(second: str) -> None:
    with pytest.raises(Invalid, match="contain the same files"):
        check_file_prefixes(("s3://other/x/", second), "s3://bucket/lake")


def test_a_link_to_the_warehouse_is_no_other_place(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    settings = CoordinatorSettings(file_prefixes=(f"{tmp_path}/link/",))
    for warehouse in (str(tmp_path / "lake"), f"file://{tmp_path}/lake", str(tmp_path / "link" / ".." / "lake")):
        with pytest.raises(Invalid, match="the warehouse contain the same files"):
            embedded_settings(warehouse, settings)
    assert embedded_settings(str(tmp_path / "other"), settings).file_prefixes == settings.file_prefixes


def test_the_setting_is_read_from_a_json_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_COORDINATOR__FILE_PREFIXES", '["s3://landing/events/"]')
    assert CoordinatorSettings().file_prefixes == ("s3://landing/events/",)
