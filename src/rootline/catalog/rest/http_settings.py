"""Settings of HTTP servers and of the REST catalog, and the bearer tokens that a server accepts.

Owns: names, defaults and rules of `ROOTLINE_HTTP__*` and `ROOTLINE_CATALOG__*`, the TLS context, reading and comparing
tokens, several of them while one replaces another. Does not own: the address of each server (its own settings), access
to the store (`ROOTLINE_S3__*`), the paths that need a token (`serving`, `routes`).
Invariants: a secret is never printed. A certificate that cannot be used is refused before the port is opened. A
comparison takes a time that reveals nothing about the token. A changed token file takes effect at the next request, and
an unreadable one keeps the known tokens. No client gets the store's keys unless the catalog needs a token.
"""

from __future__ import annotations

import hmac
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.read_settings import read_settings
from rootline.schemas.errors import Invalid


@dataclass(slots=True)
class BearerTokens:
    """Accepted bearer tokens. `fixed`: from a setting. `file`: one token a line. `tokens_of` creates it and reads the
    file.
    """

    fixed: tuple[str, ...] = field(default=(), repr=False)
    file: Path | None = None
    _known: tuple[str, ...] = field(default=(), repr=False)
    _seen: tuple[int, int] = (0, 0)

    @property
    def are_needed(self) -> bool:
        """Whether a token is required. Without any token, every request is allowed."""
        return bool(self.fixed or self.file is not None)

    def allow(self, authorization: str) -> bool:
        """Whether the raw header `Authorization` contains one of them."""
        scheme, _, given = authorization.partition(" ")
        presented = given.strip().encode("latin-1", errors="replace")  # headers are bytes
        same = [hmac.compare_digest(presented, token.encode()) for token in (*self.fixed, *self._of_file())]
        return scheme.lower() == "bearer" and any(same)

    def read(self) -> None:
        """Read the file. Raises `Invalid` (`setting-invalid`): it cannot be read, or contains no token."""
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
                structlog.get_logger().warning(
                    "the token file could not be re-read, so the known tokens stay valid",
                    action="tokens",
                    reason=str(error),
                )
        return self._known


def tokens_of(value: SecretStr | None, file: Path | None) -> BearerTokens:
    """The tokens of a setting and of a file. Raises `Invalid` (`setting-invalid`)."""
    tokens = BearerTokens(() if value is None else (value.get_secret_value(),), file)
    tokens.read()
    return tokens


_HTTP_PREFIX = "ROOTLINE_HTTP__"


class HttpSettings(BaseSettings):
    """Settings of every HTTP server. A file `rootline_http__…` in `ROOTLINE_SECRETS_DIR` also sets one."""

    model_config = SettingsConfigDict(env_prefix=_HTTP_PREFIX, extra="forbid", frozen=True)

    token: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="A bearer token for all but /healthz, /readyz and /metrics; the catalog also accepts its own.",
    )
    token_file: Path | None = Field(
        default=None,
        description="A file with one such token a line, instead of `TOKEN`; re-read when it changes, so that tokens "
        "can be replaced one after the other.",
    )
    tls_certificate_file: Path | None = Field(
        default=None, description="The server's certificate and its chain, PEM; with it, all of HTTP is HTTPS."
    )
    tls_key_file: Path | None = Field(
        default=None, description="The certificate's key, PEM, without a password; none: it is in the same file."
    )

    @model_validator(mode="after")
    def _one_of_each(self) -> HttpSettings:
        if self.token is not None and self.token_file is not None:
            raise ValueError("give token or token_file, not both")
        if self.tls_key_file is not None and self.tls_certificate_file is None:
            raise ValueError("tls_key_file needs tls_certificate_file: set both")
        return self

    def tokens(self) -> BearerTokens:
        """The tokens. Raises `Invalid` (`setting-invalid`)."""
        return tokens_of(self.token, self.token_file)

    def tls(self) -> ssl.SSLContext | None:
        """The server's TLS context, or `None` for plain HTTP. Raises `Invalid` (`setting-invalid`)."""
        if self.tls_certificate_file is None:
            return None
        key = self.tls_key_file or self.tls_certificate_file
        for name, path in (("tls_certificate_file", self.tls_certificate_file), ("tls_key_file", key)):
            try:
                path.open("rb").close()
            except OSError as error:
                raise Invalid("setting-invalid", f"{name} {path} cannot be read: {error.strerror}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls_certificate_file, key, password=_refuse_password)
        except (ssl.SSLError, _NeedsPassword) as error:
            reason = "the key has a password" if isinstance(error, _NeedsPassword) else error.reason or "no PEM"
            raise Invalid(
                "setting-invalid",
                f"tls_certificate_file {self.tls_certificate_file} and tls_key_file {key} cannot be used: {reason}; "
                "name a certificate and its own key, both PEM, the key without a password",
            ) from None
        return context


class _NeedsPassword(Exception):
    pass


def _refuse_password() -> str:
    raise _NeedsPassword


def http_settings() -> HttpSettings:
    """The current settings.

    Raises:
        Invalid: `setting-invalid`, naming each invalid setting and its fault.
    """
    return read_settings(HttpSettings, _HTTP_PREFIX)


_CATALOG_PREFIX = "ROOTLINE_CATALOG__"


class CatalogSettings(BaseSettings):
    """Settings of the REST catalog, read from environment variables `ROOTLINE_CATALOG__…`.

    A setting can also be the content of a file `rootline_catalog__…` in the folder `ROOTLINE_SECRETS_DIR`. A name with
    a unit ends in the unit.
    """

    model_config = SettingsConfigDict(env_prefix=_CATALOG_PREFIX, extra="forbid", frozen=True)

    http_host: str = Field(default="127.0.0.1", description="Address that `rootline catalog serve` listens on.")
    http_port: int = Field(
        default=8_181, ge=0, le=65_535, description="Port of `rootline catalog serve`; 0: the system picks one."
    )
    token: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="The bearer token that engines send; none: anyone who can connect may read.",
    )
    token_file: Path | None = Field(
        default=None,
        description="A file with one token a line, instead of `TOKEN`; re-read when it changes.",
    )
    share_s3_keys: bool = Field(
        default=False,
        description="Give the keys of `ROOTLINE_S3__` to every engine that has the token, so that it needs none.",
    )
    request_timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="After this time the response is 503; the export continues, and the next request can use it.",
    )
    commit_timeout_s: float = Field(
        default=55.0,
        gt=0,
        description="How long a request that writes waits for its verdict; then the response is 504, and the change "
        "may still be committed.",
    )

    @model_validator(mode="after")
    def _keys_lie_behind_a_token(self) -> CatalogSettings:
        if self.token is not None and self.token_file is not None:
            raise ValueError("give token or token_file, not both")
        if self.share_s3_keys and self.token is None and self.token_file is None:
            raise ValueError("share_s3_keys gives the store's keys to anyone who can connect: set a token as well")
        return self

    def tokens(self) -> BearerTokens:
        """The tokens, from the setting or the file.

        Raises:
            Invalid: `setting-invalid`, the file cannot be read or is empty.

        """
        return tokens_of(self.token, self.token_file)


def catalog_settings() -> CatalogSettings:
    """The current settings.

    Raises:
        Invalid: `setting-invalid`, naming each invalid setting and its fault.
    """
    return read_settings(CatalogSettings, _CATALOG_PREFIX)
