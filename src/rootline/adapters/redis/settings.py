"""How Redis (or Valkey) is reached, and how patient the queue is.

Owns: names, defaults and units of `ROOTLINE_REDIS__*`. Does not own: what is kept there (`head_hints`, `task_queue`).
Invariants: without a URL nothing is kept and nothing is asked; a password is never printed.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from rootline.adapters.secret_files import is_given, read_secret

_URL = re.compile(r"(?:redis|rediss|unix)://\S+\Z")


class RedisSettings(BaseModel):
    """The unit is the last part of each name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=None,
        repr=False,  # it may have a password in it
        description="`redis://host:port/0`, or `rediss://` with TLS; none: every process works for itself.",
    )
    username: str | None = Field(default=None, description="The user of the login; none: the server's default user.")
    password: SecretStr | None = Field(default=None, description="The password.")
    password_file: Path | None = Field(default=None, description="A file that contains the password instead.")
    prefix: str = Field(
        default="rootline",
        pattern=r"^[A-Za-z0-9_.:-]{1,100}$",
        description="How every key begins; the warehouse's digest follows.",
    )
    timeout_ms: float = Field(default=75.0, gt=0, le=5_000, description="Deadline of a call.")
    silence_s: float = Field(
        default=5.0, gt=0, description="How long no one asks a Redis that failed to answer three times in a row."
    )
    lease_s: float = Field(
        default=60.0, ge=1, description="A task is another worker's when the one that took it is silent this long."
    )
    attempts_max: int = Field(default=5, ge=1, description="A task that so many workers took and did not end is dead.")
    dead_task_s: float = Field(
        default=3600.0, ge=0, description="How long a dead task is left alone, unless an operator tries it again."
    )

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, url: str | None) -> str | None:
        if url is not None and not _URL.match(url):
            raise ValueError("write redis://host:port/0, rediss://host:port/0 or unix:///path")
        place = (url or "").partition("://")[2].partition("?")[0]
        if not (url or "").startswith("unix:") and "@" in place.partition("/")[2]:
            raise ValueError("a slash before the @: write it as %2F in a password, or set the password by itself")
        return url

    @model_validator(mode="after")
    def _one_password(self) -> RedisSettings:
        is_given("password", self.password, self.password_file)
        return self

    def secret(self) -> str | None:
        """The password, from the setting or its file. Raises `Invalid` (`setting-invalid`): it cannot be read."""
        return read_secret("ROOTLINE_REDIS__PASSWORD_FILE", self.password, self.password_file)
