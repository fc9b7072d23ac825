"""How fast a table's roots follow one another, estimated from its head now and then.

Owns: the estimate. Does not own: what follows from it (`flush_limits`).
Invariants: pure; no clock but the roots' own timestamps; a table seen once has no pace yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.root_header import RootHeader

_SPAN_MS: Final = 1_000
"""Heads that are closer in time say little: the earlier one is then compared with a later head."""


@dataclass(frozen=True, slots=True)
class _Seen:
    version: Version
    timestamp_ms: int
    per_s: float


@dataclass(slots=True)
class CommitPace:
    """Commits per second of several tables, between the heads that were seen."""

    _seen: dict[TableName, _Seen] = field(default_factory=dict)

    def see(self, header: RootHeader) -> float:
        """Note a head; commits per second since the head before it, 0.0 for the first one."""
        now = header.snapshot.timestamp_ms
        before = self._seen.get(header.table)
        if before is None or header.version < before.version:
            self._seen[header.table] = _Seen(header.version, now, 0.0)
            return 0.0
        elapsed_ms = now - before.timestamp_ms
        if elapsed_ms < _SPAN_MS:
            return before.per_s
        per_s = (header.version - before.version) * 1_000 / elapsed_ms
        self._seen[header.table] = _Seen(header.version, now, per_s)
        return per_s
