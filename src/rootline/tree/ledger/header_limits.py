"""How much ledger and outcomes a root's header may hold; what exceeds it is stored in pages.

Owns: the limits. Does not own: what moves when one is exceeded (`ledger_spill`, `outcome_spill`).
Invariants: a header over a limit is never written; under any limit everything fits, because all of it can move.

Source: protocol page, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEADER_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class HeaderLimits:
    """Bytes, as encoded in the header. Tests lower them; no one else should, and readers know no others."""

    ledger_bytes: int = HEADER_BYTES_MAX
    outcome_bytes: int = HEADER_BYTES_MAX


HEADER_LIMITS: Final = HeaderLimits()
