"""How many cases a property test draws: few in every run, many in `make properties`."""

from __future__ import annotations

import os
from typing import Final

_SHARE: Final = float(os.environ.get("ROOTLINE_EXAMPLES", "0.3"))


def examples(thorough: int) -> int:
    """Three of ten of `thorough`; all of them, or more, with `make properties TIMES=3`."""
    return max(1, round(thorough * _SHARE))
