"""The settings of stores, logs and caches: from the environment, and from a folder of secrets.

Owns: names, sources and their order: the environment comes before the folder. Does not own: what each vendor's
settings are (`s3`, `kafka`, `redis`, `sqlite`).
Invariants: a file in the folder is the setting of its name in small letters (`rootline_s3__secret_access_key`), or all
of a vendor's as JSON (`rootline_s3`); an error names the setting and never its value.
"""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.redis.settings import RedisSettings
from rootline.adapters.s3.settings import S3Settings
from rootline.adapters.sqlite.settings import EmbeddedLogSettings
from rootline.read_settings import read_settings


class StoreSettings(BaseSettings):
    """`ROOTLINE_S3__ENDPOINT` and so on; a file named `rootline_s3__…` in `ROOTLINE_SECRETS_DIR` does the same."""

    model_config = SettingsConfigDict(
        env_prefix="ROOTLINE_",
        env_nested_delimiter="__",
        extra="ignore",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    absolute_reads: tuple[str, ...] = Field(
        default=(),
        description="Adopted tables name files outside the warehouse. Read only those below these locations, a JSON "
        'list like `["s3://old/lake"]`; empty: every file that the store can read.',
    )
    s3: S3Settings = Field(default_factory=S3Settings, description="How an s3:// warehouse is reached.")
    kafka: KafkaSettings = Field(default_factory=KafkaSettings, description="How a kafka:// log is reached.")
    redis: RedisSettings = Field(default_factory=RedisSettings, description="Where processes tell each other things.")
    embedded_log: EmbeddedLogSettings = Field(
        default_factory=EmbeddedLogSettings, description="How long an embedded log keeps what was decided."
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
        """The usual ones; by itself the last one would read a file `rootline_s3`, and none named `rootline_s3__…`."""
        return init_settings, env_settings, dotenv_settings, NestedSecretsSettingsSource(file_secret_settings)


def store_settings() -> StoreSettings:
    """The settings in force.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.

    """
    return read_settings(StoreSettings, "ROOTLINE_")
