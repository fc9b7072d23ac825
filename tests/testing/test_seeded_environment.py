"""Time, ids and chance from a seed."""

from __future__ import annotations

import asyncio
import re

from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually


def drawn(seed: int | str) -> list[str | float]:
    environment = SeededEnvironment(seed)
    return [draw() for _ in range(20) for draw in (environment.fresh_id, environment.jitter)]


def test_the_same_seed_gives_the_same_ids_and_numbers_and_another_one_others() -> None:
    assert drawn(1) == drawn(1)
    assert drawn("coordinator-1.2/0.5") == drawn("coordinator-1.2/0.5")
    assert not set(map(str, drawn(1))) & set(map(str, drawn(2)))


def test_ids_are_32_hex_digits_and_numbers_lie_between_0_and_1() -> None:
    environment = SeededEnvironment(1)
    ids = [environment.fresh_id() for _ in range(1_000)]
    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in ids)
    assert len(set(ids)) == 1_000
    assert all(0.0 <= environment.jitter() < 1.0 for _ in range(1_000))


def test_both_clocks_follow_the_loops_time_and_only_the_wall_clock_is_skewed() -> None:
    async def main() -> None:
        true, skewed = SeededEnvironment(1), SeededEnvironment(1, skew_ms=-5_000)
        began_ms = true.now_ms()
        await asyncio.sleep(2.5)
        assert true.now_ms() - began_ms == 2_500
        assert skewed.now_ms() == true.now_ms() - 5_000
        assert true.monotonic_s() == skewed.monotonic_s() == 2.5

    run_virtually(main())
