"""How many cases a test draws: few in every run, many in `make properties`."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

_SHARE: Final = float(os.environ.get("ROOTLINE_EXAMPLES", "0.2"))


def examples(thorough: int) -> int:
    """A fifth of `thorough`; all of them, or more, with `make properties TIMES=3`."""
    return max(1, round(thorough * _SHARE))


def drawn(thorough: int) -> list[Any]:
    """Seeds of a story that is drawn, for `parametrize`: the first few of `thorough`, as `examples` counts them."""
    return [pytest.param(seed, marks=pytest.mark.drawn) for seed in range(examples(thorough))]
