"""The bearer tokens that a server takes: several while one takes the place of another.

Owns: reading them from a setting or a file, comparing. Does not own: which paths need one (`serving`, `routes`).
Invariants: a token is compared in a time that says nothing about it; a changed file counts at the next request, and
one that cannot be read any more leaves the tokens that were known.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import SecretStr

from rootline.schemas.errors import Invalid


@dataclass(slots=True)
class BearerTokens:
    """`fixed`: from a setting; `file`: one token a line. Made by `tokens_of`, which has read the file once."""

    fixed: tuple[str, ...] = field(default=(), repr=False)
    file: Path | None = None
    _known: tuple[str, ...] = field(default=(), repr=False)
    _seen: tuple[int, int] = (0, 0)

    @property
    def are_needed(self) -> bool:
        """Whether there is any; without one, anyone may ask."""
        return bool(self.fixed or self.file is not None)

    def allow(self, authorization: str) -> bool:
        """Whether the header `Authorization`, as it came, names one of them."""
        scheme, _, given = authorization.partition(" ")
        said = given.strip().encode("latin-1", errors="replace")  # headers are bytes
        same = [hmac.compare_digest(said, token.encode()) for token in (*self.fixed, *self._of_file())]
        return scheme.lower() == "bearer" and any(same)

    def read(self) -> None:
        """Read the file. Raises `Invalid` (`setting-invalid`): it cannot be read, or holds no token."""
        if self.file is None:
            return
        try:
            stat = self.file.stat()
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise Invalid("setting-invalid", f"token_file {self.file} cannot be read: {reason}") from None
        tokens = tuple(line.strip() for line in lines if line.strip())
        if not tokens:
            raise Invalid("setting-invalid", f"token_file {self.file} is empty; write a token on each line of it")
        self._known, self._seen = tokens, (stat.st_mtime_ns, stat.st_size)

    def _of_file(self) -> tuple[str, ...]:
        if self.file is not None:
            try:
                stat = self.file.stat()
                if (stat.st_mtime_ns, stat.st_size) != self._seen:
                    self.read()
            except (OSError, Invalid) as error:
                structlog.get_logger().warning("tokens not read again", action="tokens", reason=str(error))
        return self._known


def tokens_of(value: SecretStr | None, file: Path | None) -> BearerTokens:
    """The tokens of a setting and of a file. Raises `Invalid` (`setting-invalid`)."""
    tokens = BearerTokens(() if value is None else (value.get_secret_value(),), file)
    tokens.read()
    return tokens
