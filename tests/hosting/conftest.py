"""Lakes whose processes host coordinator and worker."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _workers_start_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do outside tests (see `tests/conftest.py`)."""
    monkeypatch.setattr("rootline.hosting.embedded_host.WORKER_DELAY_S", 1.0)
