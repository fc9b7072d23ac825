"""How an S3 store is reached.

Owns: names, defaults and units of `ROOTLINE_S3__*`. Does not own: the warehouse's bucket and prefix (its URL).
Invariants: a secret is never printed; without keys the vendor's own chain of credentials is used (environment, role).
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from rootline.adapters.secret_files import is_given, read_secret


class S3Settings(BaseModel):
    """The unit is the last part of each name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str | None = Field(default=None, repr=False, description="URL of the store; none: Amazon S3.")
    region: str = Field(default="us-east-1", description="The region that requests are signed for.")
    access_key_id: str | None = Field(
        default=None,
        repr=False,
        description="Access key; none: the credentials that Amazon's library finds by itself.",
    )
    secret_access_key: SecretStr | None = Field(default=None, description="The secret of `access_key_id`.")
    secret_access_key_file: Path | None = Field(default=None, description="A file that contains the secret instead.")
    session_token: SecretStr | None = Field(default=None, description="The token of temporary credentials.")
    ca_bundle: Path | None = Field(default=None, description="A file of certificates to trust instead of the system's.")
    connect_timeout_s: float = Field(default=3.0, gt=0, description="How long connecting may take.")
    read_timeout_s: float = Field(default=10.0, gt=0, description="How long the store may send nothing.")
    request_timeout_s: float = Field(default=30.0, gt=0, description="Deadline of a whole request.")
    connections_max: int = Field(default=64, ge=1, description="Open connections of one process.")

    @field_validator("endpoint")
    @classmethod
    def _has_no_login(cls, endpoint: str | None) -> str | None:
        # a request carries a signature or a login, never both: such a URL never worked, and errors would show it
        if endpoint is not None and "@" in endpoint:  # also behind a slash: of a password that has one
            raise ValueError("take user and password out of the URL: requests are signed with access_key_id")
        return endpoint

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> S3Settings:
        has_secret = is_given("secret_access_key", self.secret_access_key, self.secret_access_key_file)
        if has_secret != (self.access_key_id is not None):
            raise ValueError("give access_key_id and its secret together, or neither")
        return self

    def secret(self) -> str | None:
        """The secret access key, from the setting or its file.

        Raises:
            Invalid: `setting-invalid`, the file cannot be read.

        """
        file = self.secret_access_key_file
        return read_secret("ROOTLINE_S3__SECRET_ACCESS_KEY_FILE", self.secret_access_key, file)
