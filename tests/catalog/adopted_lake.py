"""Maintenance and checks of a lake's adopted table."""

from __future__ import annotations

from typing import Final

from rootline.client.data_file_writer import write_rewritten_files
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.schemas.identifiers import TableName
from rootline.storage.check.chain import check_table
from rootline.workers.jobs.job import JobReport
from rootline.workers.kinds import MaintenanceKind, Rights, maintain

NAME: Final = "new.flights"
"""The table, as it is called after its adoption."""


def maintained(lake: Lake, what: MaintenanceKind) -> JobReport:
    """Carry out one kind of maintenance."""

    async def operation(session: Session) -> JobReport:
        name, rights = TableName(NAME), Rights(write_rows=write_rewritten_files)
        return await maintain(session.store, session.log, session.environment, name, what, dry_run=False, rights=rights)

    return lake.holder.run(operation)


def findings(lake: Lake) -> list[tuple[str, str]]:
    """Code and reason of everything that a check finds."""

    async def check(session: Session) -> list[tuple[str, str]]:
        return [(found.code, found.reason) async for found in check_table(session.store, TableName(NAME))]

    return lake.holder.run(check)
