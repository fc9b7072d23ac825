"""Translates a model's validation errors into sentences.

Owns: the sentences. Does not own: the models, the error code of a fault (except for settings).
Invariants: a message never contains the faulty value, which may be a secret, nor a sentence of the validation library.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rootline.schemas.errors import Invalid

_SHOWN_MAX: Final = 3
_KINDS: Final = {
    "missing": "is missing",
    "extra_forbidden": "is no field: check its spelling",
    "bool": "must be true or false",
    "bytes": "must be bytes",
    "date": "must be a date",
    "dict": "must map names to values",
    "float": "must be a number",
    "int": "must be a whole number",
    "json": "is not JSON",
    "list": "must be a list",
    "model": "must be an object with the fields of its kind",
    "path": "must be a path",
    "string": "must be text",
    "timezone_aware": "must have a time zone, as in 2026-01-31T00:00:00Z",
    "tuple": "must be a list",
    "uuid": "must be a UUID",
}
_BOUNDS: Final = {
    "greater_than": ("must be more than {}", "gt"),
    "greater_than_equal": ("must be {} or more", "ge"),
    "less_than": ("must be less than {}", "lt"),
    "less_than_equal": ("must be {} or less", "le"),
    "string_too_short": ("must have {} characters or more", "min_length"),
    "string_too_long": ("must have {} characters or fewer", "max_length"),
    "bytes_too_short": ("must have {} bytes or more", "min_length"),
    "bytes_too_long": ("must have {} bytes or fewer", "max_length"),
    "too_short": ("must have {} items or more", "min_length"),
    "too_long": ("must have {} items or fewer", "max_length"),
    "string_pattern_mismatch": ("must match {}", "pattern"),
    "enum": ("must be one of {}", "expected"),
    "literal_error": ("must be one of {}", "expected"),
    "union_tag_invalid": ("must be one of {}", "expected_tags"),
    "union_tag_not_found": ("must have the field {}", "discriminator"),
}


def reason_of(fault: ErrorDetails) -> str:
    """The fault of one value, as the end of a sentence that begins with the value's name."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in _BOUNDS:
        text, key = _BOUNDS[kind]
        return text.format(context.get(key))
    if kind == "value_error":  # raised by our validators
        return fault["msg"].removeprefix("Value error, ")
    if kind in _KINDS:
        return _KINDS[kind]
    return _KINDS.get(kind.partition("_")[0], f"cannot be used ({kind})")


def fault_of_model(error: ValidationError) -> str:
    """The faults of the first few fields, as one sentence."""
    faults = error.errors(include_input=False, include_url=False)
    shown = [f"{'.'.join(map(str, fault['loc']))} {reason_of(fault)}".strip() for fault in faults[:_SHOWN_MAX]]
    more = [f"{len(faults) - _SHOWN_MAX} more"] if len(faults) > _SHOWN_MAX else []
    return "; ".join([*shown, *more])


def invalid_model(name: str, error: ValidationError) -> Invalid:
    """The error `intent-malformed`, naming the model and its faults."""
    return Invalid("intent-malformed", f"{name}: {fault_of_model(error)}")


def invalid_settings(error: ValidationError, prefix: str) -> Invalid:
    """The error `setting-invalid`, naming each variable, which begins with `prefix`, and its fault."""
    faults = (
        f"{prefix}{'__'.join(str(part).upper() for part in fault['loc'])}: {reason_of(fault)}"
        for fault in error.errors(include_input=False, include_url=False)
    )
    return Invalid("setting-invalid", "; ".join(faults))
