"""What Spark's Parquet writer left in a folder of the table: each file looked through, side by side.

Owns: which files there are, and describing them. Does not own: writing them (`append`), what is read of a file
(`rootline.client.data_file`).
Invariants: statistics and partition are of the rows, never of a footer; a file that is not as the table is refused; a
file is durable before it is described, as an intent may name it then; no two files have one name, by which a sweep
tells what is referenced.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from rootline.client.data_file import DataFile
from rootline.client.session import Session, oldest_date
from rootline.ports.object_store import ObjectFiles
from rootline.schemas import intent
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.maintenance.group_jobs import on_cluster
from rootline.spark.options import SourceOptions
from rootline.spark.parquet_files import bytes_of, is_as_wanted
from rootline.storage.rows.arrow_types import arrow_schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DRIVER_BYTES: Final = 512 * 1024 * 1024
"""Up to so much is looked through on the driver: a job would take longer to begin."""
_DRIVER_THREADS: Final = 4
_FILES_OF_TASK: Final = 100
_TASKS_OF_CORE: Final = 2
_CORES_OF_CLUSTER: Final = 8


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files with rows. `oldest_ms`: when the first was written, in the store's milliseconds; `None`: not known."""

    files: tuple[intent.DataFile, ...] = ()
    oldest_ms: int | None = None

    @property
    def row_count(self) -> int:
        """Of all files."""
        return sum(file.record_count for file in self.files)


def written_files(
    spark: SparkSession, options: SourceOptions, definition: TableDefinition, place: str, path: str
) -> WrittenFiles:
    """The files below `place`, a folder of the table's, which is at `path`.

    Raises:
        Invalid: `rows-invalid`, the rows of a file do not fit the table.
        Unavailable: `store-unavailable`.

    """
    written = [found for found in Path(path).rglob("*.parquet") if not _is_hidden(found.relative_to(path))]
    if not written:
        return WrittenFiles()
    paths = sorted(map(_renamed, written))
    locations = [f"{place}/{found.relative_to(path).as_posix()}" for found in paths]
    count = min(len(locations), _TASKS_OF_CORE * _cores(spark))
    count = max(count, -(-len(locations) // _FILES_OF_TASK))
    described = partial(_described, options, definition.to_json(), [locations[at::count] for at in range(count)])
    if sum(found.stat().st_size for found in paths) <= _DRIVER_BYTES:
        with ThreadPoolExecutor(_DRIVER_THREADS) as threads:
            found = list(threads.map(described, range(count)))
    else:
        found = on_cluster(spark, count, described)
    shares = [share for share in found if share.files]
    return WrittenFiles(
        tuple(file for share in shares for file in share.files), oldest_date(share.oldest_ms for share in shares)
    )


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except (AttributeError, NotImplementedError):  # Spark Connect does not say
        return _CORES_OF_CLUSTER


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def _renamed(path: Path) -> Path:
    """The file under a name that no other has: Spark names those of one task alike, in a folder of each partition."""
    try:
        return path.rename(path.with_name(f"{uuid.uuid4()}.parquet"))
    except OSError as error:
        reason = f"{path}: cannot be renamed: {error.strerror or error}; nothing was committed: run the write again"
        raise Unavailable("store-unavailable", reason) from error


def _described(
    options: SourceOptions, definition_json: bytes, shares: Sequence[Sequence[str]], number: int
) -> WrittenFiles:
    definition = TableDefinition.from_json(definition_json)
    wanted = bytes_of(arrow_schema_of(definition.schema))
    files: list[intent.DataFile] = []
    dates: list[int | None] = []
    for location in shares[number]:
        path, date_ms = guest_lake(options).holder.run(partial(_settled, options=options, location=location))
        try:
            file = _file(path, location, definition, wanted)
        except Invalid as error:
            message = f"{options.table}: nothing was committed: {error.message}"
            raise Invalid("rows-invalid", message) from error
        if file is not None:
            files.append(file)
            dates.append(date_ms)
    return WrittenFiles(tuple(files), oldest_date(dates))


async def _settled(session: Session, options: SourceOptions, location: str) -> tuple[str, int | None]:
    """The path of a file that outlives a crash from now on, and when it was written."""
    store, key = session.store, key_of(options.table, location)
    assert isinstance(store, ObjectFiles), "Spark wrote into a folder"
    await store.make_durable(key)
    path = await store.path_of(key)
    if path is None:
        raise Invalid("file-missing", f"{key}: Spark wrote this file, and it is gone: run the write again")
    return path, await store.stored_ms(key)


def _file(path: str, location: str, definition: TableDefinition, wanted: bytes) -> intent.DataFile | None:
    """The file at `path`; `None`: it has no rows, as Spark writes one for a DataFrame without any."""
    rows = pq.read_metadata(path).num_rows
    if rows == 0:
        return None
    if not is_as_wanted(path, None, rows, wanted):
        raise Invalid(
            "file-unreadable",
            f"{location}: the file that Spark wrote has other columns or types than the table; write with "
            'df.write.format("rootline"), and report this with the settings of the session',
        )
    return DataFile.from_parquet(location, definition, source=path)
