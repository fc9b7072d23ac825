"""Whether a position belongs to a log.

Owns: the check that every log makes. Does not own: identities (`rootline.schemas.identifiers`).
Invariants: offsets of one log are never taken for another's.
"""

from __future__ import annotations

from rootline.schemas.errors import Fenced


def check_identity(own: str, named: str) -> None:
    """Pass when `named` is the log's own identity.

    Raises:
        Fenced: `log-replaced`.

    """
    if named != own:
        raise Fenced(
            "log-replaced", f"the position is of log {named}, but this is log {own}: the log was created again"
        )
