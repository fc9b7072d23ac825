"""Hints that say what a test wants, when it wants it, on a virtual clock (`rootline.testing.virtual_loop`)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rootline.ports.head_hints import HintOutcome
from rootline.schemas.identifiers import TableName, Version


@dataclass
class Hints:
    """Says `version`, after `delay_s`."""

    version: int | None
    delay_s: float = 0.0
    are_kept: bool = True
    outcomes: list[HintOutcome] = field(default_factory=list)

    def tell(self, table: TableName, version: Version) -> None:
        self.version = version

    async def newest(self, table: TableName) -> Version | None:
        await asyncio.sleep(self.delay_s)
        return None if self.version is None else Version(self.version)

    def judged(self, outcome: HintOutcome) -> None:
        self.outcomes.append(outcome)
