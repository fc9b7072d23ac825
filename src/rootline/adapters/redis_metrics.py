"""The metrics of calls to Redis, on which dashboards and alerts depend.

Owns: names and labels. Does not own: the registry that exports them.
Invariants: The number of series does not grow with the number of tables. A registry exports them once, however many
services share it.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from rootline.ports.head_hints import HintOutcome

USES: Final = ("hint", "queue")
OUTCOMES: Final = ("answered", "failed", "refused", "skipped")


class RedisMetrics:
    """The metrics of one process's use of Redis."""

    def __init__(self) -> None:
        self.calls = Counter(
            "rootline_redis_calls_total",
            "Calls to Redis: `answered` in time, `failed`, `refused` by the server, `skipped` because it is down.",
            ("use", "outcome"),
            registry=None,
        )
        self.up = Gauge(
            "rootline_redis_up",
            "1 while Redis is used, 0 after failures, when each process works without it.",
            registry=None,
        )
        self.hints = Counter(
            "rootline_head_hints_total",
            "Hints about the newest version of a table that is opened, by their agreement with the store.",
            ("outcome",),
            registry=None,
        )
        self.tasks = Counter(
            "rootline_worker_shared_tasks_total",
            "Tasks of the shared queue: `claimed` from a worker that did not renew its lease, `dead` after too many "
            "attempts, `doubled` because another worker has the same one, `unreadable` because no worker wrote it.",
            ("outcome",),
            registry=None,
        )
        self.dead = Gauge(
            "rootline_worker_dead_tasks",
            "Dead tasks (`rootline tasks list`) at the last poll.",
            registry=None,
        )
        self.up.set(1)
        for use in USES:
            for outcome in OUTCOMES:
                self.calls.labels(use, outcome)
        for judged in HintOutcome:
            self.hints.labels(judged.value)
        for outcome in ("claimed", "dead", "doubled", "unreadable"):
            self.tasks.labels(outcome)

    def show_in(self, registry: CollectorRegistry) -> None:
        """Register them in `registry`. Call it once."""
        for collector in (self.calls, self.up, self.hints, self.tasks, self.dead):
            registry.register(collector)
