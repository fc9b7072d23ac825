"""The coordinator's settings of the process, not of a table.

Owns: names, defaults, units and bounds of `ROOTLINE_COORDINATOR__*`. Does not own: table properties
(`docs/settings.md` lists them), the URLs of warehouse and log (`rootline.adapters.open`).
Invariants: a setting is a value. Reading them starts nothing.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.schemas.model_faults import invalid_settings


class CoordinatorSettings(BaseSettings):
    """Units come last in each name."""

    model_config = SettingsConfigDict(env_prefix="ROOTLINE_COORDINATOR__", extra="forbid", frozen=True)

    coordinator_id: str = Field(default="", description="Name in every root it makes; empty: a fresh one per process.")
    batch_intents_max: int = Field(default=512, ge=1, description="A batch closes at this many intents.")
    batch_bytes_max: int = Field(default=4_000_000, ge=1, description="A batch closes at this many bytes of intents.")
    batch_age_ms_max: float = Field(default=250.0, ge=0, description="The longest a batch stays open.")
    table_queue_intents_max: int = Field(default=4_096, ge=1, description="Intents of one table kept in memory.")
    table_queue_bytes_max: int = Field(
        default=64_000_000, ge=1, description="Memory of one table's intents, about; more are read again later."
    )
    queue_bytes_max: int = Field(
        default=512_000_000, ge=1, description="Memory of all tables' intents, about; then the reading pauses."
    )
    table_idle_s: float = Field(default=900.0, gt=0, description="A table is let go from memory when idle so long.")
    offsets_commit_interval_s: float = Field(
        default=1.0, gt=0, description="How often the log is told what is decided; a crash reads so much again."
    )
    request_timeout_s: float = Field(default=10.0, gt=0, description="Deadline of one store or log operation.")
    retry_delay_ms_min: float = Field(default=20.0, gt=0, description="First delay after a failure; doubles.")
    retry_delay_ms_max: float = Field(default=5_000.0, gt=0, description="Longest delay between attempts.")
    losses_max: int = Field(default=8, ge=1, description="Lost races in a row before the coordinator yields a while.")
    unpublished_roots_max: int = Field(default=64, ge=1, description="Roots whose verdicts wait; then commits pause.")
    parking_after_s: float = Field(
        default=600.0,
        gt=0,
        description="A table that decides nothing for this long, while another one does, is parked: its intents are "
        "stored in a topic of their own, and its partition goes on.",
    )
    parked_bytes_max: int = Field(
        default=67_108_864,
        ge=0,
        description="How much of one table and partition is parked; later intents are rejected with `table-parked`.",
    )
    stop_timeout_s: float = Field(default=20.0, gt=0, description="How long a clean stop may take.")
    poll_wait_s: float = Field(default=1.0, gt=0, description="Longest wait for new records on the log.")
    verdicts_logged_per_s: int = Field(
        default=50,
        ge=0,
        description="Log lines a second for rejections, and as many for other verdicts; one line counts the rest.",
    )
    commits_logged_per_s: int = Field(
        default=50, ge=0, description="Log lines a second for commits; one line counts the rest."
    )
    principals_file: Path | None = Field(
        default=None,
        description="A file that says which keys may write which tables: a record that none of them signed is "
        "rejected. Only for a log on Kafka; read at the start.",
    )
    http_host: str = Field(
        default="127.0.0.1", description="Address of the console, /healthz, /readyz, /metrics and /v1."
    )
    http_port: int = Field(default=0, ge=0, le=65_535, description="0: the system picks one.")
    http_catalog: bool = Field(
        default=True, description="Whether other engines find an Iceberg REST catalog under /v1 of the same port."
    )
    http_console: bool = Field(default=True, description="Whether the same port shows the console, a page at /.")
    probe_rounds: int = Field(default=3, ge=0, description="Rounds of the store probe at start; 0: no probe.")


def coordinator_settings() -> CoordinatorSettings:
    """The settings in force.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.

    """
    try:
        return CoordinatorSettings()
    except ValidationError as error:
        raise invalid_settings(error, "ROOTLINE_COORDINATOR__") from None
