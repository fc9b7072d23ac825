"""A small table that is swept: a lake whose pages of condemned locations and files' dates are at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedLocations, CondemnedPage
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import Verdict
from rootline.tree.commit.arrival_rules import DateNeed
from rootline.tree.draft.batch import ABSENT, Need, PageNeed
from rootline.tree.state.table_state import TablePages
from tests.tree.tables import TABLE_UUID, Lake, append, create, intent

DAY_MS = 24 * 3600 * 1000
YOUNGEST_MS = 8 * DAY_MS
"""Before an intent's append time: a horizon may be so young where the log keeps its records for seven days."""


@dataclass
class SweptLake(Lake):
    """`dates`: when files were stored."""

    dates: dict[str, int] = field(default_factory=dict)
    now_ms: int = 100 * DAY_MS

    def found(self, need: Need[object]) -> object:
        match need:
            case PageNeed() if need.kind is CONDEMNED_PAGES:
                return self._page(need.page.location) or ABSENT
            case DateNeed():
                return self.dates.get(need.location, ABSENT)
            case _:
                return super().found(need)

    def pages_of(self, header: RootHeader) -> TablePages:
        pages = [self._page(item.page.location) for item in header.locations.condemned]
        return super().pages_of(header).having(CONDEMNED_PAGES, [page for page in pages if page is not None])

    def sweep(
        self,
        intent_id: str,
        locations: Iterable[str] = (),
        *,
        horizon_ms: int = 0,
        replaces: Sequence[bytes] = (),
        **more: object,
    ) -> Intent:
        """Store a page as the sweep job would, and name it."""
        hashes = LocationHashes.of(map(location_hash, locations))
        page, body = CONDEMNED_PAGES.encode(TABLE_UUID, CondemnedLocations(horizon_ms, hashes, tuple(replaces)))
        self.objects[page.reference.location] = body
        reference = page.reference
        named = {"location": reference.location, "digest": reference.digest, "file_size_in_bytes": len(body)}
        header = self.head.header
        made = {"made_from_version": header.version, "read_sequence_number": header.snapshot.sequence_number}
        return intent(IntentKind.SWEEP, intent_id, page=named, **(made | more))

    @property
    def youngest_ms(self) -> int:
        """The youngest horizon that may be proposed now."""
        log_time = self.head.header.log.time
        assert log_time is not None
        return log_time.newest_ms - YOUNGEST_MS

    def days_pass(self, days: int) -> None:
        """A commit a day: one step of the log's time."""
        for day in range(days):
            self.now_ms += DAY_MS - 10
            self.put(append(f"day {self.now_ms} {day}"))

    def put_claiming(self, oldest_file_ms: int | None, *intents: Intent) -> list[Verdict]:
        """Apply a batch whose writers say how old their files are."""
        return self.put_records([replace(item, oldest_file_ms=oldest_file_ms) for item in self.records(intents)])

    def is_condemned(self, location: str) -> bool:
        return any(location_hash(location) in page.content.locations for page in self.head.pages.of(CONDEMNED_PAGES))

    def _page(self, location: str) -> CondemnedPage | None:
        body = self.objects.get(location)
        if body is None:
            return None
        return CONDEMNED_PAGES.decode_stored(
            body, location, sha256(body).digest(), len(body), TABLE_UUID, name=location
        )


def swept_lake(*intents: Intent) -> SweptLake:
    """A lake with the table, and one version for each of `intents`."""
    lake = SweptLake()
    lake.put(create())
    for item in intents:
        lake.put(item)
    return lake
