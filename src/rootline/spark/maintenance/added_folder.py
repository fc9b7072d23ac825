"""`rootline.spark.add_folder`: Parquet files in a table's folder become the table's; they are read on the cluster.

Owns: which files of a folder are new, describing them side by side, one commit for all. Does not own: what is read of a
file (`rootline.client.write.data_file`), leaves for many files (`rootline.client.write.new_files`).
Invariants: statistics are of the rows, never of a footer; a file that the table has is left out, so running it again
adds nothing twice; folders that Rootline itself writes to are refused, because what was removed there would come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rootline.client import checks
from rootline.client.read.file_plan import plan_files
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.write.data_file import DataFile
from rootline.client.write.producer import DEFAULT_TIMEOUT_S
from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import committing_lake, guest_lake
from rootline.spark.data_source import session_defaults
from rootline.spark.maintenance.group_jobs import on_cluster
from rootline.spark.options import SourceOptions, parse_options
from rootline.spark.worker_python import use_this_python
from rootline.storage.metadata.stored_file import read_stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_OF_TASK: Final = 200
_OWN_FOLDERS: Final = ("data", "metadata")


@dataclass(frozen=True, slots=True)
class AddedFolder:
    """`files` with `rows` came by `commit`, which is `None` if none came; `known` files were the table's already."""

    files: int
    rows: int
    known: int
    commit: Commit | None


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

    Columns are found by field id, or as the table's name mapping says. Every file is read on the cluster, for exact
    statistics. Names that begin with `_` or `.`, and those that do not end in `.parquet`, are left out.

    Args:
        spark: the session; what `rootline.spark.register` reads of its settings is read here too.
        name: `namespace.table`.
        folder: below the table's folder, such as `backfill/2013`; neither `data` nor `metadata`, where Rootline writes.
        timeout_s: how many seconds to wait for the verdict.
        summary: text to text, kept in the snapshot.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `table-unknown`, `setting-invalid` (the folder); or the intent was rejected.
        OutcomeUnknown: `verdict-timeout`; adding the same folder again is safe.

    """
    given = {"path": checks.text(name, "name"), "warehouse": warehouse, "log": log}
    options = parse_options({**session_defaults(spark), **{key: value for key, value in given.items() if value}})
    wait_s, _, kept = checks.write_options(timeout_s, 1, summary)
    inside = _checked(checks.text(folder, "folder"))
    use_this_python(spark)
    with committing_lake(options) as lake:
        table = lake.table(options.table)
        definition = table.definition()
        found, known = lake.holder.run(partial(_new_files, options=options, folder=inside))
        shares = [found[at : at + _FILES_OF_TASK] for at in range(0, len(found), _FILES_OF_TASK)]
        described = partial(_described, options, definition.to_json(), shares)
        files = [file for share in on_cluster(spark, len(shares), described) for file in share] if shares else []
        commit = table.add_files(files, timeout_s=wait_s, summary=kept) if files else None
    return AddedFolder(len(files), sum(file.record_count for file in files), known, commit)


def _checked(folder: str) -> str:
    parts = folder.strip("/").split("/")
    if not parts[0] or parts[0] in _OWN_FOLDERS or any(part in ("", ".", "..") for part in parts):
        raise Invalid(
            "setting-invalid",
            f"folder {folder!r:.200}: name a folder below the table's own, such as 'backfill/2013'; 'data' and "
            "'metadata' hold what Rootline wrote, also what was deleted since",
        )
    return "/".join(parts)


async def _new_files(session: Session, options: SourceOptions, folder: str) -> tuple[list[str], int]:
    """The locations of files that the table lacks, and how many it has of this folder."""
    prefix = table_prefix(options.table)
    listing = await session.store.list(f"{prefix}{folder}/")
    places = [key.removeprefix(prefix) for key in listing.keys]
    names = [place for place in places if place.endswith(".parquet") and not _is_hidden(place, folder)]
    live = {task.location for task in (await plan_files(session, options.table)).scan.tasks()}
    new = [name for name in names if name not in live]
    return new, len(names) - len(new)


def _is_hidden(place: str, folder: str) -> bool:
    return any(part.startswith(("_", ".")) for part in place.removeprefix(f"{folder}/").split("/"))


def _described(
    options: SourceOptions, definition_json: bytes, shares: Sequence[Sequence[str]], number: int
) -> list[DataFile]:
    """The files of a share, as an intent names them."""
    definition = TableDefinition.from_json(definition_json)

    async def body(session: Session, location: str) -> bytes:
        return await read_stored(session.store, options.table, location, code="data-file-corrupt")

    found: list[DataFile] = []
    for location in shares[number]:
        source = guest_lake(options).holder.run(partial(body, location=location))
        found.append(DataFile.from_parquet(location, definition, source=source))
    return found
