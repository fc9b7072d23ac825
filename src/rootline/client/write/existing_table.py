"""The check whether a table that a caller is about to create exists already.

Owns: the comparison, and what of it is reported. Does not own: creation (`create_table`), definitions
(`definition_builder`).
Invariants: a table that has every column that the caller names is what was wanted, however it has evolved; nothing of
it is changed.
"""

from __future__ import annotations

from rootline.client.session.session import Session
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import newest_root, read_definition
from rootline.tree.state.name_state import check_is_table


async def is_there(session: Session, table: TableName, wanted: TableDefinition) -> bool:
    """Whether `table` exists. It has every column of `wanted` then.

    Raises:
        Invalid: `table-exists`, it lacks columns, which the message names. `name-is-view`.

    """
    root = await newest_root(session.store, table)
    if root is None or root.header.is_tombstone:
        return False
    check_is_table(root.header)
    there = {field.name for field in (await read_definition(session.store, root.header)).schema.fields}
    missing = [field.name for field in wanted.schema.fields if field.name not in there]
    if missing:
        raise Invalid(
            "table-exists",
            f"{table} exists and lacks the columns {', '.join(map(repr, missing[:20]))}: open it with lake.table and "
            "add them (table.alter().union_by_name), or choose another name",
        )
    return True
