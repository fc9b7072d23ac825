"""Intents of expiry, with the pages that a worker would store before them, and what a worker lets stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from rootline.maintenance.expiry_plan import ExpiryPlan, plan_expiry
from rootline.maintenance.limits import ExpiryLimits
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, KeptVersion, RetainedVersions
from rootline.schemas.intent import Intent, IntentKind, StoredPage, VersionReference
from tests.tree.tables import Lake, intent

_NEWEST_ALONE: Final = ExpiryLimits(all_s=0, all_versions=1, minutes_s=0, hours_s=0)


def kept(lake: Lake, version: int) -> KeptVersion:
    """What a page says of a version."""
    root = lake.states[version].root
    return KeptVersion(root.header.version, root.header.snapshot.timestamp_ms, root.size_in_bytes)


def expire(lake: Lake, oldest: int, keep: Iterable[int] = (), named: str = "", **more: object) -> Intent:
    """Give up what is older than `oldest`, but for `keep`."""
    fields: dict[str, object] = {"ref": VersionReference(version=oldest), "made_from_version": 0}
    rows = [kept(lake, version) for version in keep]
    if rows:
        fields["page"] = store_page(lake, rows, lake.states[oldest].header.table_uuid)
    name = named or f"expire-{oldest}-{len(rows)}-{lake.offset}-{len(lake.kept)}"
    return intent(IntentKind.EXPIRE, name, **(fields | more))


def store_page(lake: Lake, rows: Iterable[KeptVersion], of_table: UUID | None = None) -> StoredPage:
    """A page of kept versions, as an intent names it."""
    table_uuid = of_table or lake.head.header.table_uuid
    page, body = RETAINED_PAGES.encode(table_uuid, RetainedVersions(tuple(rows)))
    location, digest, size, *_ = page.reference
    named = StoredPage(location=location, file_size_in_bytes=size, digest=digest)
    lake.kept[named] = RETAINED_PAGES.decode_stored(body, location, digest, size, table_uuid, name=location)
    return named


def planned(lake: Lake, version: int) -> list[int] | None:
    """What stays below `version` by the plan of a worker who saw it last; `None` when none of it can be read."""
    state = lake.states[version]
    steps = plan_expiry(state.header, state.pages.newest(RETAINED_PAGES), _NEWEST_ALONE, now=True)
    plan: ExpiryPlan | None = None
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(kept(lake, wanted))
    except StopIteration as ended:
        plan = ended.value
    if plan is None:
        return None
    assert plan.oldest == version
    return [item.version for item in plan.kept]
