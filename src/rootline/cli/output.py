"""Output of the command line, and its exit codes.

Owns: lines, JSON lines, aligned columns, progress, the line of a verdict and of an error, exit codes. Does not own: the
results that are printed, codes and their explanations (`error_codes`).
Invariants: results go to stdout, progress and errors to stderr. When stderr is no terminal, progress is a plain line
every ten seconds. Exit codes: 0 done, 1 the answer is no, 2 usage, 3 the service or store cannot be reached. No
traceback is shown, unless `ROOTLINE_TRACEBACK` asks for it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from rootline.schemas.errors import OutcomeUnknown, RootlineError, Unavailable

if TYPE_CHECKING:
    from rootline.client.planned_files import PlannedFiles
    from rootline.schemas.verdict import Verdict

LINE_EVERY_S = 10.0
_USAGE_CODES: Final = {
    "column-unknown",
    "definition-invalid",
    "filter-invalid",
    "lake-closed",
    "property-invalid",
    "setting-invalid",
    "table-name-invalid",
}


class ExitCode(IntEnum):
    """The exit code of a command."""

    DONE = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 3


def moment(milliseconds: int) -> str:
    """Milliseconds since the epoch as ISO 8601, UTC."""
    import datetime as dt

    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Output:
    """Results on stdout: as text, or as JSON, one object on each line."""

    as_json: bool

    def line(self, record: Mapping[str, Any], text: str) -> None:
        """Print one result: `record` as a JSON object, or `text`."""
        sys.stdout.write((json_text(record) if self.as_json else text) + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a hint for a person. Prints nothing in JSON."""
        if not self.as_json:
            self.line({}, text)

    def rows(self, records: Sequence[Mapping[str, Any]], columns: Sequence[str], *, empty: str) -> None:
        """Print results of one shape as JSON objects, or in aligned columns. Print `empty` when there are none."""
        if self.as_json:
            for record in records:
                self.line(record, "")
            return
        if not records:
            sys.stdout.write(f"{empty}\n")
            return
        cells = [[_cell(record.get(column)) for column in columns] for record in records]
        widths = [max(len(row[at]) for row in [list(columns), *cells]) for at in range(len(columns))]
        right = [all(isinstance(record.get(column), int | float | None) for record in records) for column in columns]
        for row in [list(columns), *cells]:
            parts = [
                text.rjust(width) if to_right else text.ljust(width)
                for text, width, to_right in zip(row, widths, right, strict=True)
            ]
            sys.stdout.write("  ".join(parts).rstrip() + "\n")
        sys.stdout.flush()

    def plan(self, table: str, planned: PlannedFiles) -> None:
        """Print the cost of planning a scan: files, leaves, requests to the store."""
        requests = planned.requests
        record = {
            "table": table,
            "version": planned.version,
            "files": len(planned),
            "leaves_read": planned.leaves_read,
            "leaves_pruned": planned.leaves_pruned,
            "requests": requests.total,
            "lists": requests.lists,
            "gets": requests.gets,
            "gets_of_leaves": requests.leaves,
        }
        text = (
            f"{len(planned)} files of version {planned.version}: {requests.total} requests ({requests.lists} LIST, "
            f"{requests.gets} GET, {requests.leaves} of these for leaves); {planned.leaves_pruned} of "
            f"{planned.leaves_pruned + planned.leaves_read} data leaves pruned"
        )
        self.line(record, text)

    def verdict_line(
        self, name: str, record: Mapping[str, Any], verdict: Verdict, *, rejected: str = "rejected"
    ) -> ExitCode:
        """Print the verdict on the intent that the caller knows as `name`, and return the exit code.

        `record` names the intent in JSON.
        """
        from rootline.schemas.verdict import VerdictKind

        version = "a version that is no longer kept" if verdict.version is None else f"version {verdict.version}"
        match verdict.kind:
            case VerdictKind.REJECTED:
                text = f"{rejected}: {verdict.message} [{verdict.code}]"
            case VerdictKind.DUPLICATE:
                text = f"duplicate: {verdict.table} has had it since {version}"
            case VerdictKind.COMMITTED:
                text = f"committed {verdict.table} {version} sequence number {verdict.sequence_number}"
        self.line({**record, **verdict.model_dump(mode="json", exclude_none=True)}, f"{name}: {text}")
        return ExitCode.NO if verdict.kind is VerdictKind.REJECTED else ExitCode.DONE


def json_text(record: Mapping[str, Any]) -> str:
    """The record on one line. A value without a form in JSON becomes text."""
    return json.dumps(record, ensure_ascii=False, separators=(", ", ": "), default=_plain)


@contextlib.contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr during long work, and yield the function that advances it. Needs a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps: bar.advance(task, steps)


@contextlib.contextmanager
def long_work(description: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show progress on stderr: a bar on a terminal, else a line every ten seconds.

    Yields a function of the amount done, the total, and both in words. It may be called from any thread.
    """
    import time

    if not sys.stderr.isatty():
        shown_s = time.monotonic()

        def write(_: int, __: int, text: str) -> None:
            nonlocal shown_s
            if time.monotonic() - shown_s >= LINE_EVERY_S:
                shown_s = time.monotonic()
                sys.stderr.write(f"{description}: {text}\n")
                sys.stderr.flush()

        yield write
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None, text="")
        yield lambda done, total, text: bar.update(task, completed=done, total=total, text=text)


def exit_code_of(error: Exception) -> ExitCode:
    """The exit code for an error that ended a command."""
    match error:
        case Unavailable() | OutcomeUnknown():
            return ExitCode.UNREACHABLE
        case RootlineError() if error.code in _USAGE_CODES:
            return ExitCode.USAGE
        case RootlineError():
            return ExitCode.NO
        case FileNotFoundError() | IsADirectoryError() | NotADirectoryError() | PermissionError():
            return ExitCode.USAGE
        case ConnectionError() | TimeoutError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.NO


def describe(error: Exception, *, as_json: bool) -> str:
    """The one line of a failure: object and reason, then the next step."""
    if isinstance(error, RootlineError):
        code, message, step = error.code, error.message, f"rootline explain {error.code}"
    elif isinstance(error, OSError):
        code, message = "os-error", f"{error.filename or 'the system'}: {error.strerror or error}"
        step = "check the path and its permissions"
    else:
        code, message = "unexpected", f"{type(error).__name__}: {error}"
        step = "this is a fault of Rootline; set ROOTLINE_TRACEBACK=1 and report what it shows"
    message = " ".join(message.split())
    if as_json:
        return json.dumps({"error": code, "message": message, "next": step}, ensure_ascii=False)
    return f"error: {message} [{code}]; next: {step}"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat is not None else str(value)
