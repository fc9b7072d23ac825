"""Lines of the library: in `logging`, or in structlog where the program has configured it."""

from __future__ import annotations

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from rootline.library_log import library_logger


def test_a_program_without_structlog_finds_the_lines_in_logging(caplog: pytest.LogCaptureFixture) -> None:
    structlog.reset_defaults()
    library_logger("rootline.lake").warning("no id", action="retry", reason="it's full")
    library_logger("rootline.lake").debug("nobody asked for this line")
    assert [(record.name, record.levelno, record.message) for record in caplog.records] == [
        ("rootline.lake", logging.WARNING, "event='no id' action='retry' reason=\"it's full\"")
    ]


def test_a_program_that_configured_structlog_finds_the_lines_there(caplog: pytest.LogCaptureFixture) -> None:
    with capture_logs() as lines:
        library_logger().error("no id", action="retry")
    assert lines == [{"event": "no id", "action": "retry", "log_level": "error"}]
    assert caplog.records == []


def test_a_line_about_an_error_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    structlog.reset_defaults()
    try:
        raise OSError("disk full")
    except OSError as error:
        library_logger().exception("not stored")
        handled = error
    library_logger().exception("not stored", exc_info=handled)
    assert caplog.text.count("Traceback") == caplog.text.count("OSError: disk full") == 2
    with capture_logs() as lines:
        library_logger().exception("not stored", exc_info=handled)
    assert lines == [{"event": "not stored", "exc_info": handled, "log_level": "error"}]
