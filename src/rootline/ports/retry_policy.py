"""How long to wait before the next attempt: a decision, not an action.

Owns: back-off with jitter and its cap. Does not own: sleeping.
Invariants: a delay grows to a cap and stays there; nothing is ever given up, because the log still holds it.
"""

from __future__ import annotations

from dataclasses import dataclass


def jittered_s(delay_s: float, jitter: float) -> float:
    """A delay in the upper half of `delay_s`, so that those who failed together do not return together."""
    return float(delay_s * (0.5 + 0.5 * jitter))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds; `losses_max` lost races in a row are taken quickly, after that the coordinator yields."""

    delay_s_min: float
    delay_s_max: float
    losses_max: int = 0

    def after_failure(self, failures: int, jitter: float) -> float:
        """The delay after the `failures`-th failure in a row (from 1): full jitter over the upper half."""
        ceiling = min(self.delay_s_max, self.delay_s_min * 2.0 ** min(failures - 1, 30))
        return jittered_s(ceiling, jitter)

    def after_loss(self, losses: int, jitter: float) -> float:
        """The delay after the `losses`-th lost race in a row (from 1): none for the first, long past the limit."""
        if losses <= 1:
            return 0.0
        if losses <= self.losses_max:
            return float(self.delay_s_min * losses * jitter)
        return self.after_failure(losses, jitter)
