"""One root of errors, seven categories by what the caller must do.

Owns: the categories, that a message shows no login. Does not own: the list of codes and their explanations
(`error_codes`).
Invariants: every error carries a stable code from `error_codes.CODES`; its message names the object and the reason.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"
_PASSWORD_BEGINS: Final = re.compile(r"""[^/\s:@]*:(?!\d{1,5}(?:[/\s'",;)\]]|$))""")
"""After ://, unless it is a port."""
_AUTHORITY: Final = re.compile(r"[^/\s]*")
_QUOTED_URL: Final = re.compile(r"""'[^'"\s]*?://[^']*'|"[^'"\s]*?://[^"]*\"""")
_QUERY_SECRET: Final = re.compile(
    r"([?&][\w-]*(?:password|passwd|secret|security-token|signature|credential)[\w-]*=)[^&#\s'\"]+", re.IGNORECASE
)


def masked_logins(text: str) -> str:
    """`text` with `user:password` of every URL in it masked, and more of it rather than less if a URL is not valid.

    So are secrets that a URL has as parameters.
    """
    text = _masked_parameters(text)
    if "@" not in text:
        return text
    text = _QUOTED_URL.sub(lambda found: _masked_to_last_at(found[0]), text)
    return "\n".join(map(_masked_line, text.split("\n")))


def masked_login(url: str) -> str:
    """The same of a text that is one URL, or is meant to be."""
    return masked_logins(_masked_to_last_at(_masked_parameters(url)))


def _masked_parameters(text: str) -> str:
    return _QUERY_SECRET.sub(rf"\g<1>{MASK}", text) if "=" in text else text


def _masked_line(line: str) -> str:
    """In a time that grows with the line alone: who writes intents may have a say in it."""
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
