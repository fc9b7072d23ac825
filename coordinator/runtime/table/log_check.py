"""The check that the log is still the one whose records a head has decided.

Owns: what is asked of the log before a head is built on or answered from. Does not own: when (`effect_runner`).
Invariants: a log that ends before what was decided, or that has another record in the place of the last decided one,
is refused; a record that retention has removed, or that cannot be read here, proves nothing, and refuses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from rootline.ports.intent_feed import IntentFeed, Partition
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.root_header import PartitionOffset, RootHeader
from rootline.tree.commit.answers import is_last_decided, log_went_back

_READER: Final = "\0marks"
"""No table has this name."""


class LogCheck:
    """The checks for the tables of one process. They share a reader, one at a time."""

    def __init__(self, log: IntentFeed) -> None:
        self._log = log
        self._turn = asyncio.Lock()

    async def check(self, header: RootHeader, decided: Collection[Partition]) -> None:
        """Compare the log's end with every offset of the head, and the last decided record of these partitions.

        Raises:
            Fenced: `log-behind-root`. Unavailable: the log cannot be asked.

        """
        for log, partition, applied in header.offsets:
            end = await self._log.end_offset(log, partition)
            if end is None:
                continue
            last = LogPosition(log, partition, applied - 1)
            if applied > end:
                raise Fenced("log-behind-root", log_went_back(header, last, end))
            if (log, partition) in decided:
                await self._compare(header, last)

    async def _compare(self, header: RootHeader, position: LogPosition) -> None:
        if header.mark_at(position.log, position.partition) is None:
            return
        try:
            async with self._turn:
                found = (await self._log.read_again(_READER, PartitionOffset(*position), limit=1)).records
        except Fenced as error:
            if error.code != "offset-out-of-range":
                raise
            return
        same = [raw for raw in found if raw.position == position]
        if same and same[0].not_read:
            return
        if not same or not is_last_decided(header, position, same[0].value, same[0].appended_ms):
            raise Fenced("log-behind-root", log_went_back(header, position))
