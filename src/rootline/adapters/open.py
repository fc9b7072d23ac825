"""URL → adapter, the one place where a vendor is chosen.

Owns: the forms of warehouse and log URLs, and the settings that go with them. Does not own: the adapters.
Invariants: an error says what is wrong with the URL and what would be right; opening an S3 store connects to nothing
yet; a vendor's library is imported only for its URL.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.adapters.lake_lock import LakeLock
from rootline.adapters.local_file_system import check_file_system
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory_intent_log import MemoryIntentLog
from rootline.adapters.memory_object_store import MemoryObjectStore
from rootline.adapters.s3_settings import S3Settings
from rootline.adapters.sqlite_intent_log import SqliteIntentLog
from rootline.ports.intent_log import IntentLog
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid

LAKE_FOLDER: Final = ".rootline"
_FORMS: Final = "use a path, file:///dir, s3://bucket/prefix, or memory:// for tests"


class StoreSettings(BaseSettings):
    """`ROOTLINE_S3__ENDPOINT` and so on; a file named `rootline_s3__…` in `ROOTLINE_SECRETS_DIR` says it as well."""

    model_config = SettingsConfigDict(
        env_prefix="ROOTLINE_",
        env_nested_delimiter="__",
        extra="ignore",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    s3: S3Settings = Field(default_factory=S3Settings, description="How an s3:// warehouse is reached.")


def store_settings() -> StoreSettings:
    """The settings in force.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.

    """
    folder = os.environ.get("ROOTLINE_SECRETS_DIR")
    options: dict[str, Any] = {} if folder is None else {"_secrets_dir": folder}
    try:
        return StoreSettings(**options)
    except ValidationError as error:
        faults = "; ".join(
            f"ROOTLINE_{'__'.join(str(part).upper() for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_input=False, include_url=False)
        )
        raise Invalid("setting-invalid", faults) from None


def open_store(url: str, settings: StoreSettings | None = None) -> ObjectStore:
    """The object store of the warehouse `url`: a path, `file:///dir`, `s3://bucket/prefix`, `memory://`.

    Raises:
        Invalid: `setting-invalid`. Unavailable: `store-unavailable`, a folder that cannot be made.

    """
    folder = local_folder(url)
    if folder is not None:
        check_file_system(folder)
        return LocalObjectStore(folder)
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryObjectStore()
    if scheme == "s3":
        return _open_s3(url, settings or store_settings())
    raise Invalid("setting-invalid", f"warehouse {url!r}: the scheme {scheme}:// is not known; {_FORMS}")


def open_log(url: str | None, warehouse: str) -> IntentLog:
    """The intent log `url`, or, for `None`, the one embedded in the warehouse's folder.

    Raises:
        Invalid: `setting-invalid`. Unavailable, Corrupt: the embedded log's file cannot be opened.

    """
    if url is None:
        return _open_embedded(warehouse)
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryIntentLog()
    folder = local_folder(url.replace("sqlite:", "file:", 1) if scheme == "sqlite" else url)
    if folder is None:
        forms = "use sqlite:///dir or a path (a folder for the embedded log), or memory:// for tests"
        raise Invalid("setting-invalid", f"log {url!r}: the scheme {scheme}:// is not carried out; {forms}")
    check_file_system(folder)
    return SqliteIntentLog(folder)


def open_lock(warehouse: str) -> LakeLock | None:
    """The lock that the host of an embedded lake's coordinator holds; `None` for a warehouse without a folder."""
    folder = local_folder(warehouse)
    return None if folder is None else LakeLock(folder / LAKE_FOLDER)


def local_folder(url: str) -> Path | None:
    """The folder that a path or `file:` URL names, absolute; `None` for other schemes.

    Raises:
        Invalid: `setting-invalid`, empty, or a `file:` URL of another machine.

    """
    if not url.strip():
        raise Invalid("setting-invalid", f"the URL is empty; {_FORMS}")
    if "://" not in url and not url.startswith("file:"):
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise Invalid("setting-invalid", f"{url!r} is no folder of this machine: a file URL has three slashes")
    return Path(unquote(parts.path))


def _open_embedded(warehouse: str) -> IntentLog:
    folder = local_folder(warehouse)
    if folder is not None:
        check_file_system(folder)
        return SqliteIntentLog(folder / LAKE_FOLDER)
    if urlsplit(warehouse).scheme == "memory":
        return MemoryIntentLog()
    raise Invalid(
        "setting-invalid",
        f"the warehouse {warehouse!r} has no folder for an embedded log: name a log as well (ROOTLINE_LOG, --log), "
        "for instance sqlite:///dir on a disk of this machine",
    )


def _open_s3(url: str, settings: StoreSettings) -> ObjectStore:
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc or ":" in parts.netloc:
        raise Invalid(
            "setting-invalid",
            "an S3 warehouse is s3://bucket/prefix; endpoint and keys are settings (ROOTLINE_S3__ENDPOINT …)",
        )
    try:
        from rootline.adapters.s3_object_store import S3ObjectStore
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid", f"an s3:// warehouse needs {error.name}: install rootline with its extra s3"
        ) from error
    return S3ObjectStore(parts.netloc, prefix, settings.s3)
