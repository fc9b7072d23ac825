"""The files of one version of a table that may match a filter.

Owns: what a scan or a change starts from. Does not own: planning (`rootline.tree.scan_plan`), its reads
(`rootline.storage.table_loader`), reading rows (`file_rows`, `rootline.storage.scan_executor`).
Invariants: root, definition and tasks are of one version.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression

from rootline.client.time_travel import HEAD, PointInTime, read_root_at
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_codec import Root
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.root_reader import read_definition
from rootline.storage.table_loader import plan_scan
from rootline.tree.filters import BoundFilter
from rootline.tree.prune import PruningFilter
from rootline.tree.scan_plan import ScanPlan


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The files of `scan` belong to `root`; `pruning` is the filter that they may match."""

    root: Root
    definition: TableDefinition
    pruning: PruningFilter
    scan: ScanPlan

    @property
    def table(self) -> TableName:
        """The table's name."""
        return self.root.header.table

    @property
    def sequence_number(self) -> int:
        """The newest sequence number that the plan has seen."""
        return self.root.header.snapshot.sequence_number


async def plan_files(
    store: ObjectStore,
    table: TableName,
    where: str | BooleanExpression | BoundFilter | None = None,
    point: PointInTime = HEAD,
) -> FilePlan:
    """The live files that may match `where` in the version that `point` means.

    Raises:
        Invalid: `table-unknown`, `version-unknown`, `filter-invalid`, `equality-delete-unread`.
        Corrupt: an object is not what was written.

    """
    root = await read_root_at(store, table, point)
    definition = await read_definition(store, root.header)
    pruning = PruningFilter.of(where, definition)
    return FilePlan(root, definition, pruning, await plan_scan(store, root, definition, pruning))
