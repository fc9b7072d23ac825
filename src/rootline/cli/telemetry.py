"""Traces of a service: sent by OTLP where the standard variables say so, and the extra `otel` is installed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import structlog

from rootline.schemas.distribution import install_command

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextlib.contextmanager
def telemetry(service: str) -> Iterator[None]:
    """Record spans until the block ends, if an endpoint is named; `service`: its name unless OTEL_SERVICE_NAME says."""
    if not any(os.environ.get(name) for name in _ENDPOINTS) or _is_off():
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


def _is_off() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
