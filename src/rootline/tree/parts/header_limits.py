"""Limits on the ledger and outcomes in a root's header. Content above a limit is stored in pages.

Owns: the limits. Does not own: which content moves when one is exceeded (`ledger`, `outcomes`).
Invariants: No header exceeds a limit. Any content fits under any limit, because all of it can move to pages.

Source: protocol page, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEADER_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class HeaderLimits:
    """Bytes, as encoded in the header. Only tests use lower limits. Readers do not depend on them."""

    ledger_bytes: int = HEADER_BYTES_MAX
    outcome_bytes: int = HEADER_BYTES_MAX


HEADER_LIMITS: Final = HeaderLimits()
