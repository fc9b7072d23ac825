"""A coordinator process whose counters are scraped and whose log lines are kept apart by incarnation.

Owns: what one incarnation says of its verdicts. Does not own: the process (`tests.kafka.rootline_process`), what must
hold (`three_accounts`).
Invariants: a process that ends has been scraped before; a scrape before a kill is the last that is known of its
counters, and its lines go on until the kill.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.kafka.accounts.three_accounts import Kind, Life, Line
from tests.kafka.rootline_process import RootlineProcess

OWN, AGAIN = "rootline_verdicts_total", "rootline_verdicts_told_again_total"


class WatchedProcess:
    """`lives`: those that have ended."""

    def __init__(self, process: RootlineProcess) -> None:
        self.process = process
        self.lives: list[Life] = []
        self._from = 0

    def start(self) -> None:
        """A life begins."""
        self._from = self.process.log.stat().st_size if self.process.log.exists() else 0
        self.process.start()

    def kill(self) -> None:
        """Scrape it, then kill it."""
        counted = self._scraped()
        self.process.kill()
        self._end(counted, was_killed=True)

    def stop(self) -> None:
        """Scrape it, then let it end in good order. Nothing may be left for it to tell."""
        counted = self._scraped()
        self.process.request_stop()
        code = self.process.wait()
        assert code == 0, f"{self.process.name} ended with {code}: {self.process.tail()}"
        self._end(counted, was_killed=False)

    def lines(self) -> list[dict[str, Any]]:
        """What this life has logged so far."""
        found = []
        for text in self.process.log.read_bytes()[self._from :].splitlines(keepends=True):
            if text.startswith(b"{") and text.endswith(b"\n"):
                found.append(json.loads(text))
        return found

    def has_said(self, event: str, **what: object) -> bool:
        """Whether there is such a line."""
        return any(
            line.get("event") == event and all(line.get(name) == value for name, value in what.items())
            for line in self.lines()
        )

    def _scraped(self) -> dict[str, Counter[Kind]]:
        found: dict[str, Counter[Kind]] = {OWN: Counter(), AGAIN: Counter()}
        with urlopen(f"{self.process.wait_listening()}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in found and sample.value:
                    found[sample.name][sample.labels["verdict"], sample.labels["code"]] += int(sample.value)
        return found

    def _end(self, counted: dict[str, Counter[Kind]], *, was_killed: bool) -> None:
        lines = self.lines()
        told = tuple(_line(line) for line in lines if line.get("action") == "verdict")
        rest: Counter[tuple[str, bool]] = Counter()
        for line in lines:
            for words, count in line["counts"].items() if line.get("action") == "verdicts" else ():
                rest[words.removesuffix(" told again"), words.endswith(" told again")] += count
        name = f"{self.process.name}.{self.process.incarnation}"
        self.lives.append(Life(name, counted[OWN], counted[AGAIN], told, rest, was_killed))


def _line(line: dict[str, Any]) -> Line:
    return Line(
        (line["partition"], line["offset"]),
        line["intent_id"],
        line["table"],
        line["verdict"],
        line["code"] or "",
        line["version"],
        line["told_again"],
    )
