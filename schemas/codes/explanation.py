"""An error code as people read it: the cause, a safe action, and what not to do.

Owns: the text behind `rootline explain` and the page of each code, and what holds for every code of a category. Does
not own: the codes (`error_codes`), how a terminal shows the text.
Invariants: no code is without any of the three: what a code does not say for itself, its category says; the page of a
code and `rootline explain` say the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rootline.schemas.codes.error_code import ErrorCode


@dataclass(frozen=True, slots=True)
class Category:
    """What holds for every code of a category: what it means for the caller, and what not to do."""

    says: str
    do_not: str


CATEGORIES: Final[Mapping[str, Category]] = MappingProxyType(
    {
        "Conflict": Category("someone else was first", "Do not repeat it unchanged: look at what is there now."),
        "Fenced": Category(
            "this process must stop working on it",
            "Do not start the process again before the cause is gone: it would stop again.",
        ),
        "Unavailable": Category(
            "a service cannot be reached now; nothing is lost",
            "Do not delete or create anything again because of it: what was stored is still there.",
        ),
        "OutcomeUnknown": Category(
            "it may have been carried out, or not",
            "Do not take it for a failure: look first whether it was carried out.",
        ),
        "Invalid": Category(
            "what was asked for breaks a rule; nothing was changed",
            "Do not send the same again unchanged: the answer stays the same.",
        ),
        "Corrupt": Category(
            "stored bytes are not what was written; the table commits nothing more",
            "Do not delete or overwrite anything: other objects may need it, and so does the search for the cause.",
        ),
        "Internal": Category(
            "a rule of Rootline's own is broken; nothing was committed",
            "Do not work around it: it may be the last thing that keeps wrong data out.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A code, its category in words, and the three things that one wants to know."""

    code: str
    category: str
    cause: str
    do: str
    do_not: str

    def lines(self) -> tuple[str, ...]:
        """For a terminal."""
        return (
            f"{self.code} ({self.category}: {CATEGORIES[self.category].says})",
            f"  cause:  {self.cause}",
            f"  do:     {self.do}",
            f"  do not: {self.do_not}",
        )

    def page(self) -> str:
        """In Markdown."""
        return (
            f"# `{self.code}`\n\n"
            f"{self.category}: {CATEGORIES[self.category].says}.\n\n"
            f"## Cause\n\n{self.cause}\n\n"
            f"## What to do\n\n{self.do}\n\n"
            f"## What not to do\n\n{self.do_not}\n\n"
            f"[All codes](README.md); `rootline explain {self.code}` says the same.\n"
        )


def explained(code: ErrorCode) -> Explanation:
    """The explanation of a code."""
    do_not = code.do_not or CATEGORIES[code.category].do_not
    return Explanation(code.code, code.category, code.meaning, code.do, do_not)
