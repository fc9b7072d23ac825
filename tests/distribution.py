"""Which tests run together, and in which order, when several processes run the suite.

Owns: the groups, what comes first, and who compiles which file of tests. Does not own: how many processes there are
(`make test JOBS=…`).
Invariants: all tests of a group run in one process, one after the other: they share a broker, a Java virtual machine,
or what was read of all sources, which each process would otherwise have for itself; the tests of a file run in one
process; what takes longest begins first, so that no process has a long file left when the others have ended.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
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
        "tests/compatibility/",
        "tests/contracts/test_frontier_",
        "tests/contracts/test_intent_",
        "tests/contracts/test_log_archive_",
        "tests/hosting/test_missing_verdict",
        "tests/services/broken_redis/",
        "tests/services/watching/",
        "tests/spark/torture/",
        "tests/stored/test_kafka_",
    ),
    "spark": ("tests/spark/",),
    "engines": ("tests/engines/",),
    "house": ("tests/house/",),
}
"""Files by the beginning of their path; what comes first holds. Most of the time of the two Kafka groups is waiting."""
_LONG: Final = (
    "tests/kit/",
    "tests/simulation/",
    "tests/demo/",
    "tests/benchmarks/",
    "tests/contracts/",
    "tests/rest/",
    "tests/cli/",
    "tests/client/",
    "tests/coordinator/",
    "tests/deploy/",
    "tests/documents/",
    "tests/workers/",
)
"""Of the other files, the longest first: the first of them takes minutes, and the last ones half a minute."""


def import_share(tests: Path, number: int, count: int) -> None:
    """Import every `count`-th file of tests, before all of them are collected.

    Each process collects them all, and pytest rewrites the assertions of a file that has no compiled one yet. So each
    process compiles its share for the others. What fails here fails again, and is reported, when it is collected.
    """
    paths = [path for path in sorted(tests.rglob("test_*.py")) if not (path.parent / "__init__.py").exists()]
    for path in paths[number::count]:
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(tests.parent).with_suffix("").parts))


def group_of(path: str) -> str:
    """The group of a file: its own path, if it shares nothing."""
    return next((name for name, beginnings in _GROUPS.items() if path.startswith(beginnings)), path)


def rank_of(group: str, tests: int) -> tuple[int, int]:
    """The lower, the sooner it begins."""
    order = (*_GROUPS, *_LONG)
    return next((at for at, name in enumerate(order) if group.startswith(name)), len(order)), -tests


class GroupScheduling(LoadFileScheduling):
    """As `--dist loadfile`, with the groups above."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.split("::", 1)[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        soonest = min(self.workqueue, key=lambda group: rank_of(group, len(self.workqueue[group])))
        self.workqueue.move_to_end(soonest, last=False)
        super()._assign_work_unit(node)
