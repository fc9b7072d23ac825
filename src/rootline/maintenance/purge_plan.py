"""Whether a table that was dropped some time ago is purged now.

Owns: the choice. Does not own: how long a dropped table is kept, which coordinators hold workers to
(`rootline.tree.intents.drop`), what is deleted then (expiry and the sweep).
Invariants: pure; only a table that asks for sweeps is purged by itself: without them nothing would be gained, and it
could not come back; the intent names the drop that was seen, so one that comes late hits nothing else.

Source: docs/decisions/0081.
"""

from __future__ import annotations

from dataclasses import dataclass

from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.maintenance.property_values import checked_number, checked_switch
from rootline.maintenance.sweep_limits import SWEEP_PROPERTY
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import IntentKind
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.intents.drop import KEPT_PROPERTY, KEPT_S_DEFAULT, kept_until_ms


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """`made_from_version`: that of the drop. `entries`: the data files that go, with `data_bytes`."""

    made_from_version: Version
    entries: int
    data_bytes: int

    @property
    def leaf_count(self) -> int:
        """New leaves: none."""
        return 0

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """The intent; as `Plan.write`."""
        return WrittenPlan((), stamp.intent(IntentKind.PURGE, self.made_from_version))


def purge_due_ms(head: RootHeader, definition: TableDefinition) -> int | None:
    """The time at which the dropped table is purged, in milliseconds since the epoch.

    `None`: it is not purged automatically, or was not dropped.

    Raises:
        Invalid: `property-invalid`, the switch of sweeps or the time that a dropped table is kept cannot be used.

    """
    if not head.is_tombstone or head.drops[-1].is_purged:
        return None
    if not checked_switch(definition.properties, SWEEP_PROPERTY, default=False):
        return None
    checked_number(definition.properties, KEPT_PROPERTY, KEPT_S_DEFAULT)
    return kept_until_ms(head.drops[-1], definition)


def plan_purge(head: RootHeader, definition: TableDefinition, now_ms: int) -> PurgePlan | None:
    """What is due at `now_ms`, by the store's date. Raises as `purge_due_ms`."""
    due_ms = purge_due_ms(head, definition)
    if due_ms is None or now_ms < due_ms:
        return None
    return PurgePlan(head.drops[-1].version, head.totals.data_files, head.totals.data_bytes)
