"""Exporting a table for other engines, from a program.

Owns: which format is meant, one exporter per session. Does not own: making exports
(`rootline.catalog.exporter`).
Invariants: changes no table; what was exported before is not made again.
"""

from __future__ import annotations

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exporter import ExportedTable, TableExporter
from rootline.client.session.session import Session
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, Version


async def export_table(
    session: Session, table: TableName, format_version: int | str | None, version: int | None
) -> ExportedTable:
    """The export of `version`, or of the head.

    Raises:
        Invalid: `setting-invalid`, an unknown format; `version-unknown`, `export-unsupported`.
        Corrupt: what the export is made from is damaged.
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
