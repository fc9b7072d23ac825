"""Virtual time: it jumps to the next timer, runs the same way always, and says when nothing can happen any more."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from rootline.testing.virtual_loop import Deadlock, run_virtually


def test_time_jumps_to_the_next_timer_and_starts_at_zero() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        seen = [loop.time()]
        await asyncio.sleep(86_400.0 * 365)
        seen.append(loop.time())
        return seen

    assert run_virtually(main()) == [0.0, 86_400.0 * 365]


def test_timers_run_in_order_of_time_whoever_armed_them_first() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def note(name: str, after_s: float) -> None:
            await asyncio.sleep(after_s)
            seen.append(name)

        await asyncio.gather(note("late", 3.0), note("early", 1.0), note("middle", 2.0))
        return seen

    assert run_virtually(main()) == ["early", "middle", "late"]


def test_a_deadline_passes_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10.0):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == pytest.approx(10.0)


def test_waiting_for_what_can_never_happen_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="every task waits"):
        run_virtually(main())


def test_what_is_handed_to_a_thread_runs_at_once_in_this_one() -> None:
    async def main() -> tuple[int, float]:
        return await asyncio.to_thread(threading.get_ident), asyncio.get_running_loop().time()

    assert run_virtually(main()) == (threading.get_ident(), 0.0)


def test_an_error_in_what_is_handed_to_a_thread_reaches_the_caller() -> None:
    def fail() -> None:
        raise ValueError("from the call")

    async def main() -> None:
        await asyncio.to_thread(fail)

    with pytest.raises(ValueError, match="from the call"):
        run_virtually(main())


def test_the_same_program_runs_the_same_way() -> None:
    async def main() -> list[tuple[float, int]]:
        seen: list[tuple[float, int]] = []

        async def walk(number: int) -> None:
            for step in range(5):
                await asyncio.sleep((number * 7 + step * 3) % 5 / 10)
                seen.append((asyncio.get_running_loop().time(), number))

        await asyncio.gather(*(walk(number) for number in range(20)))
        return seen

    assert run_virtually(main()) == run_virtually(main())


def test_an_error_of_the_program_is_raised_and_its_tasks_are_ended() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("background")

    async def main() -> None:
        task = asyncio.ensure_future(background())
        await asyncio.sleep(1.0)
        assert not task.done()
        raise KeyError("main")

    with pytest.raises(KeyError):
        run_virtually(main())
    assert ended == ["background"]


def test_a_loop_ends_without_a_thread_whose_answer_it_would_have_to_wait_for() -> None:
    before = threading.active_count()

    async def main() -> int:
        await asyncio.to_thread(time.monotonic)
        return threading.active_count()

    for _ in range(200):
        assert run_virtually(main()) == before
