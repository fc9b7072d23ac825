"""What the demos do in a terminal: they say how far they are, and stop cleanly when they are interrupted."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from types import FrameType


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


@contextlib.contextmanager
def stage(name: str, stages: list[tuple[str, float]] | None = None) -> Iterator[None]:
    """Time one stage and say when it is done; its name and seconds go into `stages`."""
    began_s = time.perf_counter()
    yield
    took_s = time.perf_counter() - began_s
    if stages is not None:
        stages.append((name, took_s))
    say(f"{name:<22} {took_s:6.1f} s")


def interrupt_on(numbers: Sequence[signal.Signals]) -> None:
    """From now on the first of these signals raises `KeyboardInterrupt`; later ones are ignored."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # stopping has its deadlines; a second signal must not cut it short
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupted)
