"""The part `locations`: the horizon only rises, and condemned pages stay until it has passed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from rootline.schemas.identifiers import Version
from rootline.schemas.parts.locations import Condemned, Locations, Retired
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.part_rules import BatchFacts, PartRules

HORIZON: Final = "rootline.horizon-ms"
"""Key of a snapshot's summary: the horizon, if it rose."""
CONDEMNED: Final = "rootline.condemned-locations"
"""Key of a snapshot's summary: the number of locations in pages that this root is the first to reference."""


def locations_after(carried: Locations, retired: Retired, version: Version, timestamp_ms: int) -> Locations:
    """The part of root `version`. A page that it is the first to reference is dated no earlier than the root."""
    condemned = carried.condemned
    if any(item.since_version == version for item in condemned):
        condemned = tuple([_dated(item, version, timestamp_ms) for item in condemned])
    if condemned is carried.condemned and retired is carried.retired:
        return carried
    return replace(carried, condemned=condemned, retired=retired)


def _dated(item: Condemned, version: Version, timestamp_ms: int) -> Condemned:
    return item if item.since_version != version else item._replace(since_ms=max(item.since_ms, timestamp_ms))


def _summary(before: Locations | None, after: Locations, facts: BatchFacts) -> Mapping[str, str]:
    summary: dict[str, str] = {}
    was = Locations() if before is None else before
    if after.horizon_ms > was.horizon_ms:
        summary[HORIZON] = str(after.horizon_ms)
    if after.condemned != was.condemned:
        fresh = {item.page.digest for item in after.condemned} - {item.page.digest for item in was.condemned}
        summary[CONDEMNED] = str(sum(count for digest, count in facts.condemned.items() if digest in fresh))
    return summary


def sweep_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in a root's horizon and condemned pages, compared with the root before it, as sentences."""
    summary = after.snapshot.summary
    was, now = before.locations, after.locations
    if now.horizon_ms < was.horizon_ms:
        yield f"the horizon decreased from {was.horizon_ms} to {now.horizon_ms}"
    if (now.horizon_ms > was.horizon_ms) != (HORIZON in summary):
        yield f"the horizon is {now.horizon_ms} after {was.horizon_ms}, its summary has {summary.get(HORIZON)!r}"
    if (now.condemned != was.condemned) != (CONDEMNED in summary):
        yield "the condemned pages changed, but its summary does not state it"
    added = [item for item in now.condemned if item not in was.condemned]
    dropped = [item for item in was.condemned if item not in now.condemned]
    for item in added:
        if item.since_version != after.version or item.since_ms < after.snapshot.timestamp_ms:
            yield f"page {item.page.location} is new in this root, but is dated version {item.since_version}"
    for item in dropped:
        if item.since_ms > now.horizon_ms and not added:
            yield f"page {item.page.location} was dropped before the horizon passed {item.since_ms}"


def _begins(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now = before.locations, after.locations
    if now.horizon_ms != was.horizon_ms or len(now.condemned) != len(was.condemned):
        yield "the condemned locations or the horizon changed"


LOCATIONS: Final = PartRules("locations", _summary, sweep_violations, _begins, Locations())
