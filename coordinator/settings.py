"""The settings of a coordinator process.

Owns: names, defaults, units and bounds of `ROOTLINE_COORDINATOR__*`. Does not own: table properties
(`docs/settings.md` lists them), the URLs of warehouse and log (`rootline.adapters.open`).
Invariants: a setting is a value. Reading settings starts nothing.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class CoordinatorSettings(BaseSettings):
    """The settings of one process. A name such as `retry_delay_ms_max` contains its unit."""

    model_config = SettingsConfigDict(env_prefix="ROOTLINE_COORDINATOR__", extra="forbid", frozen=True)

    coordinator_id: str = Field(default="", description="Name in every root it writes; empty: a new name per process.")
    batch_intents_max: int = Field(default=512, ge=1, description="A batch closes at this many intents.")
    batch_bytes_max: int = Field(default=4_000_000, ge=1, description="A batch closes at this many bytes of intents.")
    batch_age_ms_max: float = Field(default=250.0, ge=0, description="The longest a batch stays open.")
    table_queue_intents_max: int = Field(default=4_096, ge=1, description="Intents of one table kept in memory.")
    table_queue_bytes_max: int = Field(
        default=64_000_000, ge=1, description="Approximate memory of one table's intents; the rest is re-read later."
    )
    queue_bytes_max: int = Field(
        default=512_000_000, ge=1, description="Approximate memory of all tables' intents; beyond it, reading pauses."
    )
    table_idle_s: float = Field(
        default=900.0, gt=0, description="A table that is idle for this long is evicted from memory."
    )
    offsets_commit_interval_s: float = Field(
        default=1.0, gt=0, description="Interval between offset commits to the log; a crash re-reads this much."
    )
    request_timeout_s: float = Field(default=10.0, gt=0, description="Deadline of one store or log request.")
    retry_delay_ms_min: float = Field(default=20.0, gt=0, description="First delay after a failure; doubles.")
    retry_delay_ms_max: float = Field(default=5_000.0, gt=0, description="Longest delay between attempts.")
    losses_max: int = Field(default=8, ge=1, description="Lost races in a row before the coordinator backs off.")
    unpublished_roots_max: int = Field(
        default=64, ge=1, description="Roots with unpublished verdicts; at this many, commits pause."
    )
    parking_after_s: float = Field(
        default=600.0,
        gt=0,
        description="A table that decides nothing for this long, while another one does, is parked: its intents are "
        "stored in a separate topic, and its partition continues.",
    )
    parked_bytes_max: int = Field(
        default=67_108_864,
        ge=0,
        description="Parked bytes of one table and partition; later intents are rejected with `table-parked`.",
    )
    stop_timeout_s: float = Field(default=20.0, gt=0, description="Longest duration of a clean stop.")
    poll_wait_s: float = Field(default=1.0, gt=0, description="Longest wait for new records on the log.")
    verdicts_logged_per_s: int = Field(
        default=50,
        ge=0,
        description="Log lines per second for rejections, and as many for other verdicts; one line counts the rest.",
    )
    commits_logged_per_s: int = Field(
        default=50, ge=0, description="Log lines per second for commits; one line counts the rest."
    )
    principals_file: Path | None = Field(
        default=None,
        description="A policy file of keys and the tables that each may write: a record that none of them signed is "
        "rejected. Only for a log on Kafka; read at the start.",
    )
    file_prefixes: tuple[str, ...] = Field(
        default=(),
        description='Absolute locations outside the warehouse, as a JSON list like `["s3://landing/events/"]`: below '
        "them, intents may add data files. Rootline never deletes these files, and nobody else may while a table "
        "names them. Set the same for all coordinators.",
    )
    http_host: str = Field(
        default="127.0.0.1", description="Address of the console, /healthz, /readyz, /metrics and /v1."
    )
    http_port: int = Field(default=0, ge=0, le=65_535, description="0: the system picks one.")
    http_catalog: bool = Field(
        default=True, description="Whether the same port serves an Iceberg REST catalog under /v1."
    )
    http_console: bool = Field(default=True, description="Whether the same port serves the console, a page at /.")
    probe_rounds: int = Field(default=3, ge=0, description="Rounds of the store probe at start; 0: no probe.")


def coordinator_settings() -> CoordinatorSettings:
    """The settings from the environment.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.
    """
    from rootline.read_settings import read_settings

    return read_settings(CoordinatorSettings, "ROOTLINE_COORDINATOR__")
