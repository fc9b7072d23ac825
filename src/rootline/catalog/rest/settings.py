"""The REST catalog's settings.

Owns: names, defaults, units and bounds of `ROOTLINE_CATALOG__*`. Does not own: how the store is reached
(`ROOTLINE_S3__*`), whether a coordinator serves the catalog (`ROOTLINE_COORDINATOR__HTTP_CATALOG`).
Invariants: a secret is never printed; no one is given the store's keys unless the catalog needs a token.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.catalog.rest.bearer_tokens import BearerTokens, tokens_of
from rootline.read_settings import read_settings

_PREFIX = "ROOTLINE_CATALOG__"


class CatalogSettings(BaseSettings):
    """A unit is the last part of its name. A file `rootline_catalog__…` in `ROOTLINE_SECRETS_DIR` sets it as well."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True)

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
        description="A file with one token a line, instead of `TOKEN`; read again when it changes.",
    )
    share_s3_keys: bool = Field(
        default=False,
        description="Give the keys of `ROOTLINE_S3__` to every engine that has the token, so that it needs none.",
    )
    request_timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="After this time the answer is 503; the export goes on, and is there for the next request.",
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
    """The settings in force.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.

    """
    return read_settings(CatalogSettings, _PREFIX)
