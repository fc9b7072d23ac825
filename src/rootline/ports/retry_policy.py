"""The delay before the next attempt: exponential back-off with jitter.

Owns: the delays and their cap. Does not own: waiting, and the choice to stop retrying.
Invariants: A delay grows up to a cap.
"""

from __future__ import annotations

from dataclasses import dataclass


def jittered_s(delay_s: float, jitter: float) -> float:
    """A delay between half of `delay_s` and all of it, so that clients that failed together do not retry together."""
    return float(delay_s * (0.5 + 0.5 * jitter))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of delays, in seconds.

    Up to `losses_max` lost races in a row are retried quickly. After that, delays grow as after failures.
    """

    delay_s_min: float
    delay_s_max: float
    losses_max: int = 0

    def after_failure(self, failures: int, jitter: float) -> float:
        """The delay after the `failures`-th failure in a row (from 1): half of it is fixed, half is jitter."""
        ceiling = min(self.delay_s_max, self.delay_s_min * 2.0 ** min(failures - 1, 30))
        return jittered_s(ceiling, jitter)

    def after_loss(self, losses: int, jitter: float) -> float:
        """The delay after the `losses`-th lost race in a row (from 1), 0 after the first."""
        if losses <= 1:
            return 0.0
        if losses <= self.losses_max:
            return float(self.delay_s_min * losses * jitter)
        return self.after_failure(losses, jitter)
