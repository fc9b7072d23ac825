"""The terminal output of the demos: reports progress, and stops cleanly on an interrupt."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from types import FrameType


def say(text: str) -> None:
    """Print one line without buffering."""
    print(text, flush=True)


@contextlib.contextmanager
def stage(name: str, stages: list[tuple[str, float]] | None = None) -> Iterator[None]:
    """Time one stage and print its duration. Its name and seconds are added to `stages`."""
    began_s = time.perf_counter()
    yield
    took_s = time.perf_counter() - began_s
    if stages is not None:
        stages.append((name, took_s))
    say(f"{name:<22} {took_s:6.1f} s")


def interrupt_on(numbers: Sequence[signal.Signals]) -> None:
    """Raise `KeyboardInterrupt` on the first of these signals. Later ones are ignored."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # a stop has deadlines, and a second signal must not interrupt it
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupted)
