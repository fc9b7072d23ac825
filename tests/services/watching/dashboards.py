"""The dashboards of `deploy/grafana`, as values.

Owns: reading them, and their queries as Prometheus takes them. Does not own: what they show.
Invariants: every variable in a query is replaced; one that is not known is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.services.watching.deployed_rules import DEPLOY

LAKE = "main"
"""As the deployed scrape configuration calls it."""
_VALUES = {"lake": LAKE, "__rate_interval": "1m", "__interval": "15s", "__range": "3h"}


@dataclass(frozen=True)
class Query:
    """One query of one panel."""

    dashboard: str
    panel: str
    expression: str

    def with_values(self, table: str) -> str:
        """As Grafana sends it."""
        values = {**_VALUES, "table": table}
        return re.sub(r"\$(\w+)", lambda match: values[match[1]], self.expression)


def dashboards() -> dict[str, Any]:
    """File name → content."""
    return {path.name: json.loads(path.read_text()) for path in sorted((DEPLOY / "grafana").glob("*.json"))}


def queries() -> Iterator[Query]:
    """Of every panel of every dashboard."""
    for name, board in dashboards().items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield Query(name, panel["title"], target["expr"])
