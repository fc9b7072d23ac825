"""Whether a table is there already, with the definition that a caller is about to create it with.

Owns: the comparison, and what of it is told. Does not own: creation (`create_table`), definitions
(`definition_builder`).
Invariants: what a definition gets when no one says anything about it is no difference, nor are ids, and specs
and orders that are not the default.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rootline.client.session.session import Session
from rootline.maintenance.expiry_limits import EXPIRE
from rootline.maintenance.sweep_limits import SWEEP_PROPERTY
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.table_head import newest_root
from rootline.tree.evolution.partition_fields import derivation_of
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
        "sort_by": (_order(stored), _order(wanted)),
        "the properties": (_properties(stored), _properties(wanted)),
    }
    return [
        f"{what}: {_shown(there)} there, {_shown(given)} given"
        for what, (there, given) in pairs.items()
        if there != given
    ]


def _partitioning(definition: TableDefinition) -> object:
    """What the default spec's members are of: ids and names of specs that changed since say nothing about that."""
    return tuple(map(partial(derivation_of, definition), definition.spec_by_id(definition.default_spec_id).expr_ids))


def _order(definition: TableDefinition) -> object:
    for order in definition.sort_orders:
        if order.order_id == definition.default_sort_order_id:
            return order.fields
    return ()


_GIVEN: Final = (EXPIRE, SWEEP_PROPERTY)


def _properties(definition: TableDefinition) -> dict[str, str]:
    """Without what a definition gets when no one says anything about it, and older tables do not have."""
    return {name: value for name, value in definition.properties.items() if value != "true" or name not in _GIVEN}


def _shown(part: object) -> str:
    return ", ".join(map(str, part)) if isinstance(part, tuple) else str(part)
