"""`rootline check`: read a table's whole chain and verify what stored bytes can show.

Owns: how findings are printed, and what was not looked at. Does not own: what is verified
(`rootline.storage.check.chain`).
Invariants: reads only; 1 when there is any finding; the last line says what was looked at and what was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.open_lake import lake_to_read
from rootline.cli.options import Json, Log, TableArgument, Warehouse

if TYPE_CHECKING:
    from rootline.schemas.root_header import RootHeader
    from rootline.storage.check.findings import CheckSummary

_NOT_LOOKED_AT = {
    "listed": "lengths and contents of data files (--data-files sizes, footers or all)",
    "sizes": "contents of data files (--data-files footers or all)",
    "footers": "rows of data files (--data-files all)",
}

DataFilesOption = Annotated[
    Literal["listed", "sizes", "footers", "all"],
    typer.Option(
        "--data-files",
        help="How closely to look at data files. listed: each exists. sizes: each has the length that its entry says. "
        "footers: and as many rows, and columns of the table. all: and every row can be read and is within what its "
        "entry says.",
    ),
]


def check(
    table: TableArgument,
    data_files: DataFilesOption = "listed",
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Read every version of a table and verify all that stored bytes can show; ends with 1 when anything is wrong.

    A table that was dropped is checked as it would come back, and a view as its versions are stored.
    """
    from rootline.cli import output
    from rootline.cli.open_lake import any_name, newest_header
    from rootline.storage.check.findings import CheckSummary
    from rootline.tree.state.name_state import dropped_words

    summary = CheckSummary()
    confirmed = _confirmed(table, warehouse, log)
    with (
        lake_to_read(warehouse, log) as lake,
        output.long_work(f"checking {table}") as told,
    ):
        handle = any_name(lake, table)
        checked = handle.check(data_files=data_files, summary=summary, progress=lambda so_far: told(*_progress(so_far)))
        for finding in checked:
            record = {"object": finding.object, "code": finding.code, "reason": finding.reason}
            if finding.way_out:
                record["way_out"] = finding.way_out
            output.line(as_json, record, f"{finding.object}: {finding.reason} [{finding.code}]")
            if finding.way_out:
                output.note(as_json, f"  if no copy of it is left, publish this intent: {finding.way_out}")
        head = newest_header(lake, handle)
    if confirmed is not None and head.version < confirmed:
        summary.findings += 1
        reason = (
            f"the newest root is version {head.version}, but the log has told version {confirmed} committed: the roots "
            f"between are lost; bring them back, or accept the loss (`rootline table accept {table}`)"
        )
        output.line(as_json, {"object": table, "code": "head-lost", "reason": reason}, f"{table}: {reason} [head-lost]")
    behind = _behind(head, warehouse, log)
    if behind is not None:
        summary.findings += 1
        record = {"object": table, "code": "log-behind-root", "reason": behind}
        output.line(as_json, record, f"{behind} [log-behind-root]")
    _tell_result(table, data_files, summary, confirmed is None, as_json)
    if head.is_tombstone:
        output.note(as_json, dropped_words(table, head.drops[-1]))
    if summary.findings:
        raise typer.Exit(ExitCode.NO)


def _confirmed(table: str, warehouse: str | None, log: str | None) -> int | None:
    """The newest version that the log knows to be committed; asked before the head is, which may move meanwhile."""
    from rootline.cli.options import required
    from rootline.connect import confirmed_version
    from rootline.schemas.errors import RootlineError

    try:
        return confirmed_version(log, required(warehouse), table)
    except RootlineError:  # the table can be checked all the same, and the last line says what was not looked at
        return None


def _behind(head: RootHeader, warehouse: str | None, log: str | None) -> str | None:
    """Why the embedded log is not the one whose records the head has decided, if it is not."""
    from rootline.cli.options import required
    from rootline.connect import log_behind_root
    from rootline.schemas.errors import RootlineError

    try:
        return log_behind_root(log, required(warehouse), head)
    except RootlineError:
        return None


def _progress(summary: CheckSummary) -> tuple[int, int, str]:
    """How much is done, of how much, in words."""
    text = f"{summary.roots} of {summary.roots_total} versions"
    if summary.data_files:
        text += f", {max(summary.data_files_measured, summary.data_files_opened)} of {summary.data_files} data files"
    return summary.roots + summary.data_files_measured, summary.roots_total + summary.data_files, text


def _tell_result(table: str, closely: str, summary: CheckSummary, knows_no_head: bool, as_json: bool) -> None:
    from rootline.cli import output

    left_out = [_NOT_LOOKED_AT[closely]] if closely in _NOT_LOOKED_AT else []
    if summary.data_files_unread:
        left_out.append(f"{summary.data_files_unread} data files that are encrypted, or of a format without a footer")
    if summary.unreferenced_objects:
        left_out.append(f"{summary.unreferenced_objects} objects that no version names")
    if knows_no_head:
        left_out.append("whether newer roots were lost, which only an embedded log knows")
    left_out.append("whether exports say what the table does")
    record = {
        "table": table,
        "findings": summary.findings,
        "versions": summary.roots,
        "leaves": summary.leaves,
        "vectors": summary.vectors,
        "data_files": summary.data_files,
        "data_files_measured": summary.data_files_measured,
        "data_files_opened": summary.data_files_opened,
        "data_files_given_up": summary.data_files_given_up,
        "rows_read": summary.rows_read,
        "exports": summary.exports,
        "not_looked_at": left_out,
    }
    counts = f"{summary.roots} versions, {summary.leaves} leaves, {summary.vectors} vectors, "
    seen = f"{counts}{summary.data_files} data files"
    seen += f", {summary.exports} exports" if summary.exports else ""
    found = "no findings" if not summary.findings else f"{summary.findings} findings"
    output.line(as_json, record, f"{table}: {found} in {seen}; not looked at: {'; '.join(left_out)}")
    if summary.data_files_given_up:
        given_up = f"{summary.data_files_given_up} data files are lost and were taken out as such"
        output.note(as_json, f"{table}: {given_up}: versions from before then cannot be read in full")
