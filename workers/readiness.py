"""Whether a worker does its work, and what is wrong when it does not: a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rootline.schemas.identifiers import TableName

_TABLES_SHOWN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class WorkerReadiness:
    """`failing`: tables whose last look or task failed, and why; a worker that has some is ready for the others."""

    reason: str
    failing: Mapping[TableName, str]

    @property
    def ready(self) -> bool:
        """Whether it finds its tables and its tasks."""
        return not self.reason

    def to_json(self) -> dict[str, Any]:
        """For /readyz; of very many failing tables the first, and how many more there are."""
        shown = dict(sorted(self.failing.items())[:_TABLES_SHOWN_MAX])
        more = len(self.failing) - len(shown)
        told = {"ready": self.ready, "reason": self.reason, "failing": shown}
        return {**told, "failing_more": more} if more else told
