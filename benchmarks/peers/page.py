"""The page of figures and its pictures, from the JSON of a run: `python -m benchmarks.peers.page`.

It also writes the table in the README (`readme_table`).

Owns: the words, tables and pictures of `docs/benchmarks.md`. Does not own: the figures.
Invariants: every figure on the page is in the JSON, or follows from it by a formula that the page shows; the line above
each table has one form, whoever is first; a subject without figures is listed with the reason.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.bench import WHERE_WORDS, Record
from benchmarks.peers.pictures import Bar, Group, bars
from benchmarks.peers.readme_table import beaten_by, figures_of, with_figures
from benchmarks.peers.subjects import FLOOR, NOT_TRIED, ROOTLINE, SUBJECTS
from benchmarks.report import HOUSE, markdown_table

RESULTS: Final = HOUSE / "benchmarks/results/peers.json"
PAGE: Final = HOUSE / "docs/benchmarks.md"
README: Final = HOUSE / "README.md"
PICTURES: Final = HOUSE / "docs/pictures"
_PRICES: Final = Path(__file__).with_name("prices.toml")
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A figure as the page shows it. `best`: whether the least or the greatest is the best; neither if empty."""

    figure: str
    heading: str
    digits: str = ",.3g"
    factor: float = 1.0
    best: Callable[..., Any] | None = None

    def of(self, record: Record) -> float | None:
        found = record.figures.get(self.figure)
        return None if found is None else found * self.factor

    def shown(self, record: Record) -> str:
        found = self.of(record)
        return "–" if found is None else _number(found, self.digits)


@dataclass(frozen=True, slots=True)
class Chapter:
    """A scenario on the page. The first column is the one that is compared and drawn."""

    scenario: str
    heading: str
    words: str
    columns: tuple[Column, ...]


_FAILED: Final = (
    Column("tried", "tried", ",.0f"),
    Column("failed", "failed", ",.0f"),
    Column("failed_by_store", "failed by the store", ",.0f"),
)
_P50: Final = Column("p50_ms", "p50, ms", best=min)
_P99: Final = Column("p99_ms", "p99, ms")
_RATE: Final = Column("commits_per_s", "commits/s", best=max)

CHAPTERS: Final = (
    Chapter(
        "serial",
        "One writer",
        "Commits of one file, one after another. All subjects take turns, commit by commit.",
        (_P50, Column("min_ms", "min, ms"), _P99, *_FAILED),
    ),
    Chapter(
        "writers",
        "Many writers",
        "Processes that commit one file after another to the same table, for a fixed time. A commit that its library "
        "gave up counts as failed. `files found` is a plan of the table afterwards.",
        (_RATE, _P50, _P99, *_FAILED, Column("files_found", "files found", ",.0f")),
    ),
    Chapter(
        "requests",
        "Requests, bytes and objects of a commit",
        "The store's own access log, divided by the commits. Requests of services that belong to the peer count.",
        (
            Column("requests", "requests", ".2f", best=min),
            Column("put", "PUT", ".2f"),
            Column("get", "GET", ".2f"),
            Column("head", "HEAD", ".2f"),
            Column("list", "LIST", ".2f"),
            Column("delete", "DELETE", ".2f"),
            Column("objects", "objects", ".2f"),
            Column("bytes_written", "KB written", ",.1f", 1e-3),
            *_FAILED[1:],
        ),
    ),
    Chapter(
        "large",
        "One commit of many files",
        "Commits of many files with their statistics, one after another to the same table.",
        (Column("files_per_s", "files/s", best=max), _P50, *_FAILED),
    ),
    Chapter(
        "planning",
        "Planning a scan",
        "The files of a scan, found by a process that has just started (cold), and once more by the same process "
        "(warm). The selective filter is on a column with statistics.",
        (
            Column("cold_s", "cold, ms", factor=1e3, best=min),
            Column("warm_s", "warm, ms", factor=1e3),
            Column("planned", "files planned", ",.0f"),
        ),
    ),
    Chapter(
        "growth",
        "A growing table",
        "Commits of one file to a table that already has so many.",
        (_P50, Column("min_ms", "min, ms"), _P99, *_FAILED),
    ),
    Chapter(
        "one-row",
        "One row at a time",
        "Appends of one row to a table in a local folder, each peer with the upkeep that it has, in turns. Who has "
        "used up the time stops. First and last are medians of the first and the last tenth of the appends. "
        "Metadata is all that is not rows, logs and catalogs included, unless a database server has it.",
        (
            Column("last_ms", "last, ms", best=min),
            Column("first_ms", "first, ms"),
            _P99,
            Column("appends", "appends", ",.0f"),
            Column("metadata_peak_bytes", "metadata at its peak, MB", ",.2f", 1e-6),
            Column("metadata_bytes", "metadata at the end, MB", ",.2f", 1e-6),
            Column("files", "files at the end", ",.0f"),
            *_FAILED[1:],
        ),
    ),
    Chapter(
        "small-appends",
        "Small appends from Python",
        "Appends of a thousand rows of data to a table in a local folder, by what a user types. With one writer all "
        "subjects take turns.",
        (_P50, _RATE, _P99, Column("first_ms", "first of each process, p50, ms"), *_FAILED),
    ),
    Chapter(
        "clients",
        "Iceberg's own clients through a REST catalog",
        "Clients that append 10 rows at a time to one table, for a fixed time: processes of PyIceberg, or threads of "
        "one Spark. They are unmodified, and know the URL of the catalog only. Rootline is `rootline coordinator` "
        "beside `rootline catalog serve`, its peer is Iceberg's reference server. The tables have "
        "`commit.retry.num-retries` 100 and `commit.retry.max-wait-ms` 1000 in both. Clients and servers reach the "
        "store through the same delay. The first append of each process does not count. The catalogs take turns, "
        "round by round, each with a fresh table. Afterwards another process reads all rows: lost rows are missing "
        "although their append succeeded, doubled ones are there twice. Processor time of "
        "servers includes their database.",
        (
            _RATE,
            Column("least_per_s", "least of a round"),
            Column("most_per_s", "most of a round"),
            _P50,
            _P99,
            *_FAILED,
            Column("lost", "rows lost", ",.0f"),
            Column("doubled", "rows doubled", ",.0f"),
            Column("clients_cpu_ms", "processor time of a commit, clients, ms", ",.0f"),
            Column("servers_cpu_ms", "the same, servers, ms", ",.0f"),
        ),
    ),
)


def records_of(body: Mapping[str, Any]) -> list[Record]:
    """The records of a run's JSON."""
    return [Record(**record) for record in body["records"]]


def page_of(body: Mapping[str, Any], prices: Mapping[str, Any]) -> str:
    """The page."""
    records = records_of(body)
    parts = [_introduction(body, records), _subjects(body, records)]
    parts += [_chapter(body, chapter, records) for chapter in CHAPTERS]
    parts += [_cost(records, prices), _not_measured(records)]
    return "\n".join(filter(None, parts))


def pictures_of(body: Mapping[str, Any]) -> dict[str, str]:
    """File name → SVG, for each scenario with figures."""
    found = {}
    for chapter in CHAPTERS:
        loads = _loads(records_of(body), chapter)
        groups = [
            Group(load, [Bar(_name(record), column.of(record) or 0.0, _failed_note(record)) for record in records])
            for load, column, records in loads
        ]
        if groups:
            columns = dict.fromkeys(column.heading for _, column, _ in loads)
            found[_picture(chapter)] = bars(f"{chapter.heading}: {' and '.join(columns)}", groups)
    return found


def write_page(body: Mapping[str, Any]) -> None:
    """Write the page and its pictures into `docs`, and the table of the README."""
    for name, picture in pictures_of(body).items():
        (PICTURES / name).write_text(picture)
    prices = read_prices()
    PAGE.write_text(page_of(body, prices))
    README.write_text(with_figures(README.read_text(), figures_of(body, ahead_of_us(body, prices))))
    print(f"written: {PAGE.relative_to(HOUSE)}, {README.relative_to(HOUSE)}")


def ahead_of_us(body: Mapping[str, Any], prices: Mapping[str, Any]) -> dict[str, list[str]]:
    """Heading of a chapter → the peers that are ahead of Rootline under one of its loads, or have lower costs."""
    records = records_of(body)
    counted = [record for record in records if record.scenario == "requests" and record.figures]
    found = {
        chapter.heading: [
            peer
            for _, column, mine in _loads(records, chapter)
            for peer in beaten_by(mine, [column.of(one) for one in mine], column.best or min)
        ]
        for chapter in CHAPTERS
    }
    found["the price of the requests"] = beaten_by(counted, [cost_of_million(one, prices) for one in counted], min)
    return {heading: list(dict.fromkeys(peers)) for heading, peers in found.items() if peers}


def read_prices() -> dict[str, Any]:
    """The price list beside this file."""
    return tomllib.loads(_PRICES.read_text())


def _introduction(body: Mapping[str, Any], records: Iterable[Record]) -> str:
    machine = body["machine"]
    lines = (
        "# Benchmarks",
        "",
        "Rootline beside its peers, on one machine, through the public API of each. The floor is a bare conditional "
        "PUT: no commit of one object can be faster on the same store.",
        "",
        "`make bench-peers` measures everything and writes `benchmarks/results/peers.json` and this page. Each chapter "
        f"names the command that measured it. The machine has {machine['cores']} cores and {machine['memory_gb']} GB, "
        f"with Python {machine['python']}. Compare figures within a table only: another machine has other times.",
        "",
        "* A commit adds one file with statistics, and no data, unless the chapter names another load.",
        "* Every subject runs in processes of its own. The store is a local S3 server. In the tables with "
        f"“{WHERE_WORDS['far']}” a proxy delays each of its answers by that time.",
        "* Catalogs, logs and databases are on the same machine without a delay. That flatters whoever has one in the "
        "tables with a delay.",
        "* A subject has the settings that its documentation advises for the load. Its defaults have their own row.",
        "* A commit that its library gives up counts as failed. Errors of the store are counted apart.",
        "",
    )
    return "\n".join(lines)


def _taken(body: Mapping[str, Any], records: Sequence[Record]) -> str:
    """The commands that measured a chapter, and the conditions of their runs."""
    parts = []
    for number in sorted({record.run for record in records if record.figures}):
        run, mine = body["runs"][number], [one for one in records if one.run == number and one.figures]
        who = "" if len(mine) == sum(1 for one in records if one.figures) else f"{', '.join(_names(mine))}: m"
        text = f"{who or 'M'}easured by `{run['command']}` on {run['taken'][:10]} at commit {run['commit']}."
        if run["scale"] != "full":
            text += f" The sizes are those of `--scale {run['scale']}`, which is shorter than the full run."
        loads = [one.load for one in mine]
        parts.append(
            f"{text} The load average was {min(loads):.1f} to {max(loads):.1f}, the measured processes included."
        )
    return " ".join(parts)


def _names(records: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(map(_name, records)))


def _subjects(body: Mapping[str, Any], records: Iterable[Record]) -> str:
    measured = {(record.peer, record.settings) for record in records if record.figures}
    rows = [
        (_label(one.peer, one.settings), body["versions"].get(one.peer, "–"), one.words, one.statistics)
        for one in SUBJECTS
        if (one.peer, one.settings) in measured
    ]
    return "## Who is measured\n\n" + markdown_table(
        ("subject", "version", "settings", "statistics of a file"), rows, 0
    )


def _chapter(body: Mapping[str, Any], chapter: Chapter, records: Sequence[Record]) -> str:
    records = [record for record in records if record.scenario == chapter.scenario]
    parts = []
    for load, column, found in _loads(records, chapter):
        columns = [one for one in chapter.columns if any(one.of(record) is not None for record in found)]
        rows = [(_name(record), *(one.shown(record) for one in columns)) for record in found]
        headings = ["", *(one.heading for one in columns)]
        floor = next((one for one in found if one.peer == FLOOR and column is _P50), None)
        if floor is not None:
            headings.append(f"p50 ÷ {FLOOR}")
            rows = [(*row, _ratio(column, one, floor)) for row, one in zip(rows, found, strict=True)]
        parts.append(f"**{load}.** {_first(column, found)}\n")
        parts.append(markdown_table(headings, rows, 1))
        reasons = [f"{_name(one)}: {_failures(one)}" for one in found if one.failures]
        if reasons:
            parts.append(f"Failures: {'. '.join(reasons)}.\n")
    if not parts:
        return ""
    picture = f"![{chapter.heading}](pictures/{_picture(chapter)})\n"
    words = f"{chapter.words} {_taken(body, records)}\n"
    return "\n".join([f"## {chapter.heading}\n", words, picture, *parts])


def _loads(records: Iterable[Record], chapter: Chapter) -> list[tuple[str, Column, list[Record]]]:
    """Each load of a scenario in words, the column that is compared, and its records, the best first."""
    loads: dict[str, list[Record]] = {}
    for record in records:
        if record.scenario == chapter.scenario and record.figures:
            loads.setdefault(_load(record), []).append(record)
    found = []
    for load, mine in loads.items():
        column = chapter.columns[0]
        if chapter.scenario == "small-appends" and mine[0].parameters["writers"] > 1:
            column = _RATE
        worst = float("-inf") if column.best is max else float("inf")
        ordered = sorted(mine, key=lambda one: _given(column.of(one), worst), reverse=column.best is max)
        found.append((load, column, ordered))
    return found


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _load(record: Record) -> str:
    words = [WHERE_WORDS[record.where]]
    for name, value in record.parameters.items():
        if name == "selective":
            words.append("a selective filter" if value else "all files")
        else:
            words.append(f"{value:,} {name if value != 1 else name.removesuffix('s')}")
    return ", ".join(words)


def _first(column: Column, records: Sequence[Record]) -> str:
    """Who is first, and by how much, in the same words whoever it is; the floor does not take part."""
    known = [(found, record) for record in records if (found := column.of(record)) and record.peer != FLOOR]
    if not known:
        return "No commit succeeded."
    best, first = known[0]
    ours = next(((value, one) for value, one in known if one.peer == ROOTLINE), None)
    second = next(((value, one) for value, one in known if one.peer != first.peer), None)
    other = second if first.peer == ROOTLINE or ours is None else ours
    text = f"Best {column.heading}: {_name(first)}, {_number(best, column.digits)}."
    if other is None:
        return text
    value, record = other
    ratio = max(value, best) / min(value, best)
    return f"{text} {_name(record)}: {_number(value, column.digits)}, a factor of {ratio:.3g}."


def _cost(records: Iterable[Record], prices: Mapping[str, Any]) -> str:
    counted = [
        record for record in records if record.scenario == "requests" and record.figures and record.peer != FLOOR
    ]
    if not counted:
        return ""
    rows = []
    for cost, record in sorted(((cost_of_million(one, prices), one) for one in counted), key=lambda one: one[0]):
        whole = cost + _MILLION / 1_000 * prices["put_per_1000"] + 1_000 * prices["gb_month"]
        written = record.figures["bytes_written"] * _MILLION / 1e9
        rows.append((_name(record), f"{cost:,.2f}", f"{written:,.0f}", f"{whole:,.2f}"))
    dear, cheap, month = prices["put_per_1000"], prices["get_per_1000"], prices["gb_month"]
    lines = (
        "## What it costs on a real store",
        "",
        "Computed, not billed: the counted requests above, times the list prices of Amazon S3 Standard in "
        f"{prices['region']}, {prices['as_of']}, which are in `benchmarks/peers/prices.toml`: {dear} dollars for 1,000 "
        f"PUT, POST or LIST, {cheap} for 1,000 GET or HEAD, {month} for a GB and month.",
        "",
        f"* A million commits = 1,000,000 × ((PUT + LIST) × {dear} + (GET + HEAD) × {cheap}) ÷ 1,000.",
        "* A terabyte of small files = a million files of 1 MB, each in a commit of its own = a million commits + "
        "1,000,000 PUTs of data + 1,000 GB for a month.",
        "* Metadata written is what the commits put. How much of it stays depends on the upkeep, so it is in no sum.",
        "* Databases, coordinators and logs cost what their machines cost. They are in no sum.",
        "* Requests were counted on a table with few commits. Where they grow with the table, the cost grows too.",
        "",
    )
    headings = ("", "a million commits, $", "metadata written, GB", "a terabyte of files of 1 MB, $")
    return "\n".join([*lines, markdown_table(headings, rows, 1)])


def cost_of_million(record: Record, prices: Mapping[str, Any]) -> float:
    """Dollars for the requests of a million commits."""
    figures = record.figures
    dear = (figures["put"] + figures["list"]) * prices["put_per_1000"]
    cheap = (figures["get"] + figures["head"]) * prices["get_per_1000"]
    return float(_MILLION * (dear + cheap) / 1_000)


def _not_measured(records: Sequence[Record]) -> str:
    chapters = {chapter.scenario: chapter.heading for chapter in CHAPTERS}
    rows = [
        (chapters[record.scenario], _name(record), _load(record), " ".join(record.reason.replace("|", "/").split()))
        for record in records
        if record.reason
    ]
    run = {record.scenario for record in records}
    rows += [(heading, "all", "all", "not in this run") for name, heading in chapters.items() if name not in run]
    rows += [("all", name, "all", reason) for name, reason in NOT_TRIED.items()]
    return "## Not measured\n\n" + markdown_table(("scenario", "subject", "load", "reason"), dict.fromkeys(rows), 0)


def _ratio(column: Column, record: Record, floor: Record) -> str:
    value, least = column.of(record), column.of(floor)
    return f"{value / least:.3g}" if value and least else "–"


def _failures(record: Record) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in record.failures.items())


def _failed_note(record: Record) -> str:
    failed = record.figures.get("failed", 0.0)
    return f"({failed:,.0f} of {record.figures['tried']:,.0f} failed)" if failed else ""


def _name(record: Record) -> str:
    return _label(record.peer, record.settings)


def _label(peer: str, settings: str) -> str:
    return peer if settings == "best" else f"{peer}, defaults"


def _picture(chapter: Chapter) -> str:
    return f"benchmarks-{chapter.scenario}.svg"


def _number(value: float, digits: str) -> str:
    if digits.endswith("g"):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return format(value, digits)


if __name__ == "__main__":
    write_page(json.loads(RESULTS.read_text()))
