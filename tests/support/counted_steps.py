"""How much work something is, without a clock: the lines of our code that it executes on this thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Steps:
    """`count`: lines that were executed so far, each turn of a loop or a comprehension by itself."""

    count: int = 0


@contextmanager
def counted_steps(part: str) -> Iterator[Steps]:
    """Count until the block ends, in files whose path contains `part`; what already runs is not counted."""
    steps, before = Steps(), sys.gettrace()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        steps.count += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if part in frame.f_code.co_filename else None

    sys.settrace(call)
    try:
        yield steps
    finally:
        sys.settrace(before)
