"""A change's loop: plan, publish the intent, and plan again if another change was committed first.

Owns: the order of these steps, the rejections that another plan can fix, the number of replans and their pauses, and
the caller's deadline. Does not own: the plan, publishing and waiting for the verdict, which are passed as functions.
Invariants: each plan reads the current head and makes a new intent. A plan is made only before the first intent and
after a verdict, so an intent with an unknown outcome never has a second one beside it. An error of planning or
publishing ends the loop. No pause exceeds the caller's deadline.

Theory. `steps` is a generator without I/O: it yields the next step and receives its result. `drive` and `drive_async`
execute its steps, so that clients, Spark's driver and workers share one order of steps, whether they block or await.
Of writers that change the same rows all the time, one wins each commit, and plans its next change at once. Others that
pause lose to it, so with pauses that grow, one writer may win always. Here the third pause is the longest, so that few
compete, and the next ones shrink, so that a change which has lost often competes at once. They are jittered, so that
writers that collided once do not keep colliding.
A retry library is not used here or in the coordinator's loops: stamina draws from the global `random` and the real
clock, which a seeded simulation must control, and its hooks apply to the user's whole process.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from rootline.ports.retry_policy import jittered_s
from rootline.schemas.errors import Invalid
from rootline.schemas.verdict import Verdict, VerdictKind

LEAST_WAIT_S: Final = 1.0
"""The minimum time to wait for a verdict, even if planning has used all of the caller's time."""
REPLANS_MAX: Final = 10_000
"""Far more than time allows, as the caller's deadline usually ends the replans."""
_REPLAN_CODES: Final = frozenset(
    ("stale-source", "isolation-conflict", "file-not-live", "row-conflict", "definition-changed")
)
_PAUSES_S: Final = (0.03, 0.06, 0.8, 0.4, 0.2, 0.1, 0.05, 0.02, 0.002)
_LEAST_REST_S: Final = 0.01
P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Replan:
    """Wait `delay_s` seconds, then plan on the newest version.

    The result is the plan, or `None` if nothing has to change.
    """

    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Publish(Generic[P]):
    """Publish the intent of `plan` and wait for the verdict. The result is the outcome."""

    plan: P


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The end. `outcome`: of the last intent, or `None` if the last plan found nothing to change."""

    outcome: R | None


DelayOf: TypeAlias = Callable[[R, int], float | None]
"""The pause before the next plan in seconds, from an outcome and the number of replans. `None`: it is final."""


def steps(delay_of: DelayOf[R]) -> Generator[Replan | Publish[Any] | Done[R], Any, None]:
    """Yield the steps of one change. The result of each step except `Done` is passed with `send`."""
    replans, delay_s = 0, 0.0
    while True:
        plan = yield Replan(delay_s)
        if plan is None:
            yield Done(None)
            return
        outcome = yield Publish(plan)
        pause_s = delay_of(outcome, replans)
        if pause_s is None:
            yield Done(outcome)
            return
        replans, delay_s = replans + 1, pause_s


def drive(plan: Callable[[], P | None], publish: Callable[[P], R], delay_of: DelayOf[R]) -> R | None:
    """Execute the steps in this thread.

    Returns:
        The final outcome, or `None` if a plan found nothing to change.

    Raises:
        Exception: an error of `plan` or `publish`, which ends the loop.
    """
    driven = steps(delay_of)
    answer: Any = None
    while True:
        match driven.send(answer):
            case Replan(delay_s):
                if delay_s:
                    time.sleep(delay_s)
                answer = plan()
            case Publish(planned):
                answer = publish(planned)
            case Done(outcome):
                return outcome


async def drive_async(
    plan: Callable[[], Awaitable[P | None]], publish: Callable[[P], Awaitable[R]], delay_of: DelayOf[R]
) -> R | None:
    """Execute the steps on the running loop. Results and errors are the same as of `drive`."""
    driven = steps(delay_of)
    answer: Any = None
    while True:
        match driven.send(answer):
            case Replan(delay_s):
                if delay_s:
                    await asyncio.sleep(delay_s)
                answer = await plan()
            case Publish(planned):
                answer = await publish(planned)
            case Done(outcome):
                return outcome


def is_fixed_by_replan(code: str) -> bool:
    """Whether an intent that was rejected with `code` may be accepted after another plan."""
    return code in _REPLAN_CODES


def replan_delay_s(
    error: Invalid, replans: int, jitter: float, rest_s: float, replans_max: int = REPLANS_MAX
) -> float | None:
    """The pause before planning again in seconds, or `None` if the rejection is final.

    Args:
        error: the rejection.
        replans: the number of replans so far.
        jitter: in [0, 1).
        rest_s: seconds until the caller's deadline.
        replans_max: the number of replans after which a rejection is final.
    """
    if not is_fixed_by_replan(error.code) or replans >= replans_max or rest_s < _LEAST_REST_S:
        return None
    return min(jittered_s(_PAUSES_S[min(replans, len(_PAUSES_S) - 1)], jitter), rest_s / 2)


def no_jitter() -> float:
    """Return 0.5, the middle of the jitter range, for a job that rarely conflicts with others."""
    return 0.5


@dataclass(frozen=True, slots=True)
class Patience:
    """The time that a caller allows for planning and publishing, until `deadline_s` by `clock`.

    `jitter`: returns a number in [0, 1) for each pause.
    """

    clock: Callable[[], float]
    jitter: Callable[[], float]
    deadline_s: float = math.inf
    replans_max: int = REPLANS_MAX

    @staticmethod
    def of(timeout_s: float, clock: Callable[[], float], jitter: Callable[[], float]) -> Patience:
        """The patience for `timeout_s` seconds from now."""
        return Patience(clock, jitter, clock() + timeout_s)

    @property
    def verdict_wait_s(self) -> float:
        """Seconds to wait for the next verdict: the rest of the caller's time, but at least `LEAST_WAIT_S`."""
        return max(self.deadline_s - self.clock(), LEAST_WAIT_S)

    def delay_of(self, verdict: Verdict, replans: int) -> float | None:
        """The pause in seconds before the next plan, or `None` if no other plan can fix the rejection in time."""
        if verdict.kind is not VerdictKind.REJECTED:
            return None
        error = Invalid(verdict.code or "", verdict.message or "")
        return replan_delay_s(error, replans, self.jitter(), self.deadline_s - self.clock(), self.replans_max)
