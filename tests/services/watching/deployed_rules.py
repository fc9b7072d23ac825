"""The alerts of `deploy/prometheus`, and a copy of them that need not wait for minutes.

Owns: reading them, the copy. Does not own: what they say.
Invariants: the copy differs in lengths of time only: `for`, ranges, offsets, and the limits that a time is compared
with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
RULES_TEST = DEPLOY / "prometheus" / "rules_test.yml"
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LENGTH = re.compile(r"(?<![\w.\"])(\d+)([smhd])\b")
_LIMIT = re.compile(r"((?:_seconds\)?|_seconds_bucket\S*\)\)|kind=\"\w+\"}\)) > )(\d+)")
"""What a time is compared with."""
_METRIC = re.compile(r"\b((?:rootline|process)_[a-z_]+|up)\b")


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expression: str
    runbook: str
    severity: str
    summary: str


def alerts() -> list[Alert]:
    """Every alert that is deployed."""
    return [
        Alert(
            rule["alert"],
            rule["expr"],
            rule["annotations"]["runbook_url"],
            rule["labels"]["severity"],
            rule["annotations"]["summary"],
        )
        for group in _loaded()["groups"]
        for rule in group["rules"]
    ]


def metrics_in(expression: str) -> set[str]:
    """The metrics that a query names."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    return set(_METRIC.findall(bare))


def shortened(longest_range_s: int) -> str:
    """The rules with `for` of a second at most, ranges of at most so many seconds, and limits of a second."""

    def shorter(match: re.Match[str]) -> str:
        whole_s = int(match[1]) * _SECONDS[match[2]]
        return f"{min(whole_s, longest_range_s)}s"

    loaded = _loaded()
    for group in loaded["groups"]:
        group["interval"] = "500ms"
        for rule in group["rules"]:
            rule["expr"] = _LIMIT.sub(r"\g<1>1", _LENGTH.sub(shorter, rule["expr"].replace(":5m]", ":1s]")))
            if "for" in rule:
                rule["for"] = "1s"
    return yaml.safe_dump(loaded)


def _loaded() -> Any:
    return yaml.safe_load(RULES.read_text())
