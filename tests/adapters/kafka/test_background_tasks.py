"""Work between calls, and what becomes of its failures."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.kafka.membership import BackgroundTasks


class Work:
    """It goes on until it may end."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.starts = 0
        self.may_end = asyncio.Event()
        self.was_stopped = False

    async def run(self) -> None:
        self.starts += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_stopped = True
            raise
        if self.failure is not None:
            raise self.failure


async def ended(tasks: BackgroundTasks, work: Work, changes: asyncio.Queue[None]) -> None:
    tasks.start("work", work.run)
    work.may_end.set()
    await asyncio.wait_for(changes.get(), 60)


@pytest.fixture
def changes() -> asyncio.Queue[None]:
    return asyncio.Queue()


@pytest.fixture
def tasks(changes: asyncio.Queue[None]) -> BackgroundTasks:
    return BackgroundTasks(lambda: changes.put_nowait(None))


async def test_what_goes_on_is_not_started_twice(tasks: BackgroundTasks) -> None:
    work = Work()
    for _ in range(3):
        tasks.start("work", work.run)
        await asyncio.sleep(0)
        tasks.raise_failure()
    assert work.starts == 1
    await tasks.close()
    assert work.was_stopped


async def test_a_failure_is_raised_once_and_the_work_may_start_again(
    tasks: BackgroundTasks, changes: asyncio.Queue[None]
) -> None:
    await ended(tasks, Work(ValueError("broken")), changes)
    with pytest.raises(ValueError, match="broken"):
        tasks.raise_failure()
    tasks.raise_failure()
    again = Work()
    await ended(tasks, again, changes)
    assert again.starts == 1
    tasks.raise_failure()
    await tasks.close()


async def test_nobody_hears_of_what_was_stopped(tasks: BackgroundTasks, changes: asyncio.Queue[None]) -> None:
    await ended(tasks, Work(ValueError("broken")), changes)
    tasks.stop("work")
    tasks.stop("never started")
    tasks.raise_failure()
    await tasks.close()


async def test_nothing_starts_after_the_end(tasks: BackgroundTasks) -> None:
    await tasks.close()
    work = Work()
    tasks.start("work", work.run)
    await asyncio.sleep(0)
    assert work.starts == 0
