"""The settings of stores, logs and caches: from the environment and from a folder of secrets.

Owns: names, defaults and units of `ROOTLINE_S3__*`, `ROOTLINE_REDIS__*`, `ROOTLINE_KAFKA__*` and
`ROOTLINE_EMBEDDED_LOG__*`, the rules for secrets in files, the order of the sources. Does not own: creating clients
(the adapters), bucket, prefix and topic of a lake (its URLs, `open`).
Invariants: A secret is never printed. The environment overrides the folder. A file in the folder is named like its
setting in lower case (`rootline_s3__secret_access_key`), or contains all settings of a vendor as JSON (`rootline_s3`).
An error names the setting and never its value. An incomplete login or certificate is refused. Reading settings imports
no vendor's library and connects to nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from rootline.read_settings import read_settings
from rootline.schemas.bytes.record_headers import KEY_ID, SECRET_BYTES_MIN
from rootline.schemas.errors import Invalid
from rootline.schemas.intent_rules import DEFAULT_LIMITS

if TYPE_CHECKING:
    from rootline.adapters.sqlite.log_pruning import LogRetention


def is_given(name: str, value: SecretStr | None, file: Path | None) -> bool:
    """Whether there is a secret in the setting `name` or in the file of `name`_file.

    Raises:
        ValueError: in both. Pydantic reports it to the user.
    """
    if value is not None and file is not None:
        raise ValueError(f"give {name} or {name}_file, not both")
    return value is not None or file is not None


def read_secret(variable: str, value: SecretStr | None, file: Path | None) -> str | None:
    """Read the secret, without surrounding white space in its file, or return `None` without one. Blocks.

    Args:
        variable: the environment variable that names the file.
        value: the setting.
        file: the file instead.

    Raises:
        Invalid: `setting-invalid`, the file cannot be read.
    """
    if file is None:
        return None if value is None else value.get_secret_value()
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        advice = "name a text file that the user of this process may read"
        raise Invalid("setting-invalid", f"{variable}: {file} cannot be read: {reason}: {advice}") from None


class S3Settings(BaseModel):
    """The settings of an S3 store. Names end with their unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str | None = Field(default=None, repr=False, description="URL of the store. None: Amazon S3.")
    region: str = Field(default="us-east-1", description="The region that requests are signed for.")
    access_key_id: str | None = Field(
        default=None,
        repr=False,
        description="Access key. None: the credentials that Amazon's library finds.",
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
    def _is_url_without_login(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not endpoint.lower().startswith(("http://", "https://")):
            raise ValueError("write a URL: http://host:port or https://host")
        # a request has a signature or a login, never both: such a URL never works, and errors would show the login
        if endpoint is not None and "@" in endpoint:  # also after a slash, which may be part of a password
            raise ValueError("remove user and password from the URL: requests are signed with access_key_id")
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


_URL = re.compile(r"(?:redis|rediss|unix)://\S+\Z")


class RedisSettings(BaseModel):
    """The settings of the shared Redis. Names end with their unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=None,
        repr=False,  # it may contain a password
        description="`redis://host:port/0`, or `rediss://` with TLS. None: processes share nothing through Redis.",
    )
    username: str | None = Field(default=None, description="The user of the login. None: the server's default user.")
    password: SecretStr | None = Field(default=None, description="The password.")
    password_file: Path | None = Field(default=None, description="A file that contains the password instead.")
    prefix: str = Field(
        default="rootline",
        pattern=r"^[A-Za-z0-9_.:-]{1,100}$",
        description="The prefix of every key. The warehouse's digest follows.",
    )
    timeout_ms: float = Field(default=75.0, gt=0, le=5_000, description="Deadline of a call.")
    silence_s: float = Field(
        default=5.0, gt=0, description="How long no call is sent after three calls in a row without an answer."
    )
    lease_s: float = Field(
        default=60.0, ge=1, description="How long a worker may fail to renew a task before another worker takes it."
    )
    attempts_max: int = Field(default=5, ge=1, description="A task that so many workers failed to finish is dead.")
    dead_task_s: float = Field(
        default=3600.0, ge=0, description="How long a dead task is not retried, unless by an operator."
    )

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, url: str | None) -> str | None:
        if url is not None and not _URL.match(url):
            raise ValueError("write redis://host:port/0, rediss://host:port/0 or unix:///path")
        place = (url or "").partition("://")[2].partition("?")[0]
        if not (url or "").startswith("unix:") and "@" in place.partition("/")[2]:
            raise ValueError("a slash before the @: write it as %2F in a password, or set the password separately")
        return url

    @model_validator(mode="after")
    def _one_password(self) -> RedisSettings:
        is_given("password", self.password, self.password_file)
        return self

    def secret(self) -> str | None:
        """The password, from the setting or its file. Raises `Invalid` (`setting-invalid`) if it cannot be read."""
        return read_secret("ROOTLINE_REDIS__PASSWORD_FILE", self.password, self.password_file)


_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s,:/@\[\]]+):\d{1,5}")
_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}$"
_FORM: Final = "kafka://host:port or kafka://host:port,host:port; login and topics are settings (ROOTLINE_KAFKA__…)"


class KafkaSettings(BaseModel):
    """The settings of a log on Kafka. Names end with their unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str | None = Field(
        default=None, description="The brokers, host:port,host:port. Those in a kafka:// URL are used instead."
    )
    intents_topic: str = Field(
        default="rootline.intents", pattern=_TOPIC, description="The topic that writers publish to."
    )
    verdicts_topic: str = Field(
        default="rootline.verdicts", pattern=_TOPIC, description="The topic of the coordinators' verdicts."
    )
    dead_letters_topic: str = Field(
        default="rootline.dead-letters",
        pattern=_TOPIC,
        description="The topic of rejected records, with their original bytes.",
    )
    frontiers_topic: str = Field(
        default="rootline.frontiers",
        pattern=_TOPIC,
        description="The topic that records how far each partition is decided, even after the group's offsets expired.",
    )
    parked_topic: str = Field(
        default="rootline.parked",
        pattern=_TOPIC,
        description="The topic of undecided records of parked tables. Retention must not remove them.",
    )
    group_id: str = Field(default="rootline", min_length=1, description="The consumer group of the coordinators.")
    group_instance_id: str | None = Field(
        default=None,
        min_length=1,
        description="A name that only this coordinator has, the same after a restart: its partitions then wait "
        "`session_timeout_s` for its return, and do not move twice. Without a name they move immediately.",
    )
    session_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="A coordinator that sends nothing for this long loses its partitions to the others. Brokers allow "
        "6 to 1800 by default.",
    )
    rebalance_deadline_s: float = Field(
        default=10.0,
        gt=0,
        description="How long a coordinator may take to finish commits in flight before its partitions move to others. "
        "One deadline covers all steps.",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="How to connect: SSL encrypts, SASL logs in."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="SCRAM-SHA-512", description="The method of the login."
    )
    sasl_username: str | None = Field(default=None, description="The user of the login. Needs a password.")
    sasl_password: SecretStr | None = Field(default=None, description="The password of `sasl_username`.")
    sasl_password_file: Path | None = Field(default=None, description="A file that contains the password instead.")
    tls_ca_file: Path | None = Field(
        default=None, description="A file of certificates to trust instead of the system's."
    )
    tls_certificate_file: Path | None = Field(default=None, description="A file with this client's own certificate.")
    tls_key_file: Path | None = Field(default=None, description="A file with the key of `tls_certificate_file`.")
    tls_key_password_file: Path | None = Field(
        default=None, description="A file that contains the password of the key."
    )
    signing_key_id: str | None = Field(
        default=None, pattern=KEY_ID, description="The id of the key that signs every intent of this process."
    )
    signing_key_file: Path | None = Field(
        default=None, description="A file with the secret of `signing_key_id`, 32 bytes of text or more."
    )
    request_timeout_s: float = Field(default=10.0, gt=0, description="Deadline of one request to a broker.")
    delivery_timeout_s: float = Field(default=30.0, gt=0, description="Deadline of publishing records durably.")
    linger_ms: int = Field(default=0, ge=0, le=1_000, description="How long to wait for more records before a request.")
    batch_bytes: int = Field(default=262_144, ge=1_024, le=900_000, description="The largest batch of records.")
    intent_bytes_max: int = Field(
        default=DEFAULT_LIMITS.max_bytes, ge=1_024, description="The largest intent that is published, with headers."
    )
    intents_retention_min_hours: int = Field(
        default=168, ge=1, description="An intents topic that keeps records for less time is refused."
    )
    identity_max_age_s: float = Field(
        default=30.0,
        gt=0,
        description="How long a writer or a coordinator assumes that the topic was not created again.",
    )
    late_verdicts_bytes: int = Field(
        default=8_388_608, ge=0, description="Memory of a writer for verdicts that arrive before they are waited for."
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers_have_ports(cls, servers: str | None) -> str | None:
        if servers is None:
            return None
        parts = [part.strip() for part in servers.split(",")]
        for part in parts:
            if not _SERVER.fullmatch(part):
                shown = "" if "@" in part else f"{part!r}: "  # a login is never shown
                raise ValueError(f"{shown}write host:port; the login has separate settings")
        return ",".join(parts)

    @model_validator(mode="after")
    def _logins_are_whole(self) -> KafkaSettings:
        has_password = is_given("sasl_password", self.sasl_password, self.sasl_password_file)
        if has_password != (self.sasl_username is not None):
            raise ValueError("give sasl_username and its password together, or neither")
        if self.logs_in and not has_password:
            raise ValueError(f"security_protocol {self.security_protocol} needs sasl_username and its password")
        if has_password and not self.logs_in:
            raise ValueError("sasl_username is given, so security_protocol must be SASL_SSL or SASL_PLAINTEXT")
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("give tls_certificate_file and tls_key_file together, or neither")
        if not self.encrypts and (self.tls_ca_file or self.tls_certificate_file):
            raise ValueError("a tls_ file is given, so security_protocol must be SSL or SASL_SSL")
        return self

    @model_validator(mode="after")
    def _keys_are_whole(self) -> KafkaSettings:
        if (self.signing_key_id is None) != (self.signing_key_file is None):
            raise ValueError("give signing_key_id and signing_key_file together, or neither")
        return self

    @property
    def logs_in(self) -> bool:
        """Whether connections carry a login."""
        return self.security_protocol.startswith("SASL_")

    @property
    def encrypts(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def url(self) -> str:
        """The URL by which error messages and log lines name this log."""
        return f"kafka://{self.bootstrap_servers}"

    def servers(self) -> str:
        """The brokers. Raises `Invalid` (`setting-invalid`) if none are named."""
        if self.bootstrap_servers is None:
            raise Invalid(
                "setting-invalid", f"no Kafka broker is named. Write {_FORM}, or set ROOTLINE_KAFKA__BOOTSTRAP_SERVERS"
            )
        return self.bootstrap_servers

    def password(self) -> str | None:
        """The password, from the setting or its file. Raises `Invalid` (`setting-invalid`) if it cannot be read."""
        return read_secret("ROOTLINE_KAFKA__SASL_PASSWORD_FILE", self.sasl_password, self.sasl_password_file)

    def key_password(self) -> str | None:
        """The password of the client's key. Raises `Invalid` (`setting-invalid`) if it cannot be read."""
        return read_secret("ROOTLINE_KAFKA__TLS_KEY_PASSWORD_FILE", None, self.tls_key_password_file)

    def signing_key(self) -> tuple[str, bytes] | None:
        """The id and the secret of the key that signs intents.

        Raises `Invalid` (`setting-invalid`) if it cannot be used.
        """
        variable = "ROOTLINE_KAFKA__SIGNING_KEY_FILE"
        secret = read_secret(variable, None, self.signing_key_file)
        if self.signing_key_id is None or secret is None:
            return None
        if len(secret.encode()) < SECRET_BYTES_MIN:
            advice = "write one with `openssl rand -hex 32`"
            raise Invalid("setting-invalid", f"{variable}: the key has fewer than {SECRET_BYTES_MIN} bytes: {advice}")
        return self.signing_key_id, secret.encode()

    def at(self, url: str) -> KafkaSettings:
        """These settings with the servers of a `kafka://` URL. A URL without servers changes nothing.

        Raises:
            Invalid: `setting-invalid`.
        """
        parts = urlsplit(url)
        if parts.scheme != "kafka" or "@" in parts.netloc or parts.path.strip("/") or parts.query or parts.fragment:
            raise Invalid("setting-invalid", f"write a Kafka log as {_FORM}")
        if not parts.netloc:
            return self
        servers = [part.strip() for part in parts.netloc.split(",")]
        for part in servers:
            if not _SERVER.fullmatch(part):
                raise Invalid("setting-invalid", f"log {url!r}: {part!r} is not host:port: write {_FORM}")
        return self.model_copy(update={"bootstrap_servers": ",".join(servers)})


class EmbeddedLogSettings(BaseModel):
    """The retention of decided records in the embedded log. The host of the coordinator deletes older ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    records_retention_s: float = Field(
        default=604_800.0,
        ge=60,
        description="How long a decided intent and its verdict are kept at least. Undecided ones always are.",
    )
    dead_letters_retention_s: float = Field(
        default=2_592_000.0,
        ge=60,
        description="How long a rejected intent, its verdict and its dead letter are kept at least.",
    )

    @model_validator(mode="after")
    def _dead_letters_stay_as_long_as_records(self) -> EmbeddedLogSettings:
        if self.dead_letters_retention_s < self.records_retention_s:
            raise ValueError("dead_letters_retention_s must not be shorter than records_retention_s")
        return self

    @property
    def retention(self) -> LogRetention:
        """The retention in milliseconds."""
        from rootline.adapters.sqlite.log_pruning import LogRetention

        return LogRetention(int(self.records_retention_s * 1000), int(self.dead_letters_retention_s * 1000))


class StoreSettings(BaseSettings):
    """Settings from variables such as `ROOTLINE_S3__ENDPOINT`, and from files in `ROOTLINE_SECRETS_DIR`.

    A file is named like the variable in lower case, such as `rootline_s3__endpoint`.
    """

    model_config = SettingsConfigDict(
        env_prefix="ROOTLINE_",
        env_nested_delimiter="__",
        extra="ignore",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    absolute_reads: tuple[str, ...] = Field(
        default=(),
        description="Locations below which files of adopted tables outside the warehouse may be read, a JSON "
        'list like `["s3://old/lake"]`. Empty: every file that the store can read.',
    )
    s3: S3Settings = Field(default_factory=S3Settings, description="How an s3:// warehouse is reached.")
    kafka: KafkaSettings = Field(default_factory=KafkaSettings, description="How a kafka:// log is reached.")
    redis: RedisSettings = Field(default_factory=RedisSettings, description="The Redis that processes share.")
    embedded_log: EmbeddedLogSettings = Field(
        default_factory=EmbeddedLogSettings, description="How long an embedded log keeps decided records."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Pydantic's default sources, but with `NestedSecretsSettingsSource` for the folder of secret files.

        The default source reads a file `rootline_s3`, but not a file `rootline_s3__…` with one nested setting.
        """
        return init_settings, env_settings, dotenv_settings, NestedSecretsSettingsSource(file_secret_settings)


def store_settings() -> StoreSettings:
    """Read the settings in force.

    Raises:
        Invalid: `setting-invalid`, naming each setting and its fault.
    """
    return read_settings(StoreSettings, "ROOTLINE_")
