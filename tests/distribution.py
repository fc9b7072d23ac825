"""Which tests run together, and in which order, when several processes run the suite.

Owns: the groups, and what comes first. Does not own: how many processes there are (`make test JOBS=…`).
Invariants: all tests of a group run in one process, one after the other: they share a broker, or a Java virtual
machine, which would otherwise start once in each process; the tests of a file run in one process; what takes longest
begins first, so that no process has a long file left when the others have ended.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_GROUPS: Final = {
    "mortal kafka": (
        "tests/kafka/adapter/test_intent_feed_faults",
        "tests/kafka/adapter/test_producers",
        "tests/kafka/stories/test_broker_restart",
        "tests/kafka/stories/test_stories_of_processes",
    ),
    "kafka": (
        "tests/kafka/",
        "tests/contracts/test_frontier_",
        "tests/contracts/test_intent_",
        "tests/contracts/test_log_archive_",
        "tests/hosting/test_missing_verdict",
        "tests/services/broken_redis/",
        "tests/services/watching/",
        "tests/spark/torture/",
    ),
    "spark": ("tests/spark/",),
    "engines": ("tests/engines/",),
}
"""Files by the beginning of their path; what comes first holds. Most of the time of the two Kafka groups is waiting."""
_LONG: Final = ("tests/demo/", "tests/simulation/", "tests/contracts/", "tests/house/", "tests/catalog/", "tests/cli/")
"""Of the other files."""


def group_of(path: str) -> str:
    """The group of a file: its own path, if it shares nothing."""
    return next((name for name, beginnings in _GROUPS.items() if path.startswith(beginnings)), path)


def rank_of(group: str, tests: int) -> tuple[int, int]:
    """The lower, the sooner it begins."""
    names = list(_GROUPS)
    if group in names:
        return names.index(group), 0
    return len(names) + (not group.startswith(_LONG)), -tests


class GroupScheduling(LoadFileScheduling):
    """As `--dist loadfile`, with the groups above."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.split("::", 1)[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        soonest = min(self.workqueue, key=lambda group: rank_of(group, len(self.workqueue[group])))
        self.workqueue.move_to_end(soonest, last=False)
        super()._assign_work_unit(node)
