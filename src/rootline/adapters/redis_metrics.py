"""The metrics of calls to Redis: a contract with those who watch it.

Owns: names and labels. Does not own: the registry that shows them.
Invariants: no label grows with tables. One registry shows them once, however many services share it.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from rootline.ports.head_hints import HintOutcome

USES: Final = ("hint", "queue")
OUTCOMES: Final = ("answered", "failed", "refused", "skipped")


class RedisMetrics:
    """The metrics of one process's Redis."""

    def __init__(self) -> None:
        self.calls = Counter(
            "rootline_redis_calls_total",
            "Calls to Redis: `answered` in time, `failed`, `refused` by the server, `skipped` because it is down.",
            ("use", "outcome"),
            registry=None,
        )
        self.up = Gauge(
            "rootline_redis_up",
            "1 while Redis is asked, 0 after failures: each process then works alone.",
            registry=None,
        )
        self.hints = Counter(
            "rootline_head_hints_total",
            "Hints at the newest version when a table is opened, by what the store then showed.",
            ("outcome",),
            registry=None,
        )
        self.tasks = Counter(
            "rootline_worker_shared_tasks_total",
            "Tasks of the shared queue: `claimed` from a worker that fell silent, `dead` after too many attempts, "
            "`doubled` because another worker has the same one, `unreadable` because no worker wrote it.",
            ("outcome",),
            registry=None,
        )
        self.dead = Gauge(
            "rootline_worker_dead_tasks", "Tasks that `rootline tasks list` shows, as last seen.", registry=None
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
        """Show them in `registry`, once."""
        for collector in (self.calls, self.up, self.hints, self.tasks, self.dead):
            registry.register(collector)
