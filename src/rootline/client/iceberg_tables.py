"""Adoption of Iceberg tables of V1 to V3 into this lake, and export of this lake's tables for other engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rootline.catalog.adoption_plan import AdoptionPlan, plan_adoption
from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exporter import ExportedTable, TableExporter
from rootline.client.create_drop import create_table
from rootline.client.new_files import upload_all
from rootline.client.session import Commit, Session, WriterStamp
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import is_absolute
from rootline.storage.metadata.root_reader import newest_root

ADOPTION_TIMEOUT_S = 600.0
"""The waiting time for the verdict. The coordinator reads every manifest before it commits."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The plan of an adoption, and its `commit`, which is `None` after a dry run."""

    plan: AdoptionPlan
    commit: Commit | None = None


def absolute(location: str) -> str:
    """`location` as a URL. A local path is converted, and a URL is unchanged."""
    if location.startswith("/"):
        return f"file://{location}"
    return location if is_absolute(location) else f"file://{Path(location).resolve()}"


async def adopt_table(
    session: Session, stamp: WriterStamp, table: TableName, location: str, *, dry_run: bool, timeout_s: float
) -> Adopted:
    """Plan an adoption. Unless it is a dry run, publish it and wait for the verdict.

    Raises:
        Invalid: `table-exists`; `metadata-unreadable`, `adoption-unsupported`, `adoption-invalid`, `file-unreadable`.
        Corrupt: `object-missing`, `leaf-corrupt`: an object that the metadata names is missing or damaged.
        OutcomeUnknown: `verdict-timeout`.
    """
    root = await newest_root(session.store, table)
    if root is not None:
        there = "had a table that was dropped" if root.header.is_tombstone else "exists already"
        raise Invalid("table-exists", f"{table} {there}; adopt under another name")
    plan = await plan_adoption(session.store, table, absolute(location))
    if dry_run:
        return Adopted(plan)
    await upload_all(session, table, [(plan.named.location, plan.body)])
    commit = await create_table(session, stamp, table, plan.definition, timeout_s=timeout_s, adopt=plan.named)
    return Adopted(plan, commit)


async def export_table(
    session: Session, table: TableName, format_version: int | str | None, version: int | None
) -> ExportedTable:
    """The export of `version`, or of the head.

    Raises:
        Invalid: `setting-invalid`, an unknown format; `version-unknown`, `export-unsupported`.
        Corrupt: an object that the export is made from is damaged.
        Unavailable: `store-unavailable`.
    """
    wanted = _format(format_version)
    if not session.exporters:
        session.exporters.append(TableExporter(session.store, session.base_url, cache=session.cache))
    return await session.exporters[0].export(table, wanted, None if version is None else Version(version))


def _format(text: int | str | None) -> FormatVersion | None:
    if text is None:
        return None
    try:
        return FormatVersion(int(str(text).removeprefix("v")))
    except ValueError:
        raise Invalid("setting-invalid", f"format_version {text!r}: write 2 or 3") from None
