"""Chooses the versions of a table that expire, and plans the purge of a dropped table.

Owns: these choices. Does not own: their numbers (`rootline.maintenance.limits`), reading roots and publishing
(`expiry_job`), permission to expire and to purge (`rootline.tree.intents`), the deletion of a purged table's files
(expiry and the sweep).
Invariants: pure. Times are the roots' own, limited to the caller's time. A version with a tag stays, and so does the
newest. An expired version never becomes readable again. Planning again without new commits plans nothing. Only a table
with sweeps enabled is purged automatically: without sweeps a purge would free nothing, and the table could no longer be
restored. The intent of a purge names the drop, so a late one purges nothing else.

Theory. Timestamps strictly increase with versions, so the first version of a span and the last one of each minute
are found by bisection: a few roots are read, not all of them. The planner is a generator: it yields the version that
it needs, and receives its root's facts.

Source: docs/decisions/0063.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from rootline.maintenance.limits import SWEEP_PROPERTY, ExpiryLimits
from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.schemas.bytes.root.retained_page import (
    KEPT_MAX,
    RETAINED_PAGES,
    KeptVersion,
    RetainedPage,
    RetainedVersions,
)
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import IntentKind, StoredPage, VersionReference
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import checked_number, checked_switch
from rootline.tree.intents.create_drop import KEPT_PROPERTY, KEPT_S_DEFAULT, kept_until_ms
from rootline.tree.state.table_state import pending_page

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
Steps = Generator[Version, KeptVersion, "ExpiryPlan | None"]
"""Yields a version, and receives the facts of its root."""


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """An expiry. The versions from `oldest` on stay, and of the earlier ones those in `kept`.

    `given_up`: the number of versions that expire.
    """

    made_from_version: Version
    oldest: Version
    kept: tuple[KeptVersion, ...]
    given_up: int

    @property
    def leaf_count(self) -> int:
        """The number of new leaves, which is 0."""
        return 0

    @property
    def entries(self) -> int:
        """The number of expired versions."""
        return self.given_up

    def write(self, stamp: IntentStamp, _definition: TableDefinition) -> WrittenPlan:
        """Make the page that lists the kept versions, and the intent that names the page."""
        reference = VersionReference(version=self.oldest)
        if not self.kept:
            return WrittenPlan((), stamp.intent(IntentKind.EXPIRE, self.made_from_version, ref=reference))
        salt = (
            f"made from {self.made_from_version}".encode()
        )  # a new name, because a sweep may have condemned an earlier page with the same versions
        page, pending = pending_page(RETAINED_PAGES, stamp.table_uuid, RetainedVersions(self.kept), salt)
        location, digest, size, *_ = page.reference
        named = StoredPage(location=location, file_size_in_bytes=size, digest=digest)
        intent = stamp.intent(IntentKind.EXPIRE, self.made_from_version, ref=reference, page=named)
        return WrittenPlan((pending,), intent)


def plan_expiry(
    header: RootHeader, kept: RetainedPage | None, limits: ExpiryLimits, *, now_ms: int | None = None, now: bool = False
) -> Steps:
    """Plan an expiry at a head, in steps. Yields a version whose facts must be sent, and returns the plan.

    Args:
        header: the head's header.
        kept: the page of kept versions that the header names.
        limits: the table's limits.
        now_ms: the time now, of the store or the worker. Ages are counted from this time, or from the head's timestamp
            if that is earlier.
        now: an operator's command, for which one version to expire is enough.
    """
    before = () if kept is None else kept.content.versions
    if not now and header.version - header.versions.oldest < limits.every_commits:
        return None
    until_ms = header.snapshot.timestamp_ms if now_ms is None else min(now_ms, header.snapshot.timestamp_ms)
    search = _Search(header)
    since_ms = until_ms - limits.all_s * 1_000
    last = Version(
        header.versions.oldest + (1 if now else limits.every_commits) - 1
    )  # the last version that must expire
    if header.version - limits.all_versions < last and (yield from search.at(last)).timestamp_ms >= since_ms:
        return None
    oldest = yield from search.first_since(since_ms)
    oldest = Version(max(oldest, header.version - limits.all_versions + 1))
    if oldest - header.versions.oldest < (1 if now else limits.every_commits):
        return None
    thinned = yield from _thinned(search, header, oldest, limits, until_ms)
    tagged = [version for version in sorted(set(header.tags.values())) if header.versions.oldest <= version < oldest]
    found = {item.version: item for item in thinned}
    for number in tagged:
        found[Version(number)] = yield from search.at(number)
    named = set(header.tags.values())
    stays = _thinned_before(before, until_ms, limits)
    found.update({item.version: item for item in before if item.version in stays or item.version in named})
    rows = _at_most(sorted(found.values()), named)
    given_up = oldest - header.versions.oldest + len(before) - len(rows)
    return ExpiryPlan(header.version, oldest, rows, given_up)


class _Search:
    """Finds versions by time, among the versions from the oldest one on, none of which has expired."""

    def __init__(self, header: RootHeader) -> None:
        self._header = header
        self._known: dict[int, KeptVersion] = {}

    def at(self, version: int) -> Generator[Version, KeptVersion, KeptVersion]:
        """The commit time and size of a version's root. Yields the version if its root was not read yet."""
        if version not in self._known:
            self._known[version] = yield Version(version)
        return self._known[version]

    def first_since(self, timestamp_ms: int) -> Generator[Version, KeptVersion, Version]:
        """The oldest version committed at or after `timestamp_ms`. The newest version if all were committed earlier."""
        low, high = int(self._header.versions.oldest), int(self._header.version)
        while low < high:
            middle = (low + high) // 2
            if (yield from self.at(middle)).timestamp_ms < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return Version(low)

    def last_before(self, timestamp_ms: int, version: int) -> Generator[Version, KeptVersion, KeptVersion | None]:
        """The newest version before `version` that was committed before `timestamp_ms`, or `None`.

        Searches near `version` first.
        """
        floor, step, high = int(self._header.versions.oldest), 1, version
        while high > floor:
            low = max(floor, high - step)
            if (yield from self.at(low)).timestamp_ms < timestamp_ms:
                break
            high, step = low, 2 * step
        else:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if (yield from self.at(middle)).timestamp_ms < timestamp_ms:
                low = middle
            else:
                high = middle
        return (yield from self.at(low))


def _thinned(
    search: _Search, header: RootHeader, oldest: Version, limits: ExpiryLimits, until_ms: int
) -> Generator[Version, KeptVersion, list[KeptVersion]]:
    """The versions before `oldest` that stay: the last of each minute, and of each hour for older times."""
    found: list[KeptVersion] = []
    if oldest <= header.versions.oldest:
        return found
    item: KeptVersion | None = yield from search.at(oldest - 1)
    while item is not None:
        span_ms = _span_ms(until_ms, item.timestamp_ms, limits)
        if span_ms is None:
            break
        found.append(item)
        item = yield from search.last_before(item.timestamp_ms // span_ms * span_ms, item.version)
    return found


def _thinned_before(before: tuple[KeptVersion, ...], until_ms: int, limits: ExpiryLimits) -> set[Version]:
    """The versions kept by an earlier expiry that stay: the last of its minute or hour, and young enough."""
    last: dict[tuple[int, int], Version] = {}
    for item in before:
        span_ms = _span_ms(until_ms, item.timestamp_ms, limits)
        if span_ms is not None:
            last[span_ms, item.timestamp_ms // span_ms] = item.version
    return set(last.values())


def _span_ms(until_ms: int, timestamp_ms: int, limits: ExpiryLimits) -> int | None:
    """Of versions of this age, one stays for each span of this length (ms). `None` if none stays."""
    age_ms = until_ms - timestamp_ms
    if age_ms <= limits.minutes_s * 1_000:
        return _MINUTE_MS
    return _HOUR_MS if age_ms <= limits.hours_s * 1_000 else None


def _at_most(rows: list[KeptVersion], named: set[int]) -> tuple[KeptVersion, ...]:
    """The versions that fit into a page: all that have tags (`named`), then the newest others."""
    too_many = len(rows) - KEPT_MAX
    if too_many <= 0:
        return tuple(rows)
    untagged = [item for item in rows if item.version not in named]
    left_out = {item.version for item in untagged[:too_many]}
    return tuple(item for item in rows if item.version not in left_out)


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """A purge. `made_from_version`: the version that dropped the table.

    `entries`, `data_bytes`: the number of data files that will be deleted, and their bytes.
    """

    made_from_version: Version
    entries: int
    data_bytes: int

    @property
    def leaf_count(self) -> int:
        """The number of new leaves, which is 0."""
        return 0

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Make the intent of the purge. There are no objects to store."""
        return WrittenPlan((), stamp.intent(IntentKind.PURGE, self.made_from_version))


def purge_due_ms(head: RootHeader, definition: TableDefinition) -> int | None:
    """The time at which the dropped table is purged, in milliseconds since the epoch.

    `None` if it is not purged automatically, or was not dropped.

    Raises:
        Invalid: `property-invalid`, the switch of sweeps or the retention of a dropped table is unusable.
    """
    if not head.is_tombstone or head.name.drops[-1].is_purged:
        return None
    if not checked_switch(definition.properties, SWEEP_PROPERTY):
        return None
    checked_number(definition.properties, KEPT_PROPERTY, KEPT_S_DEFAULT)
    return kept_until_ms(head.name.drops[-1], definition)


def plan_purge(head: RootHeader, definition: TableDefinition, now_ms: int) -> PurgePlan | None:
    """The purge that is due at `now_ms`, or `None`. `now_ms` is the store's time.

    Raises the errors of `purge_due_ms`.
    """
    due_ms = purge_due_ms(head, definition)
    if due_ms is None or now_ms < due_ms:
        return None
    return PurgePlan(head.name.drops[-1].version, head.totals.data_files, head.totals.data_bytes)
