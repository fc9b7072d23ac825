"""The process of a service: signals, log lines, traces, metrics, and errors for a refused port or a missing extra.

Owns: the handlers of signals, the configuration of logs and traces on this process, the errors for an HTTP port that
cannot be opened and for the missing extra `server`. Does not own: the services (`services`, `catalog_service`), their
metrics and their log lines.
Invariants: SIGTERM and SIGINT stop cleanly, and a second signal ends the process at once. Traces are sent by OTLP only
where the standard variables name an endpoint and the extra `otel` is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from rootline.schemas.distribution import VERSION, install_command
from rootline.schemas.errors import Invalid

Announce = Callable[[Mapping[str, Any], str], None]
"""Prints what happens to a service: as a JSON object, or as text."""
PROCESS_METRICS: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
"""The metrics of the process itself. They need `/proc`, so other systems have none of them."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextlib.contextmanager
def signals(stop: asyncio.Event) -> Iterator[None]:
    """Let SIGTERM and SIGINT set `stop` until the block ends. The second signal ends the process as usual."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def log_to_stderr(level: str) -> None:
    """Write log lines of services and libraries to stderr: as JSON, or in a readable form on a terminal."""
    import logging

    number = logging.getLevelNamesMapping()[level.upper()]
    render: Any = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer(default=str)
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    of_libraries = logging.StreamHandler(sys.stderr)
    of_libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[of_libraries], level=max(number, logging.WARNING))


@contextlib.contextmanager
def telemetry(service: str) -> Iterator[None]:
    """Record spans of `service` until the block ends, if an endpoint is named. OTEL_SERVICE_NAME overrides the name."""
    if not any(os.environ.get(name) for name in _ENDPOINTS) or _traces_are_off():
        yield
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        structlog.get_logger().warning(
            f"no traces, because a library of the extra `otel` is not installed: {install_command('otel')}",
            action="traces-absent",
            missing=error.name,
        )
        yield
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def _traces_are_off() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"


def describe_process(registry: CollectorRegistry) -> None:
    """Add the metrics of the process and `rootline_build_info` to its registry, once."""
    ProcessCollector(registry=registry)
    build = Gauge("rootline_build_info", "1; the labels say what runs.", ("version", "python"), registry=registry)
    build.labels(VERSION, platform.python_version()).set(1)


@contextlib.contextmanager
def port_refused(what: str, host: str, port: int, option: str) -> Iterator[None]:
    """Raise an `OSError` of the block as `Invalid` (`setting-invalid`). `option` names another port."""
    try:
        yield
    except OSError as error:
        raise Invalid(
            "setting-invalid",
            f"{what} cannot listen on {host}:{port}: {error.strerror or error}; give another {option}, or 0 to let the "
            "system pick one",
        ) from error


@contextlib.contextmanager
def server_extra(what: str) -> Iterator[None]:
    """Raise a failed import of the block as `Invalid` (`setting-invalid`): the extra `server` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid", f"{what} needs {error.name}, which is not installed: {install_command('server')}"
        ) from error
