"""The console's list of tables, and the current findings in the order in which an operator should handle them.

Owns: the join of the tables in this coordinator's memory with those of the whole lake, their order, searching and
paging, the definition of a finding, its text and its advice. Does not own: the origin of states (`own_tables`,
`table_states`), explanations of codes.
Invariants: pure. A table is listed once. If this coordinator and the lake report different states, the worse one is
shown. The worst table is first. The list of findings stays short: of many tables with one problem a few are listed, and
the rest is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rootline.coordinator.runtime.observing import CodeCount, Sample
from rootline.coordinator.runtime.own_tables import OwnTable
from rootline.coordinator.runtime.table.table_states import BAD, LASTING, WARNS, TableState, TableStatus
from rootline.schemas.error_codes import CODES

STATES: Final = tuple(TableState)
"""The worst first."""
PENDING_BAD_MS: Final = 60_000
"""An intent that waits longer than this is a finding."""
_WAITS: Final = frozenset((TableState.HELD, TableState.PENDING))


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table. `is_here`: it is in this coordinator's memory. A number that no source reported is `None`."""

    name: str
    state: TableState
    severity: str
    why: str
    head: int | None
    owner: str | None
    is_here: bool
    lag: int | None
    oldest_ms: int | None
    parked: int
    committed_ms: int | None = None
    root_bytes: int | None = None
    rows: int | None = None
    data_files: int | None = None
    phase: str = ""


def table_rows(own: Iterable[OwnTable], others: Iterable[TableStatus], me: str, now_ms: int) -> list[TableRow]:
    """A row for each table, the worst first, then by name. `me`: the owner's name in rows of this coordinator."""
    rows = {table.name: _own_row(table, me, now_ms) for table in own}
    for status in others:
        mine = rows.get(status.table)
        rows[status.table] = _other_row(status, now_ms) if mine is None else _worse(mine, status, now_ms)
    return sorted(rows.values(), key=_order)


def selected(rows: Sequence[TableRow], search: str, state: str) -> list[TableRow]:
    """The rows in `state` whose name or reason contains `search`, case-insensitive. Empty arguments select all."""
    wanted = search.casefold().strip()
    return [
        row
        for row in rows
        if (not state or row.state == state)
        and (not wanted or wanted in row.name.casefold() or wanted in row.why.casefold())
    ]


def counts_of(rows: Iterable[TableRow]) -> dict[str, int]:
    """The number of tables in each state."""
    found = Counter(row.state for row in rows)
    return {state: found[state] for state in STATES if found[state]}


def _own_row(table: OwnTable, me: str, now_ms: int) -> TableRow:
    return TableRow(
        name=table.name,
        state=table.state,
        severity=_severity(table.state, table.pending_since_ms, now_ms),
        why=table.why,
        head=table.head,
        owner=me,
        is_here=True,
        lag=table.waiting + table.parked,
        oldest_ms=table.pending_since_ms,
        parked=table.parked,
        committed_ms=table.committed_ms,
        root_bytes=table.root_bytes,
        rows=table.rows,
        data_files=table.data_files,
        phase=table.phase,
    )


def _other_row(status: TableStatus, now_ms: int) -> TableRow:
    state = status.state
    return TableRow(
        name=status.table,
        state=state,
        severity=_severity(state, status.oldest_ms, now_ms),
        why=status.why,
        head=status.head,
        owner=status.owner,
        is_here=False,
        lag=status.lag,
        oldest_ms=status.oldest_ms,
        parked=status.parked or 0,
    )


def _worse(mine: TableRow, status: TableStatus, now_ms: int) -> TableRow:
    """This coordinator's row, with the lake's state if it is worse: paused, quarantined, parked or damaged."""
    if mine.state is TableState.PAUSED or status.state not in LASTING:
        return mine
    is_worse = status.state is TableState.PAUSED or STATES.index(status.state) < STATES.index(mine.state)
    is_replaced = status.state is TableState.DAMAGED and (mine.head or 0) > (status.head or 0)
    if not is_worse or is_replaced:
        return mine
    return replace(
        mine,
        state=status.state,
        severity=_severity(status.state, mine.oldest_ms, now_ms),
        why=status.why or mine.why,
        parked=max(mine.parked, status.parked or 0),
    )


def _severity(state: TableState, oldest_ms: int | None, now_ms: int) -> str:
    waits_long = oldest_ms is not None and now_ms - oldest_ms > PENDING_BAD_MS
    if state in BAD or (state in _WAITS and waits_long):
        return "bad"
    return "warn" if state in WARNS else "ok"


def _order(row: TableRow) -> tuple[int, int, int, str]:
    severities = ("bad", "warn", "ok")
    oldest = row.oldest_ms if row.oldest_ms is not None else 1 << 62
    return severities.index(row.severity), STATES.index(row.state), oldest, row.name


_EACH_MAX: Final = 5
_RECENT_MS: Final = 300_000
_GROWS_MS: Final = 120_000
_GROWS_RECORDS_MIN: Final = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem. `severity`: bad or warn. `do`: the next step.

    `table`, `code`: the table and the error code whose pages the console offers, empty if there are none.
    """

    severity: str
    title: str
    what: str
    do: str
    table: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of `findings`. `rows`: all tables, the worst first. `troubles`: failed requests to store and log.

    `reason`, `worker_reason`: why the coordinator or the worker in its process is not ready, empty if it is.
    """

    now_ms: int
    ready: bool
    reason: str
    worker_reason: str
    troubles: Sequence[str]
    rows: Sequence[TableRow]
    samples: Sequence[Sample]
    codes: Sequence[CodeCount]


def findings(situation: Situation) -> list[Finding]:
    """All findings, the worst first. Empty when no problem is known."""
    found = [*_of_process(situation), *_of_tables(situation), *_of_lag(situation), *_of_rejections(situation)]
    return sorted(found, key=lambda finding: finding.severity != "bad")


def code_in(text: str) -> str:
    """The first error code in a text. Empty if there is none."""
    return next((word for word in re.findall(r"[a-z]+(?:-[a-z]+)+", text) if word in CODES), "")


def _of_process(now: Situation) -> Iterator[Finding]:
    if not now.ready:
        yield Finding(
            "bad",
            "This coordinator is not ready",
            now.reason,
            "Read the last lines of its log. Its tables wait until it is ready, or another coordinator takes them.",
            code=code_in(now.reason),
        )
    for trouble in now.troubles:
        yield Finding(
            "bad",
            "Part of the lake does not answer",
            trouble,
            "Check that service first: the tables shown are out of date until it answers.",
            code=code_in(trouble),
        )
    if now.worker_reason:
        yield Finding(
            "warn",
            "The worker beside this coordinator has trouble",
            now.worker_reason,
            "Commits continue, but roots grow until the worker works again. Read its log.",
            code=code_in(now.worker_reason),
        )


def _of_tables(now: Situation) -> Iterator[Finding]:
    yield from _each(
        now,
        "quarantined",
        "is quarantined",
        "Run `rootline check {}`, repair the damage that it reports, then run `rootline quarantine lift {}`.",
    )
    yield from _each(
        now,
        "damaged",
        "cannot be read",
        "Run `rootline check {}`, and restore the object from the bucket's versions or a backup. Do not restart its "
        "coordinator before that: its next commit writes a new root from memory.",
    )
    yield from _each(
        now,
        "parked",
        "is parked",
        "Fix the cause, then run `rootline quarantine lift {}`. Do not republish its intents: they are stored.",
    )
    yield from _each(
        now,
        "delayed",
        "cannot commit",
        "Check the store that the reason names. Nothing is lost: the coordinator retries automatically.",
    )
    unowned = [row for row in now.rows if row.state == "unowned"]
    if unowned:
        yield Finding(
            "bad",
            f"{_tables(len(unowned))} no coordinator",
            _names(unowned),
            "Start one: `rootline coordinator`, or `rootline up`. Intents wait on the log until then.",
        )
    for row in [row for row in now.rows if row.state == "held" and row.severity == "bad"][:_EACH_MAX]:
        yield Finding(
            "bad",
            f"{row.name}: commits wait",
            row.why,
            "If the log does not acknowledge verdicts, check the log. If leaves are being encoded, wait, and start a "
            "worker, which keeps roots short. Do not restart the coordinator: the next one waits for the same.",
            row.name,
            code_in(row.why),
        )
    late = [row for row in now.rows if row.state == "pending" and row.severity == "bad"]
    if late:
        oldest_s = max(now.now_ms - (row.oldest_ms or now.now_ms) for row in late) // 1000
        yield Finding(
            "bad",
            f"Intents have waited for {oldest_s:,} s",
            f"longer than {PENDING_BAD_MS // 1000} s, of {_names(late)}",
            "Check the lag below. If it falls, wait. If not, check the store's latency and this process's CPU.",
            table=late[0].name,
        )
    paused = [row for row in now.rows if row.state == "paused"]
    if paused:
        what = "`rootline resume --all`" if "all tables" in paused[0].why else f"`rootline resume {paused[0].name}`"
        yield Finding(
            "warn",
            f"{'1 table is' if len(paused) == 1 else f'{len(paused):,} tables are'} paused by an operator",
            f"{_names(paused)}: {paused[0].why}",
            f"Run {what} when the reason no longer applies.",
            table=paused[0].name,
        )


def _each(now: Situation, state: str, says: str, do: str) -> Iterator[Finding]:
    found = [row for row in now.rows if row.state == state]
    for row in found[:_EACH_MAX]:
        yield Finding("bad", f"{row.name} {says}", row.why, do.replace("{}", row.name), row.name, code_in(row.why))
    if len(found) > _EACH_MAX:
        rest = found[_EACH_MAX:]
        yield Finding("bad", f"{len(rest):,} more tables: {state}", _names(rest), "Filter the list by this state.")


def _of_lag(now: Situation) -> Iterator[Finding]:
    recent = [sample for sample in now.samples if sample.at_ms >= now.now_ms - _GROWS_MS and sample.lag is not None]
    if len(recent) < 2:
        return
    first, last = recent[0].lag or 0, recent[-1].lag or 0
    if last - first >= _GROWS_RECORDS_MIN and recent[-1].at_ms - recent[0].at_ms >= _GROWS_MS // 2:
        yield Finding(
            "warn",
            "Lag grows",
            f"{last:,} records wait, {last - first:,} more than {(recent[-1].at_ms - recent[0].at_ms) // 1000} s ago",
            "Writers publish faster than intents are decided. Find a delayed table. On Kafka, add a coordinator.",
        )


def _of_rejections(now: Situation) -> Iterator[Finding]:
    recent = [item for item in now.codes if item.last_ms >= now.now_ms - _RECENT_MS]
    if recent:
        said = ", ".join(f"{item.code or 'no code'} (since the start {item.count:,})" for item in recent[:_EACH_MAX])
        yield Finding(
            "warn",
            "Intents were rejected in the last five minutes",
            said + (f" and {len(recent) - _EACH_MAX} more codes" if len(recent) > _EACH_MAX else ""),
            "Read the advice of the code, and inform the writer. Other intents are not blocked by it.",
            code=recent[0].code if recent[0].code in CODES else "",
        )


def _tables(count: int) -> str:
    return "1 table has" if count == 1 else f"{count:,} tables have"


def _names(rows: Sequence[TableRow]) -> str:
    said = ", ".join(row.name for row in rows[:_EACH_MAX])
    return said + (f" and {len(rows) - _EACH_MAX:,} more" if len(rows) > _EACH_MAX else "")
