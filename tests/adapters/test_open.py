"""From URL to adapter, and what an unusable URL is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.open import local_folder, open_embedded_feed, open_lock, open_log, open_store, store_settings
from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_pruning import LogRetention, Pruned
from rootline.catalog.rest.http_settings import catalog_settings, http_settings
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey


@pytest.mark.parametrize("form", ["{folder}", "file://{folder}", "file://localhost{folder}", "file:{folder}"])
async def test_a_path_and_a_file_url_name_a_folder(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "my lake"
    store = open_store(form.format(folder=folder).replace(" ", "%20" if form.startswith("file") else " "))
    await store.put_if_absent(ObjectKey("a/b"), b"here")
    await store.close()

    assert isinstance(store, LocalObjectStore)
    assert (folder / "a/b").read_bytes() == b"here"


async def test_memory_is_a_store_and_a_log_of_its_own() -> None:
    assert isinstance(open_store("memory://"), MemoryObjectStore)
    assert isinstance(open_log(None, "memory://"), MemoryIntentLog)
    assert open_lock("memory://") is None


async def test_an_s3_url_names_bucket_and_prefix_and_connects_to_nothing_yet() -> None:
    store = open_store("s3://bucket/a/prefix/")

    assert isinstance(store, S3ObjectStore)
    assert "s3://bucket/a/prefix" in repr(store)
    await store.close()


async def test_without_a_url_the_log_is_inside_the_warehouse(tmp_path: Path) -> None:
    log = open_log(None, str(tmp_path / "lake"))
    await log.close()
    elsewhere = open_log(f"sqlite://{tmp_path}/elsewhere", "s3://bucket/prefix")
    await elsewhere.close()

    assert isinstance(log, SqliteIntentLog)
    assert (tmp_path / "lake/.rootline/log.sqlite").exists()
    assert (tmp_path / "elsewhere/log.sqlite").exists()


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("", "empty"),
        ("gs://bucket", "s3://bucket/prefix"),
        ("s3://", "s3://bucket/prefix"),
        ("s3://key:secret@bucket/x", "settings"),
        ("file://otherhost/lake", "three slashes"),
    ],
)
def test_a_warehouse_that_cannot_be_opened_is_told_what_would_be_right(url: str, advice: str) -> None:
    with pytest.raises(Invalid, match=advice) as refusal:
        open_store(url)

    assert refusal.value.code == "setting-invalid"
    assert "secret@" not in refusal.value.message


@pytest.mark.parametrize(
    ("url", "warehouse", "advice"),
    [(None, "s3://bucket/prefix", "name a log"), ("mysql://x", "lake", "sqlite:///dir")],
)
def test_a_log_that_cannot_be_opened_is_told_what_would_be_right(url: str | None, warehouse: str, advice: str) -> None:
    with pytest.raises(Invalid, match=advice):
        open_log(url, warehouse)


def test_a_relative_path_is_taken_from_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert local_folder("lake") == tmp_path / "lake"
    assert local_folder("./lake") == tmp_path / "lake"


def test_settings_come_from_the_environment_and_from_files_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("ROOTLINE_S3__ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("ROOTLINE_S3__ACCESS_KEY_ID", "me")
    monkeypatch.setenv("ROOTLINE_S3__SECRET_ACCESS_KEY_FILE", str(tmp_path / "secret"))
    from_file = store_settings().s3
    monkeypatch.delenv("ROOTLINE_S3__SECRET_ACCESS_KEY_FILE")
    monkeypatch.setenv("ROOTLINE_S3__SECRET_ACCESS_KEY", "from the environment")
    from_environment = store_settings().s3

    assert (from_file.endpoint, from_file.access_key_id) == ("http://127.0.0.1:1", "me")
    assert from_file.secret() == "from a file"
    assert from_environment.secret() == "from the environment"
    assert "from the environment" not in repr(from_environment)


def test_a_secrets_folder_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rootline_s3").write_text('{"access_key_id": "me", "secret_access_key": "kept in a folder"}')
    monkeypatch.setenv("ROOTLINE_SECRETS_DIR", str(tmp_path))

    assert store_settings().s3.secret() == "kept in a folder"


def test_a_secret_is_a_file_named_after_its_setting_and_the_environment_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rootline_s3__secret_access_key").write_text("of a file\n")
    (tmp_path / "rootline_kafka__sasl_password").write_text("also\n")
    (tmp_path / "rootline_redis__password").write_text("not this one\n")
    (tmp_path / "rootline_http__token").write_text("of another reader\n")
    monkeypatch.setenv("ROOTLINE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("ROOTLINE_S3__ACCESS_KEY_ID", "me")
    monkeypatch.setenv("ROOTLINE_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("ROOTLINE_KAFKA__SASL_USERNAME", "me")
    monkeypatch.setenv("ROOTLINE_REDIS__PASSWORD", "of the environment")
    read = store_settings()

    assert (read.s3.access_key_id, read.s3.secret()) == ("me", "of a file")
    assert (read.kafka.sasl_username, read.kafka.password()) == ("me", "also")
    assert read.redis.password is not None
    assert read.redis.password.get_secret_value() == "of the environment"


@pytest.mark.parametrize("content", [b"\xff", None])
@pytest.mark.parametrize(
    ("read", "file"),
    [
        (store_settings, "rootline_s3"),
        (http_settings, "rootline_http__token"),
        (catalog_settings, "rootline_catalog__token"),
    ],
)
def test_a_secrets_folder_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, read: Callable[[], object], file: str, content: bytes | None
) -> None:
    (tmp_path / file).write_bytes(content or b"")
    monkeypatch.setenv("ROOTLINE_SECRETS_DIR", str(tmp_path if content else tmp_path / file))
    with pytest.raises(Invalid, match=r"ROOTLINE_SECRETS_DIR is .*: name a folder"):
        read()


def test_a_list_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_ABSOLUTE_READS", "s3://old")
    with pytest.raises(Invalid, match="absolute_reads"):
        store_settings()


def test_a_setting_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_S3__READ_TIMEOUT_S", "-1")

    with pytest.raises(Invalid, match="ROOTLINE_S3__READ_TIMEOUT_S"):
        store_settings()


def test_an_endpoint_without_a_scheme_is_told_to_be_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_S3__ENDPOINT", "localhost:9000")

    with pytest.raises(Invalid, match=r"ROOTLINE_S3__ENDPOINT.*http://host:port"):
        store_settings()


async def test_the_coordinators_side_of_an_embedded_log_prunes_it_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: asyncio.Queue[LogRetention] = asyncio.Queue()
    prune = SqliteIntentLog.prune

    async def watched(log: SqliteIntentLog, retention: LogRetention, *, now_ms: int) -> Pruned:
        asked.put_nowait(retention)
        return await prune(log, retention, now_ms=now_ms)

    monkeypatch.setattr(SqliteIntentLog, "prune", watched)
    monkeypatch.setenv("ROOTLINE_EMBEDDED_LOG__RECORDS_RETENTION_S", "3600")
    log = open_log(None, str(tmp_path))
    feed = open_embedded_feed(log, None, str(tmp_path))
    await feed.next(wait_s=0)

    assert await asyncio.wait_for(asked.get(), 60) == LogRetention(3_600_000, 2_592_000_000)
    await feed.close()
    await log.close()


def test_dead_letters_must_not_go_before_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_EMBEDDED_LOG__DEAD_LETTERS_RETENTION_S", "3600")
    with pytest.raises(Invalid, match="dead_letters_retention_s must not be shorter than records_retention_s"):
        store_settings()
