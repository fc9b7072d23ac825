"""What a world says of itself is in its trace."""

from __future__ import annotations

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def _processes_log_nothing() -> None:
    """Thousands of lines a second, which cost as much as the world; `tests/conftest.py` sets it back."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
