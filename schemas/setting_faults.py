"""What is wrong with settings, by the names under which they were set.

Owns: turning pydantic's findings into one error that names variables. Does not own: the settings, where they come from.
Invariants: a value is never repeated: it may be a secret.
"""

from __future__ import annotations

from pydantic import ValidationError

from rootline.schemas.errors import Invalid
from rootline.schemas.model_faults import reason_of


def invalid_settings(error: ValidationError, prefix: str) -> Invalid:
    """`setting-invalid`, naming each variable, which begins with `prefix`, and what is wrong with it."""
    faults = (
        f"{prefix}{'__'.join(str(part).upper() for part in fault['loc'])}: {reason_of(fault)}"
        for fault in error.errors(include_input=False, include_url=False)
    )
    return Invalid("setting-invalid", "; ".join(faults))
