from __future__ import annotations

import gc

from rootline.cli.collector import settle_collector


def test_a_service_searches_for_garbage_seldom_and_leaves_out_what_was_there_before() -> None:
    thresholds = gc.get_threshold()
    try:
        settle_collector()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 10_000
        assert all(new >= old for new, old in zip(gc.get_threshold(), thresholds, strict=True))
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
