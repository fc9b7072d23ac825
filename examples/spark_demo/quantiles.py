"""Quantiles of the coordinators' histograms, as the demo shows them.

Owns: reading their `/metrics`, adding them up, quantiles. Does not own: the metrics (`rootline.coordinator`).
Invariants: a quantile of several coordinators is computed over all their observations. It is never a mean of
quantiles.
"""

from __future__ import annotations

import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Two quantiles of a histogram, in milliseconds, interpolated inside a bucket as Prometheus does."""

    count: int
    p50_ms: float
    p99_ms: float


def quantiles_at(urls: Iterable[str], histogram: str) -> Quantiles:
    """The quantiles of one histogram, over all coordinators at `urls` together."""
    counts: Counter[float] = Counter()
    for url in urls:
        counts.update(_buckets(url, histogram))
    total = max(counts.values(), default=0.0)
    return Quantiles(int(total), _quantile(counts, 0.5) * 1000, _quantile(counts, 0.99) * 1000)


def _buckets(url: str, histogram: str) -> dict[float, float]:
    """Upper bound in seconds → cumulative count."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=_PATIENCE_S) as answer:
        text = answer.read().decode()
    return {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"{histogram}_bucket"
    }


def _quantile(counts: Mapping[float, float], wanted: float) -> float:
    """The seconds below which a share `wanted` of the observations is. `counts`: upper bound → cumulative count."""
    total = max(counts.values(), default=0.0)
    below, seen = 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if total and count >= wanted * total:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (wanted * total - seen) / max(count - seen, 1.0)
        below, seen = bound, count
    return 0.0
