"""`rootline.spark.add_folder`: adds Parquet files in a table's folder to the table, described on the cluster.

Owns: finding the new files of a folder, describing them in parallel, one commit for all, the locations that a table
refuses because it removed or rewrote them. Does not own: reading one file (`data_file`), leaves for many files
(`new_files`).
Invariants: statistics are computed from the rows, never from a footer. Files that the table already has are skipped,
so a repeated call adds nothing twice. Folders to which Rootline itself writes are refused, because removed files there
would be added again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rootline.client import checks
from rootline.client.checks import DEFAULT_TIMEOUT_S
from rootline.client.data_file import DataFile
from rootline.client.planned_files import plan_files
from rootline.client.session import Commit, Session
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, RETIRED_PAGES
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import committing_lake, guest_lake
from rootline.spark.daemon import use_this_python
from rootline.spark.data_source import described_jobs, session_defaults
from rootline.spark.options import SourceOptions, parse_options
from rootline.spark.rewrite_jobs import on_cluster
from rootline.storage.metadata.page_reader import read_pages
from rootline.storage.stored_objects import read_stored
from rootline.tree.parts.locations import ClosedLocations, RetiredDraft
from rootline.tree.state.table_state import TablePages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def refused_locations(store: ObjectStore, header: RootHeader, locations: Iterable[str]) -> frozenset[str]:
    """The `locations` that an intent could not add at the version of `header`: it would be rejected as
    `file-removed`.

    Raises:
        Corrupt: `object-missing`, `page-corrupt`.
        Unavailable: `store-unavailable`.
    """
    pages = await read_pages(store, header, kinds=(CONDEMNED_PAGES, RETIRED_PAGES))
    return refused_by(header, pages, locations)


def refused_by(header: RootHeader, pages: TablePages, locations: Iterable[str]) -> frozenset[str]:
    """The result of `refused_locations`, computed from `pages`: objects that list condemned and rewritten locations."""
    retired = RetiredDraft(header.locations.retired, pages.of(RETIRED_PAGES))
    closed = ClosedLocations(header.table, retired, header.restores.through, pages.of(CONDEMNED_PAGES))
    return frozenset(filter(closed.why_closed, locations))


_FILES_OF_TASK: Final = 200
_OWN_FOLDERS: Final = ("data", "metadata")


@dataclass(frozen=True, slots=True)
class AddedFolder:
    """The result. `commit` added `files` files with `rows` rows, or is `None` if no file was new.

    `known`: the number of files that the table had already. `left`: the number of files that the table refuses, because
    it rewrote them or is about to delete them.
    """

    files: int
    rows: int
    known: int
    commit: Commit | None
    left: int = 0


def add_folder(
    spark: SparkSession,
    name: str,
    folder: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    summary: Mapping[str, str] | None = None,
    warehouse: str | None = None,
    log: str | None = None,
) -> AddedFolder:
    """Add the Parquet files of a folder inside the table's own folder, in one commit. No file is copied or written.

    Columns are found by field id, or by the table's name mapping. A column that is only in the files' paths
    (`day=2024-01-01`) has that value if the table is partitioned by the column itself. Otherwise the folder is refused.
    Every file is read on the cluster, for exact statistics. Names that begin with `_` or `.`, and those that do not end
    in `.parquet`, are skipped. Files that the table has, or has rewritten (for example in a compaction), are skipped
    too. So the same folder can be added again when it has new files. The table remembers rewritten files for the log's
    retention and a day.

    Args:
        spark: the session, with the same settings as for `rootline.spark.register`.
        name: `namespace.table`.
        folder: below the table's folder, such as `backfill/2013`. Not `data` or `metadata`, where Rootline writes.
        timeout_s: seconds to wait for the verdict.
        summary: text to text, stored in the snapshot.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `table-unknown`, `setting-invalid` (the folder, or there is none); `rows-invalid` or `file-unreadable`,
            naming the file; or the intent was rejected.
        OutcomeUnknown: `verdict-timeout`; adding the same folder again is safe.

    """
    given = {"path": checks.text(name, "name"), "warehouse": warehouse, "log": log}
    options = parse_options({**session_defaults(spark), **{key: value for key, value in given.items() if value}})
    wait_s, _, kept = checks.write_options(timeout_s, 1, summary)
    inside = _checked(checks.text(folder, "folder"))
    use_this_python(spark)
    with committing_lake(options) as lake, described_jobs(spark, f"rootline: add {inside} to {options.table}"):
        table = lake.table(options.table)
        definition = table.definition()
        listed = lake.holder.run(partial(files_of_folder, table=options.table, folder=inside))
        found = listed.new
        shares = [_packed(found[at : at + _FILES_OF_TASK]) for at in range(0, len(found), _FILES_OF_TASK)]
        described = partial(_described, options, definition.to_json(), shares)
        files = [file for share in on_cluster(spark, len(shares), described) for file in share] if shares else []
        commit = table.add_files(files, timeout_s=wait_s, summary=kept) if files else None
    return AddedFolder(len(files), sum(file.record_count for file in files), listed.known, commit, listed.left)


def _checked(folder: str) -> str:
    parts = folder.strip("/").split("/")
    if not parts[0] or parts[0] in _OWN_FOLDERS or any(part in ("", ".", "..") for part in parts):
        raise Invalid(
            "setting-invalid",
            f"folder {folder!r:.200}: name a folder below the table's own, such as 'backfill/2013'; 'data' and "
            "'metadata' contain Rootline's own files, some of which are deleted",
        )
    return "/".join(parts)


@dataclass(frozen=True, slots=True)
class FilesOfFolder:
    """The locations of the `new` files of a folder. `known`: the number of files in it that the table has already.
    `left`: the number of files that the table refuses.
    """

    new: tuple[str, ...]
    known: int
    left: int


async def files_of_folder(session: Session, table: TableName, folder: str) -> FilesOfFolder:
    """The Parquet files of a folder inside the table's own, compared with the newest version."""
    prefix = table_prefix(table)
    listing = await session.store.list(f"{prefix}{folder}/")
    if not listing.keys:
        raise Invalid(
            "setting-invalid",
            f"{table}: folder {folder!r:.200} does not exist, or is empty: name a folder below the table's own, "
            f"{prefix.rstrip('/')} in the warehouse",
        )
    places = [key.removeprefix(prefix) for key in listing.keys]
    names = {place for place in places if place.endswith(".parquet") and not _is_hidden(place, folder)}
    plan = await plan_files(session, table)
    others = names.difference(plan.scan.locations())
    left = await refused_locations(session.store, plan.root.header, others)
    return FilesOfFolder(tuple(sorted(others - left)), len(names) - len(others), len(left))


def _is_hidden(place: str, folder: str) -> bool:
    return any(part.startswith(("_", ".")) for part in place.removeprefix(f"{folder}/").split("/"))


def _packed(locations: Sequence[str]) -> bytes:
    """The locations for one task as compact bytes, because Spark sends every task's list to each task."""
    return zlib.compress(json.dumps(locations).encode(), 1)


def _described(options: SourceOptions, definition_json: bytes, shares: Sequence[bytes], number: int) -> list[DataFile]:
    """The data files of task `number` in the form for an intent, each described from its rows."""
    definition = TableDefinition.from_json(definition_json)

    async def body(session: Session, location: str) -> bytes:
        return await read_stored(session.store, options.table, location, code="data-file-corrupt")

    found: list[DataFile] = []
    for location in json.loads(zlib.decompress(shares[number])):
        source = guest_lake(options).holder.run(partial(body, location=location))
        found.append(DataFile.from_parquet(location, definition, source=source))
    return found
