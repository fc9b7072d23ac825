"""Three accounts of verdicts: those on the topic, the counters of each process, and its log lines.

Owns: what must hold between the three. Does not own: the verdicts (`tests.kafka.topic_watch`), reading a process
(`watched_process`), what is sent (`paths`).
Invariants: a verdict on the topic is told the same way by all that told it; the process that told it counted it once
and logged it once; only one process counts it as its own.

A process that was killed says less: its counters are those of the last scrape, and verdicts that the log took in the
moment of the kill have no line. How many these were is returned, and held against nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rootline.schemas.verdict import Verdict
from tests.kafka.topic_watch import Place

Kind = tuple[str, str]
"""The verdict and its code, or an empty one."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a log line says of a verdict."""

    place: Place
    intent_id: str
    table: str
    verdict: str
    code: str
    version: int | None
    told_again: bool

    @property
    def kind(self) -> Kind:
        return self.verdict, self.code


@dataclass(frozen=True)
class Life:
    """One process from its start to its end. `own`, `again`: its two counters. `rest`: what a line counted.

    `was_killed`: its counters are older than its end.
    """

    name: str
    own: Counter[Kind]
    again: Counter[Kind]
    lines: tuple[Line, ...]
    rest: Counter[tuple[str, bool]] = field(default_factory=Counter)
    was_killed: bool = False


@dataclass(frozen=True)
class Balance:
    """What the accounts hold. `wrong`: what does not fit. `unlogged`: on the topic and in no line, because of kills."""

    verdicts: int
    kinds: Counter[Kind]
    own: int
    again: int
    copies: int
    unlogged: tuple[Place, ...]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        kinds = ", ".join(f"{' '.join(filter(None, kind))} {count}" for kind, count in sorted(self.kinds.items()))
        return (
            f"{self.verdicts} verdicts, told {self.copies} times; lines: {self.own} first, {self.again} again; "
            f"{len(self.unlogged)} without a line because of a kill; {kinds}"
        )


def balance(topic: Mapping[Place, Sequence[Verdict]], lives: Sequence[Life]) -> Balance:
    """Hold the three accounts against each other; `topic`: every verdict that was ever published on a record."""
    lines = [line for life in lives for line in life.lines]
    logged = {line.place for line in lines}
    unlogged = tuple(sorted(place for place in topic if place not in logged))
    wrong = [*_of_topic(topic), *(fault for life in lives for fault in _of_life(life)), *_of_lines(topic, lives)]
    in_counts = sum(life.rest.total() for life in lives)
    if len(unlogged) > in_counts and not any(life.was_killed for life in lives):
        wrong.append(f"{len(unlogged)} verdicts are in no line, and no process was killed: {unlogged[:5]}")
    kinds = Counter(_kind(verdicts[0]) for verdicts in topic.values())
    own = sum(not line.told_again for line in lines)
    copies = sum(len(verdicts) for verdicts in topic.values())
    return Balance(len(topic), kinds, own, len(lines) - own, copies, unlogged, tuple(wrong))


def _of_topic(topic: Mapping[Place, Sequence[Verdict]]) -> Iterator[str]:
    for place, verdicts in topic.items():
        if len({tuple(verdict.model_dump().values()) for verdict in verdicts}) > 1:
            yield f"{place} was told differently: {verdicts}"


def _of_life(life: Life) -> Iterator[str]:
    """Its counters against its lines."""
    for what, counted, is_again in (("own", life.own, False), ("told again", life.again, True)):
        logged = Counter(line.kind for line in life.lines if line.told_again is is_again)
        if life.was_killed:
            more = counted - logged
            if more and not life.rest:
                yield f"{life.name}: {what}: counted, and in no line: {dict(more)}"
            continue
        words: Counter[str] = Counter()
        for kind, count in logged.items():
            words[" ".join(filter(None, kind))] += count
        for name, count in ((name, count) for (name, again), count in life.rest.items() if again is is_again):
            words[name] += count
        said = Counter({" ".join(filter(None, kind)): count for kind, count in counted.items()})
        if words != said:
            yield (
                f"{life.name}: {what}: counted and not logged {dict(said - words)}, "
                f"logged and not counted {dict(words - said)}"
            )
    # what it told before a rebalance it may tell again after one: then the line says so, and the topic has it twice
    times = Counter(line.place for line in life.lines if not line.told_again)
    twice = {place: count for place, count in times.items() if count > 1}
    if twice:
        yield f"{life.name}: told more than once: {[line for line in life.lines if line.place in twice][:6]}"


def _of_lines(topic: Mapping[Place, Sequence[Verdict]], lives: Sequence[Life]) -> Iterator[str]:
    """The lines against the topic, and who counts a verdict as its own."""
    first: dict[Place, list[str]] = defaultdict(list)
    times: Counter[Place] = Counter()
    for life in lives:
        for line in life.lines:
            times[line.place] += 1
            if not line.told_again:
                first[line.place].append(life.name)
            if line.place not in topic:
                yield f"{life.name}: a line about {line.place}, on which the topic has no verdict: {line}"
                continue
            told = topic[line.place][0]
            if line != _line_of(told, line):
                yield f"{life.name}: the line {line} is about {told}"
    for place, names in first.items():
        if len(names) > 1:
            yield f"{place} ({topic[place][0] if place in topic else '?'}) is counted as their own by {names}"
    for place, count in times.items():
        if place in topic and count > len(topic[place]):
            yield f"{place} has {count} lines, and was told {len(topic[place])} times"


def _line_of(verdict: Verdict, line: Line) -> Line:
    return Line(
        (verdict.partition, verdict.offset),
        verdict.intent_id,
        verdict.table,
        verdict.kind.value,
        verdict.code or "",
        verdict.version,
        line.told_again,
    )


def _kind(verdict: Verdict) -> Kind:
    return verdict.kind.value, verdict.code or ""
