"""The logger of the library. structlog is imported with the first logger, because a process that only reads needs none.

Owns: the destination of log lines in a program that has not configured structlog. Does not own: the configuration of
services (`rootline.cli.service_process`).
"""

from __future__ import annotations

from typing import Any


def keep_logs_quiet() -> None:
    """Send Rootline's log lines to `logging`, as a library should, unless the program has configured structlog."""
    import structlog

    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event", "action"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def library_logger(name: str | None = None) -> Any:
    """The logger `name`, for code that also runs in processes without a service."""
    import structlog

    keep_logs_quiet()
    return structlog.get_logger(name)
