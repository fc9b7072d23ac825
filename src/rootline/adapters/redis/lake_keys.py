"""The keys of one lake in Redis."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rootline.schemas.identifiers import TableName


@dataclass(frozen=True, slots=True)
class LakeKeys:
    """`stem`: how they all begin."""

    stem: str

    @staticmethod
    def of(prefix: str, warehouse: str) -> LakeKeys:
        """The keys of the lake whose warehouse has this URL."""
        digest = hashlib.sha256(warehouse.rstrip("/").encode()).hexdigest()[:16]
        return LakeKeys(f"{prefix}:{digest}")

    def head(self, table: TableName) -> str:
        """The hint at the newest version of `table`."""
        return f"{self.stem}:head:{table}"

    @property
    def tasks(self) -> str:
        """The stream of tasks."""
        return f"{self.stem}:tasks"

    @property
    def queued(self) -> str:
        """Look and table → the entry of the stream that stands for them."""
        return f"{self.stem}:queued"

    @property
    def leases(self) -> str:
        """Look and table → until when, and by whom they are worked on."""
        return f"{self.stem}:leases"

    @property
    def done(self) -> str:
        """Look and table → the version that was looked at last, and when."""
        return f"{self.stem}:done"

    @property
    def dead(self) -> str:
        """Look and table → tasks that no worker ended."""
        return f"{self.stem}:dead"
