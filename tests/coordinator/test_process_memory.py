"""What a service's process does with memory."""

from __future__ import annotations

import gc

import pyarrow as pa

from rootline.coordinator.app import settle_memory


def test_a_service_searches_for_garbage_seldom_and_leaves_out_what_was_there_before() -> None:
    thresholds, pool = gc.get_threshold(), pa.default_memory_pool()
    try:
        settle_memory()
        assert gc.isenabled()
        assert pa.default_memory_pool().backend_name == "system"
        assert gc.get_freeze_count() > 10_000
        assert all(new >= old for new, old in zip(gc.get_threshold(), thresholds, strict=True))
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        pa.set_memory_pool(pool)
