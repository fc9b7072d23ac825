"""Python loads this by itself when the folder is on its path: the process's wall clock is eight days ahead.

The clock that certificates and signed requests are dated with (`datetime`) stays right, or no store would answer.
"""

import time

_AHEAD_NS = 8 * 86_400 * 1_000_000_000
_now_ns = time.time_ns

time.time_ns = lambda: _now_ns() + _AHEAD_NS
time.time = lambda: (_now_ns() + _AHEAD_NS) / 1e9
