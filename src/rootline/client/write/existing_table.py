"""Whether a table is there already, with the definition that a caller is about to create it with.

Owns: the comparison, and what differs in words. Does not own: creating tables (`create_table`).
Invariants: nothing is changed; what a definition gets by itself is no difference.
"""

from __future__ import annotations

from rootline.client.session.session import Session
from rootline.maintenance.expiry_limits import EXPIRE
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.table_head import newest_root
from rootline.tree.state.name_state import check_is_table


async def is_there(session: Session, table: TableName, wanted: TableDefinition) -> bool:
    """Whether `table` exists; its definition is then `wanted`, but for its id.

    Raises:
        Invalid: `table-exists`, with another definition; the message says what differs. `name-is-view`.

    """
    root = await newest_root(session.store, table)
    if root is None or root.header.is_tombstone:
        return False
    check_is_table(root.header)
    differences = _differences(await read_definition(session.store, root.header), wanted)
    if differences:
        raise Invalid(
            "table-exists",
            f"{table} exists with another definition: {'; '.join(differences)}; open it with lake.table, or choose "
            "another name",
        )
    return True


def _differences(stored: TableDefinition, wanted: TableDefinition) -> list[str]:
    pairs = {
        "the schema": (stored.schema.fields, wanted.schema.fields),
        "partition_by": (_partitioning(stored), _partitioning(wanted)),
        "the expressions": (stored.expressions, wanted.expressions),
        "the properties": (_properties(stored), _properties(wanted)),
    }
    return [
        f"{what}: {_shown(there)} there, {_shown(given)} given"
        for what, (there, given) in pairs.items()
        if there != given
    ]


def _partitioning(definition: TableDefinition) -> object:
    return definition.spec_by_id(definition.default_spec_id)


def _properties(definition: TableDefinition) -> dict[str, str]:
    """Without what a definition gets when no one says anything about it, and older tables do not have."""
    return {name: value for name, value in definition.properties.items() if (name, value) != (EXPIRE, "true")}


def _shown(part: object) -> str:
    return ", ".join(map(str, part)) if isinstance(part, tuple) else str(part)
