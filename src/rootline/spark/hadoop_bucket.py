"""Spark's own access to a warehouse in a bucket, through Hadoop's S3A, and writes into it without renames.

Owns: the check that a session reaches the bucket, the settings that S3A lacks, the names of objects for Spark, the
completion of uploads by Spark's writer, copies of its files. Does not own: the reads and writes themselves
(`table_frame`, `parquet_append`), describing files (`parquet_files`), the requests of our own client (`ObjectUploads`).
Invariants: a setting of the session is never changed. Keys are set for one bucket, in Hadoop's configuration and never
in options, because plans show options. No value is logged, by py4j neither. An object exists under its final name only
after Spark's job has succeeded, and only if its task succeeded. No two files have the same name.

Theory. Hadoop's committer renames files, and S3A copies an object to rename it. Below a folder whose name begins with
`__magic_job-`, S3A uploads a file in parts to its place outside of that folder, and does not complete the upload.
Instead it writes two small objects: an empty one with the name of the file, and `NAME.pending`, which names the upload
and its parts. The committer renames only these two. After the job, the driver completes the uploads that they name.
Uploads of other attempts never become objects, also if such a task is still running. The driver aborts them in the end.

Committer's version 2 moves the two objects when a task ends, so tasks do it in parallel. If a task dies meanwhile, its
next attempt replaces them. If an attempt has other partitions than the one before, objects of both remain. Then two
attempts of one task are found, and the write is refused.

Some files need another name or another footer, and an object can have neither. The bytes of an open upload cannot be
read, so its last part cannot be replaced before it is completed. Such files are completed below `_temporary`, where no
intent names a file. The machine that describes a file has a copy of it. From this copy it uploads the end to the final
name. The store itself copies the rest.

Source: Hadoop, "S3A committers: architecture and implementation", decisions 0144 and 0148.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, Final

from rootline.client.new_files import repeated, upload_all
from rootline.client.session import Session
from rootline.connect import engine_storage, store_settings, warehouse_url
from rootline.ports.object_store import CopiedBytes, ObjectUploads, PendingUpload, UploadedPart
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import key_of, table_prefix
from rootline.spark.connection import guest_lake
from rootline.spark.options import SourceOptions
from rootline.storage.stored_objects import gather_bounded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_SCHEME: Final = "s3a://"
_PLACE: Final = {"endpoint": "s3.endpoint", "path.style.access": "s3.path-style-access", "endpoint.region": "s3.region"}
_KEYS: Final = {
    "access.key": "s3.access-key-id",
    "secret.key": "s3.secret-access-key",
    "session.token": "s3.session-token",
    "aws.credentials.provider": "",
}
"""Names of S3A's settings, and of the same settings for Iceberg's clients. If one is set, all of its group are kept."""
_DEFAULTS: Final = "core-default.xml"
_SPARKS_ENDPOINT: Final = "s3.amazonaws.com"
_SPARKS_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Variables that Spark copies into S3A's settings."""
_MAGIC: Final = "fs.s3a.capability.magic.committer"
_IN_MEMORY: Final = "fs.s3a.committer.magic.track.commits.in.memory.enabled"
_CHECKSUM: Final = "fs.s3a.create.checksum.algorithm"
_CHECKSUMS: Final = ("CRC32", "CRC32C", "SHA1", "SHA256")
"""The algorithms whose checksums S3A records for the parts of an upload."""
_reached: Final[dict[tuple[str, str], str | None]] = {}
_quiet: Final = Lock()
_ASKING_ONCE: Final = {
    "attempts.maximum": "1",
    "retry.limit": "1",
    "connection.establish.timeout": "5s",
    "connection.timeout": "5s",
}
"""Settings for the check alone. With S3A's own ones, a check of a store that does not answer took three minutes."""


def url_for_spark(url: str) -> str:
    """The `s3a://` URL of an `s3://` URL."""
    return _SCHEME + url.partition("://")[2]


def is_in_bucket(place: str) -> bool:
    """Whether `place` is a URL for S3A, and not a path."""
    return place.startswith(_SCHEME)


def why_unreached(spark: SparkSession, warehouse: str, *, to_write: bool = False) -> str | None:
    """The reason why Spark's own reader, or its writer, cannot use a warehouse. `None` if it can, or if the warehouse
    is in a folder.

    Settings that S3A lacks are set. Only a session that reaches the bucket is remembered.
    """
    url = warehouse_url(warehouse)
    if not url.startswith("s3://"):
        return None
    java = getattr(spark, "_jvm", None)
    if java is None:
        return "a client of Spark Connect cannot configure Spark's access to a bucket"
    bucket = url.removeprefix("s3://").partition("/")[0]
    known = (spark.sparkContext.applicationId, bucket)
    if known not in _reached:
        if _conf(spark).getClassByNameOrNull(_S3A) is None:
            version = java.org.apache.hadoop.util.VersionInfo.getVersion()
            return f"hadoop-aws {version} is not on Spark's classpath (docs/spark.md, In a bucket)"
        ours = engine_storage(url, store_settings().s3, share_keys=True)
        try:
            _hand_over(spark, bucket, ours)
            path, asking = java.org.apache.hadoop.fs.Path(f"{url_for_spark(url)}/"), _conf(spark)
            for name, value in _ASKING_ONCE.items():
                asking.set(f"fs.s3a.bucket.{bucket}.{name}", value)
            files = java.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), asking)
            with contextlib.closing(files):
                if not files.exists(path):
                    return f"Spark does not find {url}: fs.s3a.endpoint or the keys of the session may be wrong for it"
                _reached[known] = _why_not_written(files, path)
        except Exception as error:  # of many Java classes, some of which PySpark converts
            return f"Spark cannot read the bucket: {_kind_of(error)}"
    return _reached[known] if to_write else None


def _kind_of(error: Exception) -> str:
    """The class of an error of Java. Its text may have more than a log should."""
    java = getattr(error, "java_exception", None)
    return type(error).__name__ if java is None else str(java.getClass().getName())


def _conf(spark: SparkSession) -> Any:
    """Hadoop's configuration of this session."""
    return spark._jsparkSession.sessionState().newHadoopConf()


def _why_not_written(files: Any, path: Any) -> str | None:
    conf = files.getConf()
    if not files.hasPathCapability(path, _MAGIC) or conf.getBoolean(_IN_MEMORY, False):
        return f"fs.s3a.committer.magic.enabled is not true, or {_IN_MEMORY} is"
    algorithm = (conf.get(_CHECKSUM) or "NONE").strip().upper().replace("_", "")
    is_recorded = algorithm in ("NONE", *_CHECKSUMS)
    return None if is_recorded else f"S3A does not record the checksums of {_CHECKSUM}={algorithm}"


def _hand_over(spark: SparkSession, bucket: str, ours: Mapping[str, str]) -> None:
    """Set our settings for the bucket, except groups of which the session has one."""
    known, shared = _conf(spark), spark.sparkContext._jsc.hadoopConfiguration()
    with _py4j_is_quiet():
        for group in (_PLACE, _KEYS):
            names = [f"fs.s3a.{of}{name}" for name in group for of in ("", f"bucket.{bucket}.")]
            if any(_is_set(known, name) for name in names):
                continue
            given = {name: ours[own] for name, own in group.items() if own in ours}
            if "access.key" in given:
                given.setdefault("session.token", "")  # otherwise S3A uses Spark's copy of AWS_SESSION_TOKEN with it
            for name, value in given.items():
                shared.set(f"fs.s3a.bucket.{bucket}.{name}", value)


def _is_set(conf: Any, name: str) -> bool:
    """Whether the session sets it, rather than Hadoop or Spark."""
    value, sources = conf.get(name), conf.getPropertySources(name)
    if not value or value in (_SPARKS_ENDPOINT, *map(os.environ.get, _SPARKS_KEYS)):
        return False
    return sources is None or list(sources)[-1:] != [_DEFAULTS]


@contextlib.contextmanager
def _py4j_is_quiet() -> Iterator[None]:
    """Keep py4j from logging its commands, as it does at the level DEBUG. One thread at a time, because the next one
    would restore the level while this one still sends keys.
    """
    with _quiet:
        level = logging.root.manager.disable
        logging.disable(max(level, logging.DEBUG))
        try:
            yield
        finally:
            logging.disable(level)


COMMITTED_IN_BUCKET: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_FOLDER: Final = "__magic_job-rootline"
_BASE: Final = "__base"
"""Below this folder, S3A keeps the folders of a file's place. Without it, all files are in one folder."""
_TEMPORARY: Final = "_temporary"
_PENDING: Final = ".pending"
_ATTEMPT: Final = re.compile(r"/attempt_\d+_\d+_m_(\d+)_(\d+)/")
_REQUESTS_AT_ONCE: Final = 32


_COPY_BYTES: Final = 32 * 1024 * 1024
_PART_BYTES_MIN: Final = 5 * 1024 * 1024
_PARTS_AT_ONCE: Final = 4


def upload_folder(url: str, *, is_copied: bool) -> str:
    """The URL to which Spark's writer must write for files in the folder `url`. `is_copied`: they are copied there."""
    return f"{url}/{_FOLDER}/{_BASE}" if is_copied else f"{url}/{_FOLDER}"


def final_location(location: str) -> str:
    """The location of a completed file in an intent. It differs from `location` if the file must be copied."""
    folder, is_copied, _ = location.partition(f"/{_TEMPORARY}/")
    return f"{folder}/{uuid.uuid4()}.parquet" if is_copied else location


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file in the bucket. `location`: relative to the table."""

    location: str
    length: int


def completed_files(options: SourceOptions, place: str) -> list[UploadedFile]:
    """Complete the files that a successful job wrote to the `upload_folder` of `place`, relative to the table's.

    Raises:
        Invalid: `rows-invalid`, it is unclear which files belong to the job.
        Unavailable: `store-unavailable`, `store-denied`. Files that are complete by then are orphans.
    """
    return guest_lake(options).holder.run(partial(_completed, table=options.table, place=place))


async def copy_file(session: Session, table: TableName, location: str, into: str, body: IO[bytes], same: int) -> None:
    """Create the file `into` with the bytes of `body`, of which the file `location` has the first `same`.

    All parts but the last have one size, because Cloudflare R2 requires it.

    Raises:
        Unavailable: `store-unavailable`, `store-denied`.
    """
    store, key, descriptor = session.store, key_of(table, into), body.fileno()
    size = os.fstat(descriptor).st_size
    assert isinstance(store, ObjectUploads), "Spark wrote into a bucket"
    if same < max(_PART_BYTES_MIN, size - same):
        return await upload_all(session, table, [(into, await asyncio.to_thread(os.pread, descriptor, size, 0))])
    uploads, count = store, -(-same // _COPY_BYTES)
    upload_id = await repeated(session, partial(uploads.begin_upload, key), f"{key}: its upload was not begun")
    length = same // count

    async def put(number: int) -> UploadedPart:
        start = number * length
        if number < count:
            with contextlib.suppress(Unavailable):  # some stores cannot copy
                copied = CopiedBytes(key_of(table, location), start, length)
                return await uploads.put_part(key, upload_id, number + 1, copied)
        part = await asyncio.to_thread(os.pread, descriptor, length if number < count else size - start, start)
        return await uploads.put_part(key, upload_id, number + 1, part)

    async def stored(number: int) -> UploadedPart:
        return await repeated(session, partial(put, number), f"{key}: part {number + 1} was not stored")

    parts = await gather_bounded(range(count + 1), stored, _PARTS_AT_ONCE)
    return await _complete(session, uploads, PendingUpload(key, upload_id, tuple(parts), size))


def remove_uploads(spark: SparkSession, url: str, folders: Sequence[str] = (_FOLDER, _TEMPORARY)) -> None:
    """Remove the originals of copied files, the small objects of S3A, and the parts that tasks uploaded in vain.

    A sweep deletes the objects that remain. `folders`: inside `url`. After a job that failed: `[""]`, for all of it.
    """
    with contextlib.suppress(Exception):  # the error of a job that failed is the one to raise
        java: Any = spark._jvm
        path = java.org.apache.hadoop.fs.Path
        store = path(url).getFileSystem(_conf(spark))
        for folder in folders:
            store.delete(path(f"{url}/{folder}"), True)
        store.getS3AInternals().abortMultipartUploads(path(url))  # last, because it needs one more right


async def _completed(session: Session, table: TableName, place: str) -> list[UploadedFile]:
    store = session.store
    assert isinstance(store, ObjectUploads), "Spark wrote into a bucket"
    uploads, prefix = store, key_of(table, place)
    folder = f"{prefix}/{_FOLDER}/"
    keys = (await repeated(session, partial(store.list, folder), f"{folder}: not listed")).keys
    named = [key for key in keys if key.endswith(_PENDING) and f"/{_TEMPORARY}/" not in key]
    attempts: defaultdict[str, set[str]] = defaultdict(set)

    async def read(key: ObjectKey) -> PendingUpload:
        found = await repeated(session, partial(store.get, key), f"{key}: not read")
        try:
            stated = json.loads(found.body if found is not None else b"")
            [(task, attempt)] = _ATTEMPT.findall(stated["uri"])
            attempts[task].add(attempt)
            parts = tuple(map(_part, stated["etags"]))
            url = f"s3://{stated['bucket']}/{stated['destinationKey']}"
            if not url.startswith(f"{uploads.url_of(prefix)}/"):
                raise ValueError(url)
            ours = ObjectKey(url.removeprefix(uploads.url_of("")))
            return PendingUpload(ours, stated["uploadId"], parts, int(stated["length"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Invalid(
                "rows-invalid",
                f"{key}: Hadoop describes an upload in an unknown way. Nothing was committed: write with "
                'df.write.format("rootline"), and report this with the version of Hadoop',
            ) from error

    pending = await gather_bounded(named, read, _REQUESTS_AT_ONCE)
    if any(len(of_task) > 1 for of_task in attempts.values()):
        raise Invalid(
            "rows-invalid",
            f"{table}: a task died while it committed its files, and its next attempt wrote other ones. Nothing was "
            "committed: repeat the write",
        )

    await gather_bounded(pending, partial(_complete, session, uploads), _REQUESTS_AT_ONCE)
    own = table_prefix(table)
    return [UploadedFile(upload.key.removeprefix(own), upload.length) for upload in pending]


async def _complete(session: Session, uploads: ObjectUploads, upload: PendingUpload) -> None:
    attempt = partial(uploads.complete_upload, upload)
    await repeated(session, attempt, f"{upload.key}: its upload was not completed")


def _part(stated: Any) -> UploadedPart:
    """A part in Hadoop's description of an upload. Raises `ValueError`, `KeyError` or `TypeError`."""
    if isinstance(stated, str):
        return UploadedPart(stated)
    etag, algorithm = str(stated["etag"]), stated.get("checksumAlgorithm")
    if algorithm is None:
        return UploadedPart(etag)
    if algorithm not in _CHECKSUMS:
        raise ValueError(algorithm)
    return UploadedPart(etag, ((algorithm, str(stated["checksum"])),))
