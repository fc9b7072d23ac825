"""Which locations an intent may name.

Owns: the rules of a location's text. Does not own: which objects exist, or what is live (a predicate is passed in).
Invariants: what passes is a plain path below the table's own prefix, the same after any number of URL decodings, or
exactly a live entry's absolute location; so no intent can name another table's objects or another endpoint.

Source: invariants page, "Bad input"; format page, "Objects".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from rootline.schemas.errors import Invalid
from rootline.schemas.intent_limits import DEFAULT_LIMITS

_PLAIN_PATH: Final = r"[A-Za-z0-9_=,@+~\-][A-Za-z0-9_=,@+~.\- ]*(?:/[A-Za-z0-9_=,@+~\-][A-Za-z0-9_=,@+~.\- ]*)*"
"""The common case, decided at once: no part begins with a dot, nothing that needs a closer look."""
_PLAIN: Final = re.compile(_PLAIN_PATH + r"\Z")
PLAIN_PATTERN: Final = rf"\A{_PLAIN_PATH}\z"
"""For whole columns, in the regular expressions of RE2: length apart, what matches is let pass."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_MAX_DECODINGS: Final = 4
_FORBIDDEN: Final = {
    "\\": "holds a backslash",
    "?": "holds a question mark, which some clients take for the end of a path",
    "#": "holds a #, which some clients take for the end of a path",
}
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def is_plain(location: str) -> bool:
    """Whether `check_location` lets it pass at a glance; `False` says nothing."""
    return len(location) <= DEFAULT_LIMITS.max_location_chars and _PLAIN.match(location) is not None


def check_location(
    location: str,
    *,
    is_live: Callable[[str], bool] | None = None,
    max_chars: int = DEFAULT_LIMITS.max_location_chars,
) -> None:
    """Let `location` pass, or raise.

    Args:
        location: relative to the table's prefix, or absolute.
        is_live: whether a live entry has exactly this location; the only way for an absolute one to pass.
        max_chars: the longest location, characters.

    Raises:
        Invalid: `location-invalid`, and the message says which rule it breaks.

    """
    if len(location) <= max_chars and _PLAIN.match(location):
        return
    reason = _broken_rule(location, is_live, max_chars)
    if reason is not None:
        raise Invalid("location-invalid", f"location {_shown(location)} {reason}")


def _broken_rule(location: str, is_live: Callable[[str], bool] | None, max_chars: int) -> str | None:
    if not location:
        return "is empty"
    if len(location) > max_chars:
        return f"has {len(location)} characters, {max_chars} are allowed"
    if any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES for char in location):
        return "holds control or formatting characters"
    if _SCHEME.match(location) or location.startswith("/"):
        if is_live is not None and is_live(location):
            return None
        return "is absolute, and no live entry has it: give it relative to the table's prefix"
    decoded = location
    for _ in range(_MAX_DECODINGS):
        for form in (decoded, unicodedata.normalize("NFKC", decoded)):
            reason = _broken_path_rule(form)
            if reason is not None:
                return reason if form == location else f"{reason}, in an encoded form"
        if "%" not in decoded:
            return None
        try:
            decoded, encoded = unquote(decoded, errors="strict"), decoded
        except UnicodeDecodeError:
            return "is percent-encoded, but not in UTF-8"
        if decoded == encoded:
            return None
    return "is percent-encoded several times"


def _broken_path_rule(path: str) -> str | None:
    if any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES for char in path):
        return "holds control or formatting characters"
    for char, reason in _FORBIDDEN.items():
        if char in path:
            return reason
    for part in path.split("/"):
        if not part:
            return "has an empty part (two slashes, or one at an end)"
        if part in {".", ".."}:
            return "has a part that is . or .."
    return "has a scheme" if _SCHEME.match(path) else None


def _shown(location: str) -> str:
    return ascii(location if len(location) <= 80 else location[:80] + "…")
