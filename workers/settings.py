"""The worker's settings of the process, not of a table.

Owns: names, defaults, units and bounds of `ROOTLINE_WORKER__*`. Does not own: a table's thresholds
(`rootline.maintenance.limits`), the URLs of warehouse and log (`rootline.adapters.open`).
Invariants: a setting is a value. Reading them starts nothing.
"""

from __future__ import annotations

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.schemas.model_faults import invalid_settings


class WorkerSettings(BaseSettings):
    """The unit comes last in each name."""

    model_config = SettingsConfigDict(env_prefix="ROOTLINE_WORKER__", extra="forbid", frozen=True)

    poll_interval_s: float = Field(default=2.0, gt=0, description="Time between two looks at a table that changes.")
    poll_interval_s_max: float = Field(default=30.0, gt=0, description="Longest time between looks at a quiet table.")
    discovery_interval_s: float = Field(default=15.0, gt=0, description="Time between two looks for new tables.")
    tasks_max: int = Field(default=1_024, ge=1, description="Tasks that wait in memory; more are noticed again later.")
    jobs_at_once: int = Field(default=2, ge=1, description="Tables that are worked on at the same time.")
    verdict_timeout_s: float = Field(default=60.0, gt=0, description="Longest wait for the verdict on an intent.")
    request_timeout_s: float = Field(default=60.0, gt=0, description="Deadline of one store or log operation.")
    replans_max: int = Field(default=3, ge=0, description="Times a plan that came too late is made again.")
    sweep_delay_s: float = Field(
        default=300.0, ge=0, description="How long a worker has known a table before it first sweeps it."
    )
    sweep_time_share_max: float = Field(
        default=0.01, gt=0, le=1, description="Share of the time that sweeps of one table take at most."
    )
    leaf_cache_bytes_max: int = Field(
        default=268_435_456, ge=0, description="Bytes of leaves kept to find which one holds a file."
    )
    spark_master: str = Field(
        default="", description="A Spark master that large data compactions are given to; empty: none are."
    )
    spark_bytes_min: int = Field(
        default=1_073_741_824, ge=0, description="Bytes of due data files of a table from which on Spark compacts them."
    )
    spark_interval_s: float = Field(
        default=600.0, ge=0, description="Least time between the ends of two compactions of a table on Spark."
    )
    spark_timeout_s: float = Field(default=21_600.0, gt=0, description="How long a compaction on Spark may take.")
    http_host: str = Field(default="127.0.0.1", description="Address of /healthz, /readyz and /metrics.")
    http_port: int = Field(default=0, ge=0, le=65_535, description="0: the system picks one.")
    stop_timeout_s: float = Field(default=20.0, gt=0, description="How long a clean stop may take.")


def worker_settings() -> WorkerSettings:
    """The settings in force.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.

    """
    try:
        return WorkerSettings()
    except ValidationError as error:
        raise invalid_settings(error, "ROOTLINE_WORKER__") from None
