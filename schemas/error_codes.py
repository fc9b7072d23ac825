"""The error codes, each with its cause, a safe action, and what not to do.

Owns: loading the codes of `codes/*.toml` and checking their form, the meaning of each category, the text of
`rootline explain` and of each code's page. Does not own: the use of a code, the error classes (`errors`), the form of
a terminal.
Invariants: files are read at the first access to a code. A code belongs to one category. Its page and `rootline
explain` use the same words.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

FILES: Final = ("intents", "definitions", "stored_bytes", "services_and_use")
"""The data files below `codes/`, in the order of `rootline explain`."""
_CODE: Final = re.compile(r"[a-z]+(?:-[a-z]+)*")
_REQUIRED: Final = frozenset({"category", "meaning", "do"})
_ALLOWED: Final = _REQUIRED | {"do_not"}


@dataclass(frozen=True, slots=True)
class Category:
    """The shared parts of a category's codes: what they mean for the caller, and what not to do."""

    says: str
    do_not: str


CATEGORIES: Final[Mapping[str, Category]] = MappingProxyType(
    {
        "Conflict": Category("another writer was first", "Do not repeat it unchanged: read the current state first."),
        "Fenced": Category(
            "this process must stop working on it",
            "Do not restart the process before the cause is removed: it would stop again.",
        ),
        "Unavailable": Category(
            "a service cannot be reached now; nothing is lost",
            "Do not delete or recreate anything because of it: stored data is still there.",
        ),
        "OutcomeUnknown": Category(
            "the request may or may not have been executed",
            "Do not treat it as a failure: first check whether it was executed.",
        ),
        "Invalid": Category(
            "the request breaks a rule; nothing was changed",
            "Do not resend it unchanged: it would be refused again.",
        ),
        "Corrupt": Category(
            "stored bytes differ from those that were written; the table commits nothing more",
            "Do not delete or overwrite anything: other objects and the search for the cause may need it.",
        ),
        "Internal": Category(
            "an invariant of Rootline is violated; nothing was committed",
            "Do not work around it: it may be the last protection against wrong data.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code: its category (the name of an error class), meaning, what to do, and what not to do."""

    code: str
    category: str
    meaning: str
    do: str
    do_not: str = ""

    @property
    def avoid(self) -> str:
        """Advice against the usual mistake: the code's own, or its category's."""
        return self.do_not or CATEGORIES[self.category].do_not

    def lines(self) -> tuple[str, ...]:
        """The explanation on a terminal."""
        return (
            f"{self.code} ({self.category}: {CATEGORIES[self.category].says})",
            f"  cause:  {self.meaning}",
            f"  do:     {self.do}",
            f"  do not: {self.avoid}",
        )

    def page(self) -> str:
        """The explanation as a page in Markdown."""
        return (
            f"# `{self.code}`\n\n"
            f"{self.category}: {CATEGORIES[self.category].says}.\n\n"
            f"## Cause\n\n{self.meaning}\n\n"
            f"## What to do\n\n{self.do}\n\n"
            f"## What not to do\n\n{self.avoid}\n\n"
            f"[All codes](README.md); `rootline explain {self.code}` prints the same text.\n"
        )


class _Codes(Mapping[str, ErrorCode]):
    """A read-only view of the codes that reads their files at the first access."""

    def __getitem__(self, code: str) -> ErrorCode:
        return _shipped_codes()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(_shipped_codes())

    def __len__(self) -> int:
        return len(_shipped_codes())


CODES: Final[Mapping[str, ErrorCode]] = _Codes()
"""Every code."""


@cache
def _shipped_codes() -> Mapping[str, ErrorCode]:
    folder = files("rootline.schemas").joinpath("codes")
    return codes_of({name: folder.joinpath(f"{name}.toml").read_text("utf-8") for name in FILES})


def codes_of(texts: Mapping[str, str]) -> Mapping[str, ErrorCode]:
    """Parse the error codes in TOML files. `texts`: file name → text. The order of the files is kept.

    Raises `ValueError` for a code with missing or invalid fields, or that is listed twice.
    """
    found: dict[str, ErrorCode] = {}
    for name, text in texts.items():
        for code, fields in tomllib.loads(text).items():
            place = f"codes/{name}.toml, {code}"
            if code in found:
                raise ValueError(f"{place}: an earlier file has the code too. Remove one of the two")
            found[code] = _checked(place, code, fields)
    return MappingProxyType(found)


def _checked(place: str, code: str, fields: Any) -> ErrorCode:
    if not _CODE.fullmatch(code):
        raise ValueError(f"{place}: a code is lower-case words with '-' between them. Rename it")
    if not isinstance(fields, dict) or not _REQUIRED <= fields.keys() <= _ALLOWED:
        raise ValueError(f"{place}: a code has 'category', 'meaning', 'do', and perhaps 'do_not'. Correct its keys")
    if fields["category"] not in CATEGORIES:
        raise ValueError(f"{place}: there is no category {fields['category']!r}. Use one of {', '.join(CATEGORIES)}")
    for key in fields.keys() - {"category"}:
        if not (isinstance(fields[key], str) and fields[key].endswith(".")):
            raise ValueError(f"{place}: '{key}' is not a sentence. End it with a full stop")
    return ErrorCode(code, **fields)
