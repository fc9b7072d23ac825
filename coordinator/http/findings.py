"""What is wrong now, in the order in which an operator should look at it.

Owns: what counts as wrong, the words, what to do. Does not own: the states (`console_tables`), explanations of codes.
Invariants: pure; the worst first; the list is short however much is wrong: what is left out is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.coordinator.http.console_tables import PENDING_BAD_MS, TableRow
from rootline.coordinator.runtime.observing.recent_events import CodeCount, Sample
from rootline.schemas.error_codes import CODES

_EACH_MAX: Final = 5
_RECENT_MS: Final = 300_000
_GROWS_MS: Final = 120_000
_GROWS_RECORDS_MIN: Final = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """`severity`: bad or warn. `do`: the next step. `table`, `code`: what to open, if it is about one."""

    severity: str
    title: str
    what: str
    do: str
    table: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known; `reason`, `worker_reason`: why it is not ready; `rows`: of all tables, the worst first."""

    now_ms: int
    ready: bool
    reason: str
    worker_reason: str
    troubles: Sequence[str]
    rows: Sequence[TableRow]
    samples: Sequence[Sample]
    codes: Sequence[CodeCount]


def findings(situation: Situation) -> list[Finding]:
    """What is wrong, the worst first; empty: nothing is known to be."""
    found = [*_of_process(situation), *_of_tables(situation), *_of_lag(situation), *_of_rejections(situation)]
    return sorted(found, key=lambda finding: finding.severity != "bad")


def code_in(text: str) -> str:
    """The first code of ours that a text names; empty if it names none."""
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
            "Look at that service first: what is shown of tables is old until it answers.",
            code=code_in(trouble),
        )
    if now.worker_reason:
        yield Finding(
            "warn",
            "The worker beside this coordinator has trouble",
            now.worker_reason,
            "Commits go on; roots grow until it works again. Read its log.",
            code=code_in(now.worker_reason),
        )


def _of_tables(now: Situation) -> Iterator[Finding]:
    yield from _each(
        now,
        "quarantined",
        "bad",
        "is quarantined",
        "`rootline check {}`, mend what it finds, then `rootline quarantine lift {}`.",
    )
    yield from _each(
        now,
        "damaged",
        "bad",
        "cannot be read",
        "`rootline check {}`, and bring the object back from the bucket's versions or a backup. Do not restart its "
        "coordinator before: its next commit makes a new root from what it has in memory.",
    )
    yield from _each(
        now,
        "parked",
        "bad",
        "is parked",
        "Mend the cause, then `rootline quarantine lift {}`. Do not publish its intents again: they are kept.",
    )
    yield from _each(
        now,
        "delayed",
        "bad",
        "cannot commit",
        "Look at the store that is named. Nothing is lost: the coordinator tries again by itself.",
    )
    unowned = [row for row in now.rows if row.state == "unowned"]
    if unowned:
        yield Finding(
            "bad",
            f"{_tables(len(unowned))} no coordinator",
            _names(unowned),
            "Start one: `rootline coordinator`, or `rootline up`. Intents wait on the log until then.",
        )
    late = [row for row in now.rows if row.state == "pending" and row.severity == "bad"]
    if late:
        oldest_s = max(now.now_ms - (row.oldest_ms or now.now_ms) for row in late) // 1000
        yield Finding(
            "bad",
            f"Intents have waited for {oldest_s:,} s",
            f"longer than {PENDING_BAD_MS // 1000} s, of {_names(late)}",
            "Look at the lag below: if it falls, wait. If not, look at the store's latency and at this process's CPU.",
            table=late[0].name,
        )
    paused = [row for row in now.rows if row.state == "paused"]
    if paused:
        what = "`rootline resume --all`" if "all tables" in paused[0].why else f"`rootline resume {paused[0].name}`"
        yield Finding(
            "warn",
            f"{'1 table is' if len(paused) == 1 else f'{len(paused):,} tables are'} paused by an operator",
            f"{_names(paused)}: {paused[0].why}",
            f"{what}, once the reason is gone.",
            table=paused[0].name,
        )


def _each(now: Situation, state: str, severity: str, says: str, do: str) -> Iterator[Finding]:
    found = [row for row in now.rows if row.state == state]
    for row in found[:_EACH_MAX]:
        yield Finding(severity, f"{row.name} {says}", row.why, do.replace("{}", row.name), row.name, code_in(row.why))
    if len(found) > _EACH_MAX:
        rest = found[_EACH_MAX:]
        yield Finding(severity, f"{len(rest):,} more tables: {state}", _names(rest), "Filter the list of tables by it.")


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
            "More is published than is decided. Look for a table that is delayed. On Kafka start another coordinator.",
        )


def _of_rejections(now: Situation) -> Iterator[Finding]:
    recent = [item for item in now.codes if item.last_ms >= now.now_ms - _RECENT_MS]
    if recent:
        said = ", ".join(f"{item.code or 'no code'} (since the start {item.count:,})" for item in recent[:_EACH_MAX])
        yield Finding(
            "warn",
            "Intents were rejected in the last five minutes",
            said + (f" and {len(recent) - _EACH_MAX} more codes" if len(recent) > _EACH_MAX else ""),
            "Read what the code says to do, and tell the writer. Other intents are not held up by it.",
            code=recent[0].code if recent[0].code in CODES else "",
        )


def _tables(count: int) -> str:
    return "1 table has" if count == 1 else f"{count:,} tables have"


def _names(rows: Sequence[TableRow]) -> str:
    said = ", ".join(row.name for row in rows[:_EACH_MAX])
    return said + (f" and {len(rows) - _EACH_MAX:,} more" if len(rows) > _EACH_MAX else "")
