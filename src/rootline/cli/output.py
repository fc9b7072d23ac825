"""What the command line prints.

Owns: lines, JSON lines, aligned columns, progress. Does not own: what is printed.
Invariants: results go to stdout, progress and errors to stderr; when stderr is no terminal, progress is a plain line
now and then, and none for what is done soon.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

LINE_EVERY_S = 10.0

if TYPE_CHECKING:
    from rootline.client.read.file_plan import PlannedFiles


def line(as_json: bool, record: Mapping[str, Any], text: str) -> None:
    """One result: `record` as a JSON object, or `text`."""
    sys.stdout.write((json_text(record) if as_json else text) + "\n")
    sys.stdout.flush()


def note(as_json: bool, text: str) -> None:
    """What only a person needs to be told; nothing in JSON."""
    if not as_json:
        line(False, {}, text)


def moment(milliseconds: int) -> str:
    """Milliseconds since the epoch as ISO 8601, UTC."""
    import datetime as dt

    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).isoformat(timespec="milliseconds")


def rows(as_json: bool, records: Sequence[Mapping[str, Any]], columns: Sequence[str], *, empty: str) -> None:
    """Several results of one shape: JSON objects, or aligned columns; `empty` is printed when there are none."""
    if as_json:
        for record in records:
            line(True, record, "")
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


def plan(as_json: bool, table: str, planned: PlannedFiles) -> None:
    """What planning a scan took: files, leaves, requests to the store."""
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
    line(as_json, record, text)


def json_text(record: Mapping[str, Any]) -> str:
    """The record on one line; what JSON has no form for becomes text."""
    return json.dumps(record, ensure_ascii=False, separators=(", ", ": "), default=_plain)


@contextlib.contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while something takes long; yields what advances it. Nothing when stderr is not a terminal."""
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
    """What shows progress on stderr: call it with how much is done, of how much, and that in words; from any thread.

    A bar on a terminal, else a line every ten seconds.
    """
    import time

    if not sys.stderr.isatty():
        told_s = time.monotonic()

        def write(_: int, __: int, text: str) -> None:
            nonlocal told_s
            if time.monotonic() - told_s >= LINE_EVERY_S:
                told_s = time.monotonic()
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
