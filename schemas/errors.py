"""One root of errors, seven categories by what the caller must do.

Owns: the categories, that a message shows no login. Does not own: the list of codes and their explanations
(`error_codes`).
Invariants: every error carries a stable code from `error_codes.CODES`; its message names the object and the reason.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"
_LOGIN: Final = re.compile(r"""(?<=://)(?:[^/\s:@]*:(?!\d{1,5}(?:[/\s'",;)\]]|$)).*|[^/\s]+)(?=@)""")
"""Up to the last @ where a password begins, which may contain anything; a port is none."""
_QUOTED_LOGIN: Final = re.compile(
    r"""(?P<quote>['"])(?P<before>[^'"\s]*?://)(?:(?!(?P=quote)).)*:(?:(?!(?P=quote)).)*@"""
)
_URL_LOGIN: Final = re.compile(r"(?<=://).*:.*(?=@)", re.DOTALL)


def masked_logins(text: str) -> str:
    """`text` with `user:password` of every URL in it masked, and more of it rather than less if a URL is not valid."""
    if "@" not in text:
        return text
    quoted = _QUOTED_LOGIN.sub(lambda found: f"{found['quote']}{found['before']}{MASK}@", text)
    return _LOGIN.sub(MASK, quoted)


def masked_login(url: str) -> str:
    """The same of a text that is one URL, or is meant to be."""
    return masked_logins(_URL_LOGIN.sub(MASK, url))


class RootlineError(Exception):
    """Any failure of Rootline: a stable `code`, and a message that names the object and the reason.

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
    """Someone else was first: load the head and rebase onto it."""


class Fenced(RootlineError):
    """This process no longer owns what it works on: stop working on it."""


class Unavailable(RootlineError):
    """A store, log or cache cannot be reached: try again later."""


class OutcomeUnknown(RootlineError):
    """The request may or may not have been carried out: read back before anything else."""


class Invalid(RootlineError):
    """The input breaks a rule: reject it with a verdict, do not try it again unchanged."""


class Corrupt(RootlineError):
    """Stored bytes are not what was written: refuse to answer from them, quarantine the table."""


class Internal(RootlineError):
    """A rule of our own is broken: crash rather than commit."""
