"""What every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

pytest_plugins = ["tests.services.service_fixtures", "tests.support.lake_fixtures"]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a command under test configured ends with it: its log went to a stream that is closed afterwards."""
    was_configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if was_configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()
