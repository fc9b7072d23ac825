"""Settings of every HTTP server: coordinator, worker, `rootline up`, catalog.

Owns: names and rules of `ROOTLINE_HTTP__*`, the TLS context. Does not own: where each server listens (its own
settings), the catalog's own token (`settings`).
Invariants: a secret is never printed; a certificate that cannot be used is refused before the port is opened.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.catalog.rest.bearer_tokens import BearerTokens, tokens_of
from rootline.read_settings import read_settings
from rootline.schemas.errors import Invalid

_PREFIX = "ROOTLINE_HTTP__"


class HttpSettings(BaseSettings):
    """A file `rootline_http__…` in `ROOTLINE_SECRETS_DIR` sets it as well."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True)

    token: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="A bearer token for all but /healthz, /readyz and /metrics; the catalog takes its own as well.",
    )
    token_file: Path | None = Field(
        default=None,
        description="A file with one such token a line, instead of `TOKEN`; read again when it changes, so that tokens "
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
            raise ValueError("tls_key_file is of no use without tls_certificate_file")
        return self

    def tokens(self) -> BearerTokens:
        """The tokens. Raises `Invalid` (`setting-invalid`)."""
        return tokens_of(self.token, self.token_file)

    def tls(self) -> ssl.SSLContext | None:
        """What the server speaks TLS with; `None`: plain HTTP. Raises `Invalid` (`setting-invalid`)."""
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
    """The settings in force.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.

    """
    return read_settings(HttpSettings, _PREFIX)
