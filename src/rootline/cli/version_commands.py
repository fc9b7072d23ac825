"""`rootline history`, `tree`, `changes`, `tag`, `restore` and `check`: the versions of a table.

Owns: arguments, and printing versions and findings. Does not own: reading and changing versions (`rootline.client`),
the verification (`rootline.storage.check.chain`).
Invariants: only `tag` with a name and `restore` without `--dry-run` change anything. The others host no coordinator.
`check` ends with 1 when there is any finding, and its last line states what was checked and what was not.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from rootline.cli import output
from rootline.cli.options import (
    AtVersion,
    DryRun,
    Given,
    TableArgument,
    Timeout,
    any_name,
    newest_header,
)
from rootline.cli.output import ExitCode, Output
from rootline.schemas.errors import Invalid, RootlineError

if TYPE_CHECKING:
    from rootline.client.version_history import TableChanges
    from rootline.schemas.root_header import RootHeader
    from rootline.storage.check.findings import CheckSummary

_RANGES_SHOWN: Final = 8

_NOT_CHECKED: Final = {
    "listed": "lengths and contents of data files (--data-files sizes, footers or all)",
    "sizes": "contents of data files (--data-files footers or all)",
    "footers": "rows of data files (--data-files all)",
}
DataFilesOption = Annotated[
    Literal["listed", "sizes", "footers", "all"],
    typer.Option(
        "--data-files",
        help="How closely to check data files. listed: each exists. sizes: each has the length that its entry states. "
        "footers: and as many rows, and columns of the table. all: and every row can be read and is within what its "
        "entry states.",
    ),
]


def changes(
    given: Given,
    table: TableArgument,
    from_version: Annotated[int, typer.Option("--from", help="The older version: what changed after it is shown.")],
    to_version: Annotated[
        int | None, typer.Option("--to", help="The newer version, itself included. Default: the newest.")
    ] = None,
) -> None:
    """Show what changed between two versions: files added and removed, and rows deleted from files that stayed.

    Maintenance is not shown, because it changes no row.
    """
    with given.lake_to_read() as lake:
        found = lake.table(table).changes(from_version=from_version, to_version=to_version)
    print_changes(
        given,
        found,
        empty=f"{table}: nothing changed between versions {found.from_version} and {found.to_version}",
    )


def print_changes(out: Output, changes: TableChanges, *, empty: str) -> None:
    """Print changes, one per line. Print `empty` when there are none."""
    records = list(changes.records())
    if not out.as_json:
        for record in records:
            if "positions" in record:
                record["positions"] = _ranges_text(record["positions"])
    columns = ["change", "content", "rows", "deleted_rows", "positions", "location"]
    out.rows(records, columns, empty=empty)


def _ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    rest = f",… ({len(texts) - _RANGES_SHOWN} more)" if len(texts) > _RANGES_SHOWN else ""
    return ",".join(texts[:_RANGES_SHOWN]) + rest


def history(
    given: Given,
    table: TableArgument,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many versions to list at most, the newest first.")
    ] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="Also versions that only record rejections and duplicates.")
    ] = False,
) -> None:
    """List the newest versions of a table."""
    from rootline.catalog.adopted_definition import ADOPTED_FROM
    from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT

    with given.lake_to_read() as lake:
        found = lake.table(table).history(limit=limit, everything=everything)
        before = None
        if ADOPTED_SNAPSHOT in found[-1].snapshot.summary:
            before = lake.table(table).definition().properties.get(ADOPTED_FROM)
    tags = found[0].tags
    records = [
        {
            "version": item.version,
            "snapshot_id": item.snapshot.snapshot_id,
            "sequence_number": item.snapshot.sequence_number,
            "timestamp": output.moment(item.snapshot.timestamp_ms),
            "operation": str(item.snapshot.operation),
            "rows": item.totals.rows,
            "deleted_rows": item.totals.deleted_rows,
            "data_files": item.totals.data_files,
            "summary": dict(item.snapshot.summary),
            "tags": sorted(tag for tag, version in tags.items() if version == item.version),
        }
        for item in found
    ]
    shown = ["version", "timestamp", "operation", "rows", "deleted_rows", "data_files", "snapshot_id"]
    if before is not None:
        records[-1]["adopted_from"] = before
    given.rows(records, shown, empty=f"{table}: no versions")
    if before is not None:
        given.note(f"its history before version {found[-1].version} is in {before}")


def tree(
    given: Given,
    table: TableArgument,
    version: AtVersion = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write an SVG picture to this file instead of printing text.")
    ] = None,
) -> None:
    """Show the metadata tree: the root's rows, the leaves below them, the vectors beside them."""
    from rootline.tree.view import outline_json

    with given.lake_to_read() as lake:
        picture = lake.table(table).tree(version=version)
    if svg is not None:
        svg.write_text(picture.svg(), encoding="utf-8")
        given.line({"table": table, "svg": str(svg)}, f"wrote {svg}")
        return
    given.line(outline_json(picture.outline()) if given.as_json else {}, picture.text())


def tag(
    given: Given,
    table: TableArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The tag. Without it, all tags are listed.")
    ] = None,
    version: AtVersion = None,
    move: Annotated[bool, typer.Option("--move", help="Move the tag when it names another version already.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the tag.")] = False,
    timeout_s: Timeout = 30.0,
) -> None:
    """List a table's tags, or let a tag name a version, move it, or delete it."""
    if (name is None and (version is not None or move or delete)) or (delete and (version is not None or move)):
        raise Invalid("setting-invalid", "name the tag, and give either --delete, or --version and --move to set it")
    if name is None:
        with given.lake_to_read() as lake:
            tags = lake.table(table).tags()
        records = [{"tag": key, "version": tags[key]} for key in sorted(tags)]
        given.rows(records, ["tag", "version"], empty=f"{table}: no tags")
        return
    with given.lake_to_change() as lake:
        handle = lake.table(table)
        if delete:
            commit = handle.untag(name, timeout_s=timeout_s)
        else:
            commit = handle.tag(name, version=version, move=move, timeout_s=timeout_s)
        at = handle.tags().get(name)
    record = {"table": table, "tag": name, "version": at, "committed": commit.version}
    given.line(record, f"deleted {name}" if delete else f"{name} is version {at}")


def restore(
    given: Given,
    table: TableArgument,
    to_version: Annotated[int, typer.Option("--to-version", help="The version to go back to.")],
    dry_run: DryRun = False,
    timeout_s: Timeout = 30.0,
) -> None:
    """Go back to the content of an earlier version, as a new version. The versions in between stay."""
    if dry_run:
        with given.lake_to_read() as lake:
            found = lake.table(table).preview_restore(version=to_version)
        nothing = f"{table}: restoring version {to_version} would change nothing"
        print_changes(given, found, empty=nothing)
        return
    with given.lake_to_change() as lake:
        commit = lake.table(table).restore(version=to_version, timeout_s=timeout_s)
    record = {"table": table, "restored": to_version, "version": commit.version}
    given.line(record, f"version {commit.version} of {table} is what version {to_version} was")


def check(
    given: Given,
    table: TableArgument,
    data_files: DataFilesOption = "listed",
) -> None:
    """Read every version of a table and verify all that stored bytes can show.

    Ends with 1 when anything is wrong. A dropped table is checked like the table that a restore would return. Of a
    view, the stored versions are checked.
    """
    from rootline.storage.check.findings import CheckSummary
    from rootline.tree.state.addressable import dropped_words

    summary = CheckSummary()
    confirmed = _confirmed(table, given)
    with (
        given.lake_to_read() as lake,
        output.long_work(f"checking {table}") as advance,
    ):
        handle = any_name(lake, table)
        checked = handle.check(
            data_files=data_files, summary=summary, progress=lambda so_far: advance(*_progress(so_far))
        )
        for finding in checked:
            record = {"object": finding.object, "code": finding.code, "reason": finding.reason}
            if finding.way_out:
                record["way_out"] = finding.way_out
            given.line(record, f"{finding.object}: {finding.reason} [{finding.code}]")
            if finding.way_out:
                given.note(f"  if there is no copy of it, publish this intent: {finding.way_out}")
        head = newest_header(lake, handle)
    if confirmed is not None and head.version < confirmed:
        summary.findings += 1
        reason = (
            f"the newest root is version {head.version}, but the log has published version {confirmed} as committed: "
            f"the roots between are lost. Restore them, or accept the loss (`rootline table accept {table}`)"
        )
        given.line({"object": table, "code": "head-lost", "reason": reason}, f"{table}: {reason} [head-lost]")
    behind = _reason_behind(head, given)
    if behind is not None:
        summary.findings += 1
        record = {"object": table, "code": "log-behind-root", "reason": behind}
        given.line(record, f"{behind} [log-behind-root]")
    _print_result(given, table, data_files, summary, confirmed is None)
    if head.is_tombstone:
        given.note(dropped_words(table, head.name.drops[-1]))
    if summary.findings:
        raise typer.Exit(ExitCode.NO)


def _confirmed(table: str, given: Given) -> int | None:
    """The newest version that the log knows to be committed.

    It is read before the head, which may move meanwhile.
    """
    from rootline.connect import confirmed_version

    try:
        return confirmed_version(given.log, given.place, table)
    except RootlineError:  # the table can be checked all the same, and the last line states what was not checked
        return None


def _reason_behind(head: RootHeader, given: Given) -> str | None:
    """The reason if the embedded log is not the one whose records the head has decided, else `None`."""
    from rootline.connect import log_behind_root

    try:
        return log_behind_root(given.log, given.place, head)
    except RootlineError:
        return None


def _progress(summary: CheckSummary) -> tuple[int, int, str]:
    """The amount done, the total, and both in words."""
    text = f"{summary.roots} of {summary.roots_total} versions"
    if summary.data_files:
        text += f", {max(summary.data_files_measured, summary.data_files_opened)} of {summary.data_files} data files"
    return summary.roots + summary.data_files_measured, summary.roots_total + summary.data_files, text


def _print_result(given: Given, table: str, closely: str, summary: CheckSummary, knows_no_head: bool) -> None:
    unchecked = [_NOT_CHECKED[closely]] if closely in _NOT_CHECKED else []
    if summary.data_files_unread:
        unchecked.append(f"{summary.data_files_unread} data files that are encrypted, or of a format without a footer")
    if summary.unreferenced_objects:
        unchecked.append(f"{summary.unreferenced_objects} objects that no version names")
    if knows_no_head:
        unchecked.append("whether newer roots were lost, which only an embedded log knows")
    unchecked.append("whether exports match the table")
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
        "not_looked_at": unchecked,
    }
    counts = f"{summary.roots} versions, {summary.leaves} leaves, {summary.vectors} vectors, "
    seen = f"{counts}{summary.data_files} data files"
    seen += f", {summary.exports} exports" if summary.exports else ""
    found = "no findings" if not summary.findings else f"{summary.findings} findings"
    given.line(record, f"{table}: {found} in {seen}; not checked: {'; '.join(unchecked)}")
    if summary.data_files_given_up:
        lost = f"{summary.data_files_given_up} data files are lost and were removed from the table"
        given.note(f"{table}: {lost}: versions from before then cannot be read in full")
