"""The embedded log's pruning, now and then, for as long as a process hosts the lake's coordinator.

Owns: when. Does not own: what may go, and deleting it (`log_pruning`).
Invariants: one step at a time, with a pause after each in which publishers are served; a failure is logged and tried
again later, and never ends the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from rootline.adapters.sqlite.log_pruning import Pruned
from rootline.schemas.errors import RootlineError

STEP_ROWS: Final = 500
_PAUSE_S: Final = 0.05
_INTERVAL_S: Final = 60.0

PruneStep = Callable[[], Awaitable[Pruned]]


async def pruning_loop(step: PruneStep, *, interval_s: float = _INTERVAL_S, pause_s: float = _PAUSE_S) -> None:
    """Until it is cancelled."""
    logger = structlog.get_logger("rootline.log")
    while True:
        try:
            more = True
            while more:
                more = (await step()).more
                await asyncio.sleep(pause_s)
        except RootlineError as error:
            logger.warning("the log was not pruned", action="prune-log", reason=str(error))
        await asyncio.sleep(interval_s)
