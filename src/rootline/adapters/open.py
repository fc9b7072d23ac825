"""From a URL to an adapter: the only module that chooses a vendor.

Owns: the forms of warehouse and log URLs, the URL and the settings with which other engines access a warehouse. Does
not own: the settings that go with a URL (`settings`), the adapters.
Invariants: An error names the URL, its fault and the right form. Opening an S3 store does not connect yet. A vendor's
library is imported only for a URL that needs it. Engines receive keys only when the caller requests it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

from rootline.adapters.local_object_store import LocalObjectStore, check_file_system
from rootline.adapters.posix_files import LakeLock
from rootline.ports.intent_log import IntentSink, LogKeeps, VerdictSource
from rootline.ports.object_store import ObjectStore
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from rootline.adapters.kafka.administration import KafkaTopics
    from rootline.adapters.settings import KafkaSettings, S3Settings, StoreSettings
    from rootline.adapters.sqlite.intent_log import SqliteIntentLog
    from rootline.ports.intent_feed import CoordinatorLog
    from rootline.ports.intent_log import AskLogKeeps, IntentLog, LogArchive
    from rootline.ports.object_remover import ObjectRemover
    from rootline.schemas.root_header import RootHeader

LAKE_FOLDER: Final = ".rootline"
READING_MARK: Final = "coordinator-is-reading"
_FORMS: Final = "use a path, file:///dir, s3://bucket/prefix, or memory:// for tests"


_TYPO: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|(?:s3|kafka|sqlite|memory):", re.IGNORECASE)
_SERVERS: Final = re.compile(r"[\w.-]+:\d{1,5}(?:,[\w.-]+:\d{1,5})*")


class WriterLog(IntentSink, VerdictSource, Protocol):
    """A log with the two capabilities that a writer needs."""

    async def close(self) -> None:
        """Close files and connections."""
        ...


def open_store(url: str, settings: StoreSettings | None = None) -> ObjectStore:
    """Open the object store of the warehouse `url`: a path, `file:///dir`, `s3://bucket/prefix`, `memory://`.

    Raises:
        Invalid: `setting-invalid`. Unavailable: `store-unavailable`, the folder cannot be created.
    """
    folder = local_folder(url)
    if folder is not None:
        check_file_system(folder)
        if settings is None and not _may_be_set():
            return LocalObjectStore(folder, ())
        return LocalObjectStore(folder, (settings or store_settings()).absolute_reads)
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        from rootline.adapters.memory import MemoryObjectStore

        return MemoryObjectStore()
    if scheme == "s3":
        return _open_s3(url, settings or store_settings())
    raise Invalid("setting-invalid", f"warehouse {url!r}: the scheme {scheme}:// is not known: {_FORMS}")


def open_remover(url: str, store: ObjectStore, settings: StoreSettings | None = None) -> ObjectRemover:
    """Open the remover of the warehouse `url`, only for workers. `store`: its open store. Raises `Invalid`."""
    folder = local_folder(url)
    if folder is not None:
        from rootline.adapters.local_object_remover import LocalObjectRemover

        return LocalObjectRemover(folder)
    from rootline.adapters.memory import MemoryObjectRemover, MemoryObjectStore

    if isinstance(store, MemoryObjectStore):
        return MemoryObjectRemover(store)
    bucket, prefix = _bucket_and_prefix(url)
    with _extra("s3", "an s3:// warehouse"):
        from rootline.adapters.s3_object_store import S3ObjectRemover
    return S3ObjectRemover(bucket, prefix, (settings or store_settings()).s3)


def open_log(url: str | None, warehouse: str) -> IntentLog:
    """Open the intent log `url`. `None`: the log that is embedded in the warehouse's folder.

    Raises:
        Invalid: `setting-invalid`. Unavailable, Corrupt: the embedded log's file cannot be opened.
    """
    folder = _log_folder(url, warehouse)
    if folder is None:
        from rootline.adapters.memory import MemoryIntentLog

        return MemoryIntentLog()
    from rootline.adapters.sqlite.intent_log import SqliteIntentLog

    return SqliteIntentLog(folder)


def open_embedded_feed(log: IntentLog, url: str | None, warehouse: str) -> CoordinatorLog:
    """A coordinator's side of an open embedded log. It also prunes the log. Raises `Invalid`."""
    from rootline.adapters.embedded_feed import EmbeddedFeed
    from rootline.adapters.sqlite.intent_log import NoticesOnly, SqliteIntentLog
    from rootline.adapters.sqlite.log_pruning import pruning_loop

    mark = reading_mark(url, warehouse)
    if not isinstance(log, SqliteIntentLog):
        return EmbeddedFeed(log, mark)
    retention = store_settings().embedded_log.retention
    pruning = partial(pruning_loop, lambda: log.prune(retention, now_ms=time.time_ns() // 1_000_000))
    return EmbeddedFeed(
        log,
        mark,
        pruning,
        log.check_writable,
        pauses=log.pauses,
        parked_store=NoticesOnly(log),
    )


def open_writer_log(url: str | None, warehouse: str) -> WriterLog:
    """A writer's side of the log `url`. Kafka is not connected yet. Raises the errors of `open_log`."""
    if not is_kafka(url):
        return open_log(url, warehouse)
    settings = kafka_settings(url)
    with _extra("kafka", "a kafka:// log"):
        from rootline.adapters.kafka.writer_log import KafkaWriterLog
    return KafkaWriterLog(settings)


def open_coordinator_log(url: str | None) -> CoordinatorLog:
    """A coordinator's side of a `kafka://` log, not connected yet. Raises the errors of `open_log`."""
    settings = kafka_settings(url)
    with _extra("kafka", "a kafka:// log"):
        from rootline.adapters.kafka.coordinator_log import KafkaCoordinatorLog
    return KafkaCoordinatorLog(settings)


def open_archive(url: str | None, warehouse: str) -> LogArchive:
    """Open the log `url` for inspection. Raises the errors of `open_log`, and `Unavailable` when there is no log."""
    if is_kafka(url):
        settings = kafka_settings(url)
        with _extra("kafka", "a kafka:// log"):
            from rootline.adapters.kafka.topic_reader import KafkaLogArchive
        return KafkaLogArchive(settings)
    folder = _log_folder(url, warehouse)
    if folder is None:
        raise Invalid(
            "setting-invalid",
            f"log {url or warehouse!r}: a log in memory ends with its process. Name a stored log",
        )
    from rootline.adapters.sqlite.log_archive import SqliteLogArchive

    return SqliteLogArchive(folder)


def open_stored_log(url: str | None, warehouse: str) -> SqliteIntentLog:
    """Open an embedded log that exists. Raises the errors of `open_archive`, and `Invalid` for a log on Kafka."""
    if is_kafka(url):
        raise Invalid("setting-invalid", f"log {url!r}: this needs an embedded log, and this log is on Kafka")
    from rootline.adapters.sqlite.intent_log import SqliteIntentLog
    from rootline.adapters.sqlite.undecided import FILE_NAME

    folder = _log_folder(url, warehouse)
    if folder is None or not (folder / FILE_NAME).is_file():
        raise Unavailable(
            "log-unavailable", f"{folder or url}: there is no log here. Check the warehouse or the log's URL"
        )
    return SqliteIntentLog(folder)


def confirmed_version(url: str | None, warehouse: str, table: str) -> int | None:
    """The highest version of `table` in any verdict of an embedded log, or `None` for a log on Kafka.

    Raises `Invalid`, and the errors of `confirmed_in`.
    """
    from rootline.adapters.sqlite.log_archive import confirmed_in

    folder = None if is_kafka(url) else _log_folder(url, warehouse)
    return None if folder is None else confirmed_in(folder, table)


def log_behind_root(url: str | None, warehouse: str, header: RootHeader) -> str | None:
    """The reason why an embedded log is not the one whose records the root has decided, as `behind_root` finds it.

    `None`: nothing shows that, or the log is on Kafka, whose coordinators report it. Raises `Invalid`, and the errors
    of `behind_root`.
    """
    from rootline.adapters.sqlite.log_archive import behind_root

    folder = None if is_kafka(url) else _log_folder(url, warehouse)
    return None if folder is None else behind_root(folder, header)


def open_log_keeps(url: str | None) -> AskLogKeeps:
    """The function that asks the log `url` for its retention. Raises `Invalid` (`setting-invalid`)."""
    if is_kafka(url):
        settings = kafka_settings(url)
        with _extra("kafka", "a kafka:// log"):
            from rootline.adapters.kafka.administration import kafka_keeps
        return partial(kafka_keeps, settings)

    async def of_settings() -> LogKeeps:
        embedded = store_settings().embedded_log
        return LogKeeps(math.ceil(embedded.records_retention_s), math.ceil(embedded.dead_letters_retention_s))

    return of_settings


def is_kafka(url: str | None) -> bool:
    """Whether the log `url` is on Kafka."""
    return url is not None and urlsplit(url).scheme == "kafka"


def store_settings() -> StoreSettings:
    """The settings in force. Raises `Invalid` (`setting-invalid`), naming each setting and its fault."""
    from rootline.adapters import settings

    return settings.store_settings()


def _may_be_set() -> bool:
    """Whether the environment may have settings. Without any, their models are not imported, which takes a while."""
    return any(
        name.upper().startswith("ROOTLINE_") and name not in ("ROOTLINE_WAREHOUSE", "ROOTLINE_LOG")
        for name in os.environ
    )


def kafka_settings(url: str | None) -> KafkaSettings:
    """The settings in force, with the servers of the `kafka://` URL if it names any.

    Raises:
        Invalid: `setting-invalid`.
    """
    settings = store_settings().kafka
    if url is not None:
        settings = settings.at(url)
    settings.servers()
    return settings


def open_topics(url: str | None) -> KafkaTopics:
    """The topics of the log `url`, for an operator. Raises `Invalid` (`setting-invalid`)."""
    settings = kafka_settings(url)
    with _extra("kafka", "a kafka:// log"):
        from rootline.adapters.kafka.administration import KafkaTopics
    return KafkaTopics(settings)


def check_warehouse(url: str) -> str:
    """Check the URL of a warehouse, and return it with an absolute path. Opens nothing.

    Raises:
        Invalid: `setting-invalid`, with the right form.
    """
    folder = local_folder(url)
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise Invalid("setting-invalid", f"{folder} is a file: a warehouse is a folder. Name another path")
        return str(folder)
    scheme = urlsplit(url).scheme
    if scheme == "s3":
        _bucket_and_prefix(url)
    elif scheme in ("kafka", "sqlite"):
        raise Invalid("setting-invalid", f"{scheme}:// is a log, not a warehouse. Name it with log= or ROOTLINE_LOG")
    elif scheme != "memory":
        raise Invalid("setting-invalid", f"warehouse {url!r}: the scheme {scheme}:// is not known: {_FORMS}")
    return url


def check_log(url: str | None, warehouse: str) -> str | None:
    """Check the URL of the log of the lake `warehouse`, as `check_warehouse` does."""
    if url is None:
        return None
    if is_kafka(url):
        kafka_settings(url)
        return url
    folder = _log_folder(url, warehouse)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise Invalid(
            "setting-invalid", f"log {url!r}: {folder} is a file: name the folder that will contain log.sqlite"
        )
    return url if "://" in url else str(folder)


def log_name(url: str | None, warehouse: str) -> str:
    """The log's name in messages: its file, or its servers, topic and group. Raises the errors of `open_log`."""
    if is_kafka(url):
        settings = kafka_settings(url)
        return f"{settings.url}, topic {settings.intents_topic}: the consumer group {settings.group_id}"
    from rootline.adapters.sqlite.undecided import FILE_NAME

    folder = _log_folder(url, warehouse)
    return "memory://" if folder is None else str(folder / FILE_NAME)


def reading_mark(url: str | None, warehouse: str) -> Path | None:
    """The file next to an embedded log that exists while a coordinator reads. `None`: the log has no folder."""
    folder = _log_folder(url, warehouse)
    return None if folder is None else folder / READING_MARK


def open_lock(warehouse: str, log: str | None = None) -> LakeLock | None:
    """The lock of the process that hosts an embedded log's coordinator. `None`: the log has no folder."""
    folder = _log_folder(log, warehouse)
    return None if folder is None else LakeLock(folder)


def local_folder(url: str) -> Path | None:
    """The absolute folder that a path or a `file:` URL names, or `None` for other schemes.

    Raises:
        Invalid: `setting-invalid`, the URL is empty, or names a file of another machine.
    """
    if not url.strip():
        raise Invalid("setting-invalid", f"the URL is empty: {_FORMS}")
    if "://" not in url and not url.startswith("file:"):
        if _TYPO.match(url):
            raise Invalid(
                "setting-invalid",
                f"{url!r} is neither a URL nor a path: write {url.partition(':')[0]}:// with two slashes, or ./{url} "
                "for a folder of this name",
            )
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise Invalid(
            "setting-invalid", f"{url!r} is not a folder of this machine. Write file:///dir, with three slashes"
        )
    return Path(unquote(parts.path))


def _log_folder(url: str | None, warehouse: str) -> Path | None:
    """The folder of an embedded log, or `None` for a log in memory."""
    if url is None:
        return _embedded_folder(warehouse)
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return None
    if _SERVERS.fullmatch(url):
        raise Invalid("setting-invalid", f"log {url!r}: write kafka://{url}, or ./{url} for a folder of this name")
    if scheme == "sqlite" and (urlsplit(url).netloc not in ("", "localhost") or not urlsplit(url).path.startswith("/")):
        raise Invalid("setting-invalid", f"log {url!r}: write sqlite:///dir, with three slashes and an absolute path")
    folder = local_folder(url.replace("sqlite:", "file:", 1) if scheme == "sqlite" else url)
    if folder is None:
        forms = "use kafka://host:port, sqlite:///dir or a path (a folder for the embedded log), or memory:// for tests"
        raise Invalid("setting-invalid", f"log {url!r}: the scheme {scheme}:// is not known: {forms}")
    check_file_system(folder)
    return folder


def _embedded_folder(warehouse: str) -> Path | None:
    folder = local_folder(warehouse)
    if folder is not None:
        check_file_system(folder)
        return folder / LAKE_FOLDER
    if urlsplit(warehouse).scheme == "memory":
        return None
    raise Invalid(
        "setting-invalid",
        f"the warehouse {warehouse!r} has no folder for an embedded log: name a log too (ROOTLINE_LOG or --log), "
        "for instance sqlite:///dir on a disk of this machine",
    )


def _bucket_and_prefix(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc or ":" in parts.netloc:
        raise Invalid(
            "setting-invalid",
            "write an S3 warehouse as s3://bucket/prefix. Endpoint and keys are settings (ROOTLINE_S3__ENDPOINT …)",
        )
    return parts.netloc, parts.path.strip("/")


def _open_s3(url: str, settings: StoreSettings) -> ObjectStore:
    bucket, prefix = _bucket_and_prefix(url)
    with _extra("s3", "an s3:// warehouse"):
        from rootline.adapters.s3_object_store import S3ObjectStore
    return S3ObjectStore(bucket, prefix, settings.s3, settings.absolute_reads)


@contextlib.contextmanager
def _extra(name: str, what: str) -> Iterator[None]:
    """Import the libraries of the extra `name` inside this block. `what`: the thing that needs them, for the error."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid", f"{what} needs {error.name}, which is not installed: {install_command(name)}"
        ) from error


def warehouse_url(url: str) -> str:
    """The absolute URL of a warehouse, without a slash at its end: `file:///d`, `s3://bucket/p`.

    It is not percent-encoded.

    Raises:
        Invalid: `setting-invalid`, the URL has an unknown form.
    """
    folder = local_folder(url)
    if folder is not None:
        return f"file://{folder}"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


def engine_storage(url: str, settings: S3Settings, *, share_keys: bool) -> dict[str, str]:
    """Settings for engines that read files of the warehouse `url`, under the names that Iceberg's clients use.

    Raises:
        Invalid: `setting-invalid`, the secret's file cannot be read.
    """
    if urlsplit(url).scheme != "s3":
        return {}
    # clients use one or the other name of the region. Java deletes files of a commit that a proxy answered with 503
    found = {"s3.region": settings.region, "client.region": settings.region, "s3.delete-enabled": "false"}
    if settings.endpoint is not None:
        found |= {"s3.endpoint": settings.endpoint, "s3.path-style-access": "true"}
    secret = settings.secret() if share_keys else None
    if settings.access_key_id is not None and secret is not None:
        found |= {"s3.access-key-id": settings.access_key_id, "s3.secret-access-key": secret}
        if settings.session_token is not None:
            found["s3.session-token"] = settings.session_token.get_secret_value()
    return found
