"""How Kafka is reached, and the names of its topics.

Owns: names, defaults and units of `ROOTLINE_KAFKA__*`. Does not own: making clients (`clients`), what topics must
be like (`topics`).
Invariants: a secret is never printed; half of a login or of a certificate is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from rootline.adapters.secret_files import is_given, read_secret
from rootline.schemas.bytes.record_headers import KEY_ID, SECRET_BYTES_MIN
from rootline.schemas.errors import Invalid
from rootline.schemas.intent_rules import DEFAULT_LIMITS

_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s,:/@\[\]]+):\d{1,5}")
_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}$"
_FORM: Final = "kafka://host:port or kafka://host:port,host:port; login and topics are settings (ROOTLINE_KAFKA__…)"


class KafkaSettings(BaseModel):
    """The unit is the last part of each name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str | None = Field(
        default=None, description="The brokers, host:port,host:port; those in a kafka:// URL are used instead."
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
        description="The topic that says how far each partition is decided, also when the group's offsets expired.",
    )
    parked_topic: str = Field(
        default="rootline.parked",
        pattern=_TOPIC,
        description="The topic of undecided records of tables that cannot go on; nothing in it is removed by time.",
    )
    group_id: str = Field(default="rootline", min_length=1, description="The consumer group of the coordinators.")
    group_instance_id: str | None = Field(
        default=None,
        min_length=1,
        description="A name that only this coordinator has, the same after a restart: its partitions then wait "
        "`session_timeout_s` for it to come back, and do not move twice. Without a name they move at once.",
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
        description="How long a coordinator may take to finish what is in flight before its partitions go to others; "
        "one deadline for all steps.",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="How to connect: SSL encrypts, SASL logs in."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="SCRAM-SHA-512", description="The method of the login."
    )
    sasl_username: str | None = Field(default=None, description="The user of the login; needs a password.")
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
        default=None, pattern=KEY_ID, description="The id of the key that signs every intent published from here."
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
        default=8_388_608, ge=0, description="Memory of a writer for verdicts that are asked for late."
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
                raise ValueError(f"{shown}write host:port; the login is settings of its own")
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
        """Its name in messages."""
        return f"kafka://{self.bootstrap_servers}"

    def servers(self) -> str:
        """The servers. Raises `Invalid` (`setting-invalid`) if none are named."""
        if self.bootstrap_servers is None:
            raise Invalid(
                "setting-invalid", f"no Kafka server is named: write {_FORM}, or set ROOTLINE_KAFKA__BOOTSTRAP_SERVERS"
            )
        return self.bootstrap_servers

    def password(self) -> str | None:
        """The password, from the setting or its file. Raises `Invalid` (`setting-invalid`): it cannot be read."""
        return read_secret("ROOTLINE_KAFKA__SASL_PASSWORD_FILE", self.sasl_password, self.sasl_password_file)

    def key_password(self) -> str | None:
        """The password of the client's key. Raises `Invalid` (`setting-invalid`): it cannot be read."""
        return read_secret("ROOTLINE_KAFKA__TLS_KEY_PASSWORD_FILE", None, self.tls_key_password_file)

    def signing_key(self) -> tuple[str, bytes] | None:
        """Id and secret of the key that signs intents. Raises `Invalid` (`setting-invalid`): it cannot be used."""
        variable = "ROOTLINE_KAFKA__SIGNING_KEY_FILE"
        secret = read_secret(variable, None, self.signing_key_file)
        if self.signing_key_id is None or secret is None:
            return None
        if len(secret.encode()) < SECRET_BYTES_MIN:
            advice = "write one with `openssl rand -hex 32`"
            raise Invalid("setting-invalid", f"{variable}: the key has fewer than {SECRET_BYTES_MIN} bytes: {advice}")
        return self.signing_key_id, secret.encode()

    def at(self, url: str) -> KafkaSettings:
        """These settings with the servers of a `kafka://` URL; a URL without servers changes nothing.

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
