"""The errors of Rootline: one root class, seven categories by what the caller must do.

Owns: the categories, masking logins in messages. Does not own: the list of codes and their explanations
(`error_codes`).
Invariants: every error has a stable code from `error_codes.CODES`. Its message names the object and the reason.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"
_PASSWORD_BEGINS: Final = re.compile(r"""[^/\s:@]*:(?!\d{1,5}(?:[/\s'",;)\]]|$))""")
"""The user and password after ://. A number that looks like a port is not a password."""
_AUTHORITY: Final = re.compile(r"[^/\s]*")
_QUOTED_URL: Final = re.compile(r"""'[^'"\s]*?://[^']*'|"[^'"\s]*?://[^"]*\"""")
_QUERY_SECRET: Final = re.compile(
    r"([?&][\w-]*(?:password|passwd|secret|security-token|signature|credential)[\w-]*=)[^&#\s'\"]+", re.IGNORECASE
)


def masked_logins(text: str) -> str:
    """`text` with `user:password` masked in each of its URLs. In an invalid URL, more is masked rather than less.

    Secrets in the query parameters of a URL are masked too.
    """
    text = _masked_parameters(text)
    if "@" not in text:
        return text
    text = _QUOTED_URL.sub(lambda found: _masked_to_last_at(found[0]), text)
    return "\n".join(map(_masked_line, text.split("\n")))


def masked_login(url: str) -> str:
    """`url` with its login masked as in `masked_logins`. The whole text should be one URL."""
    return masked_logins(_masked_to_last_at(_masked_parameters(url)))


def _masked_parameters(text: str) -> str:
    return _QUERY_SECRET.sub(rf"\g<1>{MASK}", text) if "=" in text else text


def _masked_line(line: str) -> str:
    """`line` with its logins masked. It takes linear time, because writers of intents can choose the text."""
    parts, at, last = list[str](), 0, line.rfind("@")
    while 0 <= (found := line.find("://", at)) < last - 2:
        begin = found + 3
        authority = _AUTHORITY.match(line, begin)
        within = begin if authority is None else authority.end()
        end = last if _PASSWORD_BEGINS.match(line, begin) else line.rfind("@", begin, within)
        is_login = end > begin
        parts += [line[at:begin], MASK if is_login else ""]
        at = end if is_login else begin
    return "".join([*parts, line[at:]])


def _masked_to_last_at(url: str) -> str:
    begin, end = url.find("://") + 3, url.rfind("@")
    return f"{url[:begin]}{MASK}{url[end:]}" if begin > 2 and ":" in url[begin : max(begin, end)] else url


class RootlineError(Exception):
    """The root of all errors: a stable `code`, and a message that names the object and the reason.

    The user and the password of a URL are masked in the message, so that it may be logged.
    """

    def __init__(self, code: str, message: str) -> None:
        message = masked_logins(message)
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __reduce__(self) -> tuple[type[RootlineError], tuple[str, str]]:
        return type(self), (self.code, self.message)


class Conflict(RootlineError):
    """Another writer was first: load the head and rebase onto it."""


class Fenced(RootlineError):
    """This process no longer owns the object: stop working on it."""


class Unavailable(RootlineError):
    """A store, log or cache cannot be reached: retry later."""


class OutcomeUnknown(RootlineError):
    """The request may or may not have been executed: read back before anything else."""


class Invalid(RootlineError):
    """The input breaks a rule: reject it with a verdict, and do not retry it unchanged."""


class Corrupt(RootlineError):
    """Stored bytes differ from those that were written: do not use them, and quarantine the table."""


class Internal(RootlineError):
    """An invariant of Rootline is violated: crash rather than commit."""
