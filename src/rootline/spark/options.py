"""The options of `format("rootline")`, with the names that users of Iceberg and Delta know.

Owns: names, defaults and checks of options. Does not own: their effect on a reader or writer.
Invariants: an option that is unknown, does not apply, or has no usable value is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from rootline.client.time_travel import PointInTime, milliseconds
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, table_name
from rootline.schemas.intent_rules import Isolation

WAREHOUSE_VARIABLE: Final = "ROOTLINE_WAREHOUSE"
LOG_VARIABLE: Final = "ROOTLINE_LOG"
DEFAULT_TARGET_BYTES: Final = 128 * 1024 * 1024
"""A complete file is in memory until the store has it. With this default a task needs 512 MiB in all."""
DEFAULT_TIMEOUT_MS: Final = 60_000
_EVERYWHERE: Final = ("path", "warehouse", "log", "caseSensitive", "reportsTo")
_READING: Final = (
    "columns",
    "where",
    "pushFilters",
    "versionAsOf",
    "timestampAsOf",
    "snapshotId",
    "tag",
    "filesOfPlan",
)
_PINNING: Final = ("where", "pushFilters", "versionAsOf", "timestampAsOf", "snapshotId", "tag", "filesOfPlan")
_STREAMING: Final = (
    "changes",
    "startingVersion",
    "startingTimestamp",
    "maxFilesPerTrigger",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "onDeletedRows",
)
_WRITING: Final = (
    "writerId",
    "writerSequence",
    "verdictTimeoutMs",
    "onRejected",
    "isolationLevel",
    "targetFileSizeBytes",
    "mergeSchema",
    "checkpointLocation",
    "queryName",
    "createTable",
    "partitionedBy",
    "sortedBy",
    "replaceWhere",
    "partitionOverwriteMode",
    "upsert",
)
_OVERWRITING: Final = ("replaceWhere", "partitionOverwriteMode")
_CREATING: Final = ("partitionedBy", "sortedBy")
_OF_NEW_ROWS: Final = (*_OVERWRITING, *_CREATING, "createTable", "mergeSchema", "upsert", "onRejected")
_OF_SPARK_STREAMS: Final = ("checkpointLocation", "queryName")
"""Spark's own options of a streaming write, which it also passes to the sink."""
_PROVIDER: Final = "provider"
"""A property of a table in Spark's own catalog. Spark passes it to the source only while it creates the table."""
_INSTEAD_OF_CATALOG: Final = (
    "create a temporary view (CREATE TEMPORARY VIEW v USING rootline OPTIONS (path 'namespace.table')), which can be "
    "read and inserted into, or create the table through Iceberg's runtime and the REST catalog (docs/spark-sql.md)"
)
_INTERNAL: Final = ("filesOfPlan", "reportsTo")
"""Options that `rootline.spark.table` passes to our reader, and `serve_metrics` to our writers."""
_KNOWN: Final = (*_EVERYWHERE, *_READING, *_STREAMING, *_WRITING)
_Choice = TypeVar("_Choice", bound=StrEnum)


class OnRejected(StrEnum):
    """The reaction of a sink to a rejected intent."""

    FAIL = "fail"
    DEAD_LETTER = "deadLetter"


class _Switch(StrEnum):
    """The values of an option that is on or off."""

    ON = "true"
    OFF = "false"


class PartitionMode(StrEnum):
    """The partitions that `mode("overwrite")` replaces, in Spark's words."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class OnDeletedRows(StrEnum):
    """The reaction of a stream of added rows to a commit that deletes rows."""

    FAIL = "fail"
    SKIP = "skip"


class Use(StrEnum):
    """The use of a set of options."""

    READ = "read"
    STREAM_READ = "streaming read"
    BATCH_WRITE = "batch write"
    STREAM_WRITE = "streaming write"
    ROW_CHANGE = "change of rows"


_FOREIGN: Final[Mapping[Use, frozenset[str]]] = {
    Use.READ: frozenset((*_WRITING, *_STREAMING)),
    Use.STREAM_READ: frozenset((*_WRITING, *_PINNING)),
    Use.BATCH_WRITE: frozenset((*_READING, *_STREAMING)),
    Use.STREAM_WRITE: frozenset((*_READING, *_STREAMING)),
    Use.ROW_CHANGE: frozenset((*_READING, *_STREAMING, *_OF_NEW_ROWS, *_OF_SPARK_STREAMS)),
}
"""Options without a meaning for each use."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one `load`, `save` or `start`. `given`: the names of those that were set, for checks."""

    warehouse: str
    log: str | None
    table: TableName
    given: frozenset[str] = frozenset()
    columns: tuple[str, ...] | None = None
    where: str | None = None
    push_filters: bool = False  # docs/spark.md says why
    point: PointInTime = PointInTime()
    files_of_plan: str | None = None
    writer_id: str | None = None
    writer_sequence: int | None = None
    verdict_timeout_ms: int = DEFAULT_TIMEOUT_MS
    on_rejected: OnRejected = OnRejected.FAIL
    isolation: Isolation = Isolation.SERIALIZABLE
    target_file_size_bytes: int = DEFAULT_TARGET_BYTES
    merge_schema: bool = False
    create_table: bool = False
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    replace_where: str | None = None
    partition_overwrite: PartitionMode | None = None
    upsert: bool = False
    case_sensitive: bool = False
    changes: bool = False
    starting_version: str | None = None
    starting_timestamp: int | None = None
    max_files_per_trigger: int | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    on_deleted_rows: OnDeletedRows = OnDeletedRows.FAIL
    reports_to: str | None = None

    def checked_for(self, use: Use) -> SourceOptions:
        """The same options, if they fit.

        Raises:
            Invalid: `setting-invalid`, an option has no meaning for `use`, or half of a pair is missing.
        """
        foreign = sorted(self.given.intersection(_FOREIGN[use]))
        if foreign:
            raise Invalid("setting-invalid", f"option {foreign[0]!r} has no meaning for a {use}: leave it out")
        if use is Use.STREAM_WRITE and self.writer_sequence is not None:
            raise Invalid(
                "setting-invalid",
                "option 'writerSequence' has no meaning for a stream, which counts by its batch id: leave it out",
            )
        if use is not Use.STREAM_WRITE and (self.writer_id is None) != (self.writer_sequence is None):
            raise Invalid("setting-invalid", "options 'writerId' and 'writerSequence' need each other: set both")
        if use is Use.STREAM_READ:
            self._check_stream()
        unused = sorted(self.given.intersection(_CREATING)) if not self.create_table else []
        if unused:
            raise Invalid(
                "setting-invalid", f"option {unused[0]!r} is for a new table: set 'createTable' to 'true' too"
            )
        return self._checked_for_overwrite(use)

    def _checked_for_overwrite(self, use: Use) -> SourceOptions:
        given = sorted(self.given.intersection(_OVERWRITING))
        if given and use is Use.STREAM_WRITE:
            raise Invalid("setting-invalid", f"option {given[0]!r} has no meaning for a {use}: leave it out")
        if len(given) > 1 and self.partition_overwrite is PartitionMode.DYNAMIC:
            raise Invalid(
                "setting-invalid", "'replaceWhere' and 'partitionOverwriteMode' both select the replaced rows: set one"
            )
        return self

    def _check_stream(self) -> None:
        for names in (("startingVersion", "startingTimestamp"), _STREAMING[3:6]):
            both = [name for name in names if name in self.given]
            if len(both) > 1:
                raise Invalid("setting-invalid", f"options {both[0]!r} and {both[1]!r} exclude each other: give one")


def parse_options(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> SourceOptions:
    """The options that Spark passes (in any case), with `ROOTLINE_WAREHOUSE` and `ROOTLINE_LOG` as defaults.

    Raises:
        Invalid: `setting-invalid`, an option is unknown, missing or malformed, naming it.
    """
    variables = os.environ if environment is None else environment
    found = _canonical(given)
    if "path" not in found:
        raise Invalid(
            "setting-invalid",
            "no table: name it as load('namespace.table') or save('namespace.table'). For a table of Spark's own "
            f"catalog Spark gives no options: {_INSTEAD_OF_CATALOG}",
        )
    warehouse = found.get("warehouse") or variables.get(WAREHOUSE_VARIABLE)
    if not warehouse:
        raise Invalid("setting-invalid", f"no warehouse: set option 'warehouse' or the variable {WAREHOUSE_VARIABLE}")
    return SourceOptions(
        warehouse=absolute_warehouse(warehouse),
        log=found.get("log") or variables.get(LOG_VARIABLE) or None,
        table=table_name(found["path"]),
        given=frozenset(found),
        columns=_names(found.get("columns")),
        where=found.get("where"),
        push_filters=_is_on(found, "pushFilters"),
        point=PointInTime(
            version=_whole(found, "versionAsOf"),
            snapshot_id=_whole(found, "snapshotId"),
            timestamp=_moment(found.get("timestampAsOf")),
            tag=found.get("tag"),
        ),
        files_of_plan=found.get("filesOfPlan"),
        writer_id=found.get("writerId"),
        writer_sequence=_whole(found, "writerSequence"),
        verdict_timeout_ms=_size(found, "verdictTimeoutMs", DEFAULT_TIMEOUT_MS),
        on_rejected=_chosen(found, "onRejected", OnRejected.FAIL),
        isolation=_chosen(found, "isolationLevel", Isolation.SERIALIZABLE),
        target_file_size_bytes=_size(found, "targetFileSizeBytes", DEFAULT_TARGET_BYTES),
        merge_schema=_is_on(found, "mergeSchema"),
        create_table=_is_on(found, "createTable"),
        partitioned_by=_terms(found.get("partitionedBy")),
        sorted_by=_terms(found.get("sortedBy")),
        replace_where=found.get("replaceWhere"),
        upsert=_is_on(found, "upsert"),
        case_sensitive=_is_on(found, "caseSensitive"),
        partition_overwrite=(
            _chosen(found, "partitionOverwriteMode", PartitionMode.STATIC)
            if "partitionOverwriteMode" in found
            else None
        ),
        changes=_is_on(found, "changes"),
        starting_version=_starting_version(found),
        starting_timestamp=_moment(found.get("startingTimestamp"), "startingTimestamp"),
        max_files_per_trigger=_most(found, "maxFilesPerTrigger"),
        max_rows_per_trigger=_most(found, "maxRowsPerTrigger"),
        max_bytes_per_trigger=_most(found, "maxBytesPerTrigger"),
        on_deleted_rows=_chosen(found, "onDeletedRows", OnDeletedRows.FAIL),
        reports_to=found.get("reportsTo"),
    )


def absolute_warehouse(url: str) -> str:
    """`url` with a relative path made absolute, because the current folder differs between processes and may change.

    `s3a://` is Hadoop's name for `s3://`.
    """
    if url.startswith("s3a://"):
        return f"s3://{url.removeprefix('s3a://')}"
    is_url = ":" in url.partition("/")[0]  # or a mistake, which connecting refuses
    return url if is_url else str(Path(url).expanduser().absolute())


def _canonical(given: Mapping[str, str]) -> dict[str, str]:
    canonical = {name.lower(): name for name in _KNOWN}
    if given.get(_PROVIDER, "").lower() == "rootline":
        raise Invalid(
            "setting-invalid",
            f"CREATE TABLE … USING rootline makes a table that Spark cannot read: {_INSTEAD_OF_CATALOG}",
        )
    found: dict[str, str] = {}
    for name, value in given.items():
        known = canonical.get(name.lower())
        if known is None:
            raise Invalid("setting-invalid", f"option {name!r} does not exist; {_nearest(name)}")
        found[known] = value
    return found


def _nearest(name: str) -> str:
    shown = {option.lower(): option for option in _KNOWN if option not in _INTERNAL}
    near = get_close_matches(name.lower(), shown, n=1)
    return f"write {shown[near[0]]!r}" if near else f"the options are {', '.join(shown.values())}"


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise Invalid("setting-invalid", "option 'columns' names no column; write it as in 'carrier, dep_delay'")
    return tuple(dict.fromkeys(names))


def _terms(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    from rootline.client.layout_terms import split_terms  # a read needs none of its imports

    return tuple(split_terms(text))


def _whole(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise Invalid("setting-invalid", f"option {name!r} is {text[:40]!r}; it must be a whole number")
    return int(text)


def _size(found: Mapping[str, str], name: str, default: int) -> int:
    number = _whole(found, name)
    if number == 0:
        raise Invalid("setting-invalid", f"option {name!r} is 0; it must be at least 1")
    return default if number is None else number


def _most(found: Mapping[str, str], name: str) -> int | None:
    return _size(found, name, 1) if name in found else None


def _starting_version(found: Mapping[str, str]) -> str | None:
    text = found.get("startingVersion")
    if text is None or text.lower() == "latest":
        return None if text is None else "latest"
    return str(_whole(found, "startingVersion"))


def _moment(text: str | None, name: str = "timestampAsOf") -> int | None:
    return None if text is None else milliseconds(text, f"option {name!r}")


def _chosen(found: Mapping[str, str], name: str, default: _Choice) -> _Choice:
    text = found.get(name)
    if text is None:
        return default
    for choice in type(default):
        if choice.value.lower() == text.lower():
            return choice
    choices = " or ".join(repr(choice.value) for choice in type(default))
    raise Invalid("setting-invalid", f"option {name!r} is {text[:40]!r}; it must be {choices}")


def _is_on(found: Mapping[str, str], name: str) -> bool:
    return _chosen(found, name, _Switch.OFF) is _Switch.ON
