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


@pytest.fixture(scope="session", autouse=True)
def _lakes_are_maintained_when_a_test_says_so() -> Iterator[None]:
    """A process that opens an embedded lake hosts its worker; only `tests/hosting` lets that one start by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rootline.hosting.embedded_host.WORKER_DELAY_S", 86_400.0)
        yield
