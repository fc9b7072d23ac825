"""The settings of a worker process.

Owns: names, defaults, units and bounds of `ROOTLINE_WORKER__*`. Does not own: a table's thresholds
(`rootline.maintenance.limits`), the URLs of warehouse and log (`rootline.adapters.open`).
Invariants: a setting is a value. Reading settings starts nothing.
"""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from rootline.read_settings import read_settings


class WorkerSettings(BaseSettings):
    """The settings of one process. A name such as `poll_interval_s` contains its unit."""

    model_config = SettingsConfigDict(env_prefix="ROOTLINE_WORKER__", extra="forbid", frozen=True)

    poll_interval_s: float = Field(default=2.0, gt=0, description="Time between two checks of a table that changes.")
    poll_interval_s_max: float = Field(
        default=30.0, gt=0, description="Longest time between two checks of a quiet table."
    )
    discovery_interval_s: float = Field(default=15.0, gt=0, description="Time between two listings of tables.")
    tasks_max: int = Field(default=1_024, ge=1, description="Tasks that wait in memory; the rest is queued later.")
    jobs_at_once: int = Field(default=2, ge=1, description="Jobs that run concurrently.")
    verdict_timeout_s: float = Field(default=60.0, gt=0, description="Longest wait for the verdict on an intent.")
    request_timeout_s: float = Field(default=60.0, gt=0, description="Deadline of one store or log request.")
    replans_max: int = Field(default=3, ge=0, description="Number of times that a stale plan is replanned.")
    sweep_delay_s: float = Field(
        default=300.0, ge=0, description="Time between the first check of a table and its first sweep."
    )
    sweep_time_share_max: float = Field(
        default=0.01, gt=0, le=1, description="Largest share of time that sweeps of one table take."
    )
    leaf_cache_bytes_max: int = Field(
        default=268_435_456, ge=0, description="Bytes of leaves in the cache that all jobs share."
    )
    spark_master: str = Field(default="", description="A Spark master that runs large data compactions; empty: none.")
    spark_bytes_min: int = Field(
        default=1_073_741_824,
        ge=0,
        description="A table with at least this many bytes of due data files is compacted on Spark.",
    )
    spark_interval_s: float = Field(
        default=600.0, ge=0, description="Least time after a compaction of a table on Spark until the next one."
    )
    spark_timeout_s: float = Field(default=21_600.0, gt=0, description="Deadline of a compaction on Spark.")
    http_host: str = Field(default="127.0.0.1", description="Address of /healthz, /readyz and /metrics.")
    http_port: int = Field(default=0, ge=0, le=65_535, description="0: the system picks one.")
    stop_timeout_s: float = Field(default=20.0, gt=0, description="Longest duration of a clean stop.")


def worker_settings() -> WorkerSettings:
    """The settings from the environment.

    Raises:
        Invalid: `setting-invalid`, naming each setting and what is wrong with it.
    """
    return read_settings(WorkerSettings, "ROOTLINE_WORKER__")
