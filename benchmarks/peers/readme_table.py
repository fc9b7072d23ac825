"""The table of figures in `README.md`, from the JSON of a run.

Owns: which figures a first reader sees, the words around them, their place in the README. Does not own: the figures,
the page with all of them (`page`).
Invariants: a column or a row without figures is omitted; the best figure of a column is bold, whoever has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.peers.bench import Record, Where
from benchmarks.peers.subjects import FLOOR, ROOTLINE

PEERS: Final = (ROOTLINE, "PyIceberg", "delta-rs", "DuckLake, PostgreSQL", "Iceberg Java, REST", "Iceberg Java, JDBC")
_BEGIN: Final = "<!-- figures: `make bench-peers` writes what follows, from benchmarks/results/peers.json -->"
_END: Final = "<!-- end of figures -->"
_PLACE: Final = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Column:
    """A figure of one scenario, at the largest value of the parameter `largest`, which the heading may name."""

    heading: str
    scenario: str
    where: Where
    figure: str
    largest: str
    best: Callable[..., float] = min
    failures: bool = False


_COLUMNS: Final = (
    _Column("one writer, p50 ms", "serial", "near", "p50_ms", "commits"),
    _Column("store 60 ms away, p50 ms", "serial", "far", "p50_ms", "commits"),
    _Column("{} writers, commits/s", "writers", "near", "commits_per_s", "writers", max, failures=True),
    _Column("requests of a commit", "requests", "near", "requests", "commits"),
    _Column("table of {} files, p50 ms", "growth", "near", "p50_ms", "files"),
    _Column("one row after {}, ms", "one-row", "folder", "last_ms", "appends"),
)


def figures_of(body: Mapping[str, Any], ahead: Mapping[str, Iterable[str]]) -> str:
    """The table, with the sentences below it. `ahead`: heading on the page → the peers that are ahead of Rootline."""
    records = [Record(**record) for record in body["records"]]
    found = [(column, cells) for column in _COLUMNS if (cells := _cells(records, column))]
    peers = [peer for peer in PEERS if any(peer in cells for _, cells in found)]
    headings = ["", *(_heading(column, cells) for column, cells in found)]
    lines = [headings, ["---", *("---:" for _ in found)]]
    lines += [[peer, *(_shown(column, cells, peer) for column, cells in found)] for peer in peers]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    shown = [record for _, cells in found for record in cells.values()]
    return f"{table}\n\n{_conditions(body, shown)} {_honest(ahead)}"


def with_figures(readme: str, figures: str) -> str:
    """The README with these figures in their place."""
    changed, places = _PLACE.subn(lambda _: f"{_BEGIN}\n\n{figures}\n\n{_END}", readme)
    if places != 1:
        raise ValueError(f"README.md needs one place for its figures: a line {_BEGIN} and below it a line {_END}")
    return changed


def _cells(records: Iterable[Record], column: _Column) -> dict[str, Record]:
    """Peer → its record at the largest size, with the settings advised for it, else with its defaults."""
    known = [
        record
        for record in sorted(records, key=lambda one: one.settings == "best")
        if (record.scenario, record.where) == (column.scenario, column.where)
        and record.peer in PEERS
        and column.figure in record.figures
    ]
    size = max((record.parameters[column.largest] for record in known), default=0)
    return {record.peer: record for record in known if record.parameters[column.largest] == size}


def _heading(column: _Column, cells: Mapping[str, Record]) -> str:
    size = next(iter(cells.values())).parameters[column.largest]
    return column.heading.format(f"{size:,}") + (" (failed)" if column.failures else "")


def _shown(column: _Column, cells: Mapping[str, Record], peer: str) -> str:
    if peer not in cells:
        return "–"
    figures = cells[peer].figures
    value = figures[column.figure]
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    if value == column.best(record.figures[column.figure] for record in cells.values()):
        text = f"**{text}**"
    if column.failures:
        text += f" ({figures['failed']:,.0f} of {figures['tried']:,.0f})"
    if figures.get("appends", size := cells[peer].parameters[column.largest]) < size:
        text += f" (after {figures['appends']:,.0f})"
    return text


def _conditions(body: Mapping[str, Any], shown: Sequence[Record]) -> str:
    runs, loads = [body["runs"][number] for number in {record.run for record in shown}], [one.load for one in shown]
    text = f"Measured on {_joined(sorted({run['taken'][:10] for run in runs}))} by `make bench-peers`"
    short = sorted({run["scale"] for run in runs} - {"full"})
    if short:
        text += f", with the sizes of {_joined([f'`--scale {scale}`' for scale in short])}"
    return (
        f"{text}, on {body['machine']['cores']} cores with a load average of {min(loads):.1f} to {max(loads):.1f}, and "
        "a local S3 server. The best of each column is bold. Another machine has other times, so compare within a "
        "column only."
    )


def _honest(ahead: Mapping[str, Iterable[str]]) -> str:
    """The sentence that names who is ahead of Rootline, in all that was measured."""
    products = {heading: dict.fromkeys(peer.partition(",")[0] for peer in peers) for heading, peers in ahead.items()}
    names = [f"{heading} ({_joined(list(found))})" for heading, found in products.items()]
    if not names:
        return "[All figures](docs/benchmarks.md)."
    return f"In [all figures](docs/benchmarks.md), peers are ahead of Rootline here: {'; '.join(names)}."


def _joined(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def beaten_by(records: Sequence[Record], values: Sequence[float | None], best: Callable[..., Any]) -> list[str]:
    """The peers with a better value than the best one of Rootline."""
    known = [(record.peer, value) for record, value in zip(records, values, strict=True) if value]
    ours = [value for peer, value in known if peer == ROOTLINE]
    if not ours:
        return []
    least = best(ours)
    better = [peer for peer, value in known if peer not in (ROOTLINE, FLOOR) and best(value, least) != least]
    return list(dict.fromkeys(better))
