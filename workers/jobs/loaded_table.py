"""A table in memory for plans that look at all of its files; leaves that a job has read before are not read again."""

from __future__ import annotations

from rootline.maintenance.data_compaction_plan import TableFiles
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, Status
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.table_loader import load_state
from rootline.workers.jobs.job import JobContext


async def read_table_files(
    context: JobContext, table: TableName, root: Root, definition: TableDefinition
) -> TableFiles:
    """The files of `root`. Raises `Unavailable`, `Corrupt`."""
    rows = [row.entry for row in root.rows if row.entry.content_type in LEAF_TYPES]
    live = [entry for entry in rows if entry.version_info.status is not Status.DELETED]
    leaves = await context.leaves.leaves(context.reads, table, live, definition)
    return TableFiles(await load_state(context.reads, root, known_leaves=leaves))
