"""Settings of HTTP servers and of the REST catalog.

Owns: names, defaults and rules of `ROOTLINE_HTTP__*` and `ROOTLINE_CATALOG__*`, the TLS context. Does not own: tokens
and principals (`principals`), the address of each server (its own settings), access to the store (`ROOTLINE_S3__*`),
the paths that need a token (`serving`, `routes`).
Invariants: a secret is never printed. A certificate that cannot be used is refused before the port is opened. No client
gets the store's keys unless the catalog needs a token and lets each client use all of the store.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.catalog.rest.principals import BearerTokens, Principals, tokens_of
from rootline.read_settings import read_settings
from rootline.schemas.errors import Invalid

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
        description="The bearer token that engines send, which may do everything; none: anyone who can connect may "
        "read, and also write if the catalog listens on a loopback address.",
    )
    token_file: Path | None = Field(
        default=None,
        description="A file with one token a line, instead of `TOKEN`; re-read when it changes.",
    )
    principals_file: Path | None = Field(
        default=None,
        description="A TOML file of principals, each with the SHA-256 of its token, a role (`read`, `write` or "
        "`admin`) and namespaces, instead of `TOKEN` and of HTTP's token; re-read when it changes.",
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
        if self.principals_file is not None and (self.token is not None or self.token_file is not None):
            raise ValueError("give principals_file, or a token that may do everything, not both")
        if self.principals_file is not None and self.share_s3_keys:
            raise ValueError("share_s3_keys gives every principal the keys to all of the store: set it to false")
        if self.share_s3_keys and self.token is None and self.token_file is None:
            raise ValueError("share_s3_keys gives the store's keys to anyone who can connect: set a token as well")
        return self

    def tokens(self) -> BearerTokens:
        """The tokens, from the setting or the file.

        Raises:
            Invalid: `setting-invalid`, the file cannot be read or is empty.

        """
        return tokens_of(self.token, self.token_file)

    def principals(self) -> Principals | None:
        """The principals, if there is a file of them. Raises `Invalid` (`setting-invalid`): it cannot be used."""
        return None if self.principals_file is None else Principals.of_file(self.principals_file)


def catalog_settings() -> CatalogSettings:
    """The current settings.

    Raises:
        Invalid: `setting-invalid`, naming each invalid setting and its fault.
    """
    return read_settings(CatalogSettings, _CATALOG_PREFIX)
