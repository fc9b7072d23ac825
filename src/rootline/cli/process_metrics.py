"""What every service shows of its own process, beside what it does: `rootline_build_info` and `process_*`."""

from __future__ import annotations

import platform
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from rootline.schemas.distribution import VERSION

PROCESS_METRICS: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
"""Where there is a `/proc`; other systems have none of them."""


def describe_process(registry: CollectorRegistry) -> None:
    """Add them to the registry of a process, once."""
    ProcessCollector(registry=registry)
    build = Gauge("rootline_build_info", "1; the labels say what runs.", ("version", "python"), registry=registry)
    build.labels(VERSION, platform.python_version()).set(1)
