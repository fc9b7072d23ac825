"""The clients of the catalog and their rights: bearer tokens, and principals with a role and namespaces.

Owns: roles and their order, the file of principals, reading and comparing tokens, several of them while one replaces
another, re-reading a file that changed. Does not own: the names of settings (`http_settings`), the role that a request
needs (the routes).
Invariants: a role may do what every role below it may do. A comparison takes a time that reveals nothing about a token:
every known one is compared, whatever the others gave. A changed file takes effect at the next request, and a broken one
keeps what was known. The file of principals contains no token, only digests.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from rootline.catalog.rest.responses import Refusal
from rootline.library_log import library_logger
from rootline.schemas.bytes.record_headers import KEY_ID
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import namespace_name
from rootline.schemas.model_faults import fault_of_model

T = TypeVar("T")


class Role(IntEnum):
    """The rights of a client."""

    READ = 1
    """Read tables and views."""
    WRITE = 2
    """Also commit, create and drop."""
    ADMIN = 3
    """Also delete the files of a table, and register tables that others wrote."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A client that the catalog knows. `namespaces`: it may use these and all below them, or every one if empty."""

    name: str
    role: Role
    namespaces: tuple[str, ...] = ()

    def covers(self, namespace: str) -> bool:
        """Whether the principal may use this namespace."""
        return not self.namespaces or f"{namespace}.".startswith(tuple(f"{each}." for each in self.namespaces))

    def sees(self, namespace: str) -> bool:
        """Whether the principal may use this namespace, or one below it. Lists show these."""
        return self.covers(namespace) or any(each.startswith(f"{namespace}.") for each in self.namespaces)

    def check(self, needed: Role, namespace: str | None = None) -> None:
        """Check that the principal has the role `needed` in `namespace`. `None`: in any.

        Raises:
            Refusal: it has not.
        """
        role = needed.name.lower()
        if self.role < needed:
            raise _forbidden(f"{self.name} has the role {self.role.name.lower()}, and this request needs {role}")
        if namespace is not None and not self.covers(namespace):
            raise _forbidden(f"{self.name} has no role in the namespace {namespace[:80]!r}; this request needs {role}")

    def check_list(self, parent: str) -> None:
        """Check that the principal may list the namespaces below `parent`. Raises `Refusal`: it may not."""
        if parent and not self.sees(parent):
            self.check(Role.READ, parent)

    def check_everywhere(self, needed: Role) -> None:
        """Check that the principal has the role `needed` in all namespaces. Raises `Refusal`: it has not."""
        self.check(needed)
        if self.namespaces:
            role = needed.name.lower()
            raise _forbidden(f"{self.name} has its role in some namespaces; this request needs {role} in all of them")


ANYONE: Final = Principal("anyone", Role.ADMIN)
"""Every client of a catalog without a file of principals, if it has the token, should there be one."""


def _forbidden(reason: str) -> Refusal:
    return Refusal(403, "ForbiddenException", f"{reason}; change its entry in the catalog's file of principals")


class WatchedFile(Generic[T]):
    """The content of a file, re-read when the file changes. `setting`: its name in errors.

    The constructor raises `Invalid` (`setting-invalid`): the file cannot be read or used.
    """

    def __init__(self, path: Path, setting: str, parse: Callable[[str], T]) -> None:
        self._path, self._setting, self._parse = path, setting, parse
        self._content, self._seen = self._read()

    def content(self) -> T:
        """The newest content that can be used."""
        try:
            if self._stamp() != self._seen:
                self._content, self._seen = self._read()
        except (OSError, Invalid) as error:
            library_logger("rootline.catalog").warning(
                f"{self._setting} could not be re-read, so its known content stays valid",
                action="tokens",
                reason=str(error),
            )
        return self._content

    def _stamp(self) -> tuple[int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size

    def _read(self) -> tuple[T, tuple[int, int]]:
        try:
            stamp = self._stamp()
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise self._refused(f"cannot be read: {reason}") from None
        try:
            return self._parse(text), stamp
        except (ValueError, RecursionError) as error:
            raise self._refused(str(error)) from None

    def _refused(self, reason: str) -> Invalid:
        return Invalid("setting-invalid", f"{self._setting} {self._path} {reason}")


@dataclass(frozen=True, slots=True)
class BearerTokens:
    """Accepted bearer tokens. `fixed`: from a setting. `file`: one token a line. `tokens_of` creates it."""

    fixed: tuple[str, ...] = field(default=(), repr=False)
    file: WatchedFile[tuple[str, ...]] | None = field(default=None, repr=False)

    @property
    def are_needed(self) -> bool:
        """Whether a token is required. Without any token, every request is allowed."""
        return bool(self.fixed or self.file is not None)

    def allow(self, authorization: str) -> bool:
        """Whether the raw header `Authorization` contains one of them."""
        presented = _presented(authorization)
        known = (*self.fixed, *(() if self.file is None else self.file.content()))
        same = [hmac.compare_digest(presented, token.encode()) for token in known]
        return _is_bearer(authorization) and any(same)


def tokens_of(value: SecretStr | None, file: Path | None) -> BearerTokens:
    """The tokens of a setting and of a file. Raises `Invalid` (`setting-invalid`)."""
    fixed = () if value is None else (value.get_secret_value(),)
    return BearerTokens(fixed, None if file is None else WatchedFile(file, "token_file", _lines))


def _lines(text: str) -> tuple[str, ...]:
    tokens = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not tokens:
        raise ValueError("is empty; write a token on each line of it")
    return tokens


def _is_bearer(authorization: str) -> bool:
    return authorization.partition(" ")[0].lower() == "bearer"


def _presented(authorization: str) -> bytes:
    return authorization.partition(" ")[2].strip().encode("latin-1", errors="replace")  # headers are bytes


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    token_sha256: Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]
    role: Literal["read", "write", "admin"]
    namespaces: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @field_validator("namespaces")
    @classmethod
    def _are_names(cls, namespaces: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for namespace in namespaces or ():
            try:
                namespace_name(namespace)
            except Invalid as error:
                raise ValueError(error.message) from None
        return namespaces


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    principals: Annotated[dict[str, _Entry], Field(min_length=1)]

    @field_validator("principals")
    @classmethod
    def _are_distinct(cls, principals: dict[str, _Entry]) -> dict[str, _Entry]:
        known: dict[str, str] = {}
        for name, entry in principals.items():
            if not re.fullmatch(KEY_ID, name):
                raise ValueError(f"{name!r:.80}: a name has up to 64 letters, digits, dots, dashes and underscores")
            other = known.setdefault(entry.token_sha256.lower(), name)
            if other != name:
                raise ValueError(f"{other} and {name} have one token: give each its own")
        return principals


@dataclass(frozen=True, slots=True)
class Principals:
    """The principals of a file, which is re-read when it changes."""

    file: WatchedFile[Mapping[bytes, Principal]] = field(repr=False)

    @staticmethod
    def of_file(path: Path) -> Principals:
        """The principals of the file at `path`. Raises `Invalid` (`setting-invalid`)."""
        return Principals(WatchedFile(path, "principals_file", _principals))

    def find(self, authorization: str) -> Principal | None:
        """The principal whose token the raw header `Authorization` contains, or `None`."""
        digest = hashlib.sha256(_presented(authorization)).digest()
        found = None
        for known, principal in self.file.content().items():  # all of them, so that the time reveals nothing
            found = principal if hmac.compare_digest(digest, known) else found
        return found if _is_bearer(authorization) else None


def _principals(text: str) -> Mapping[bytes, Principal]:
    try:
        given = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from None
    except ValidationError as error:
        raise ValueError(f"cannot be used: {fault_of_model(error)}") from None
    return {
        bytes.fromhex(entry.token_sha256): Principal(name, Role[entry.role.upper()], entry.namespaces or ())
        for name, entry in given.principals.items()
    }
