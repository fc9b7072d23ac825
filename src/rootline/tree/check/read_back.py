"""The check that a root can be read before it is committed: decoded with the code of every reader, and compared.

Owns: when a root is read back, and the comparison. Does not own: the rules between two roots (`invariants`), the rules
of a definition (`rootline.tree.proof.definition_rules`), the reaction to a fault (the commit machine refuses to write).
Invariants: Pure. A root that changes more than rows is always read back. A root that only adds or removes rows is not:
its header equals its parent's, which was read back, apart from numbers that the invariants prove.

Theory. Decoding the header of a small root takes about as long as an append. Definitions, views, tags, drops and pages
change rarely. But a root in which one of them cannot be read would be the end of the table: no later version could be
made from it.

Source: decision 0010.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from rootline.schemas.bytes.root.root_codec import Root, decode_root
from rootline.schemas.errors import Corrupt
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import Applied
from rootline.tree.parts.part_table import CARRIED_PARTS
from rootline.tree.state.table_state import PAGE_KINDS, TableState


def read_back_faults(old: TableState | None, applied: Applied) -> list[str]:
    """The differences between the new root and its decoded bytes, each as a sentence."""
    new = applied.state
    if old is not None and _rare(old.root) == _rare(new.root):
        return []
    try:
        found = decode_root(applied.body, name="the next root", known=None if old is None else old.root)
    except Corrupt as error:
        return [f"it could not be read back: {error.message}"]
    faults = [
        f"its {name} would be read differently"
        for name, is_same in (
            ("header", found.header == new.header),
            ("schema of entries", found.codec == new.root.codec),
            ("rows", [row.tail for row in found.rows] == [row.tail for row in new.root.rows]),
        )
        if not is_same
    ]
    location = new.header.definition.location
    for pending in applied.objects:
        if pending.location == location:
            faults += _faults_of_definition(pending.body, new.definition)
    return faults


def _rare(root: Root) -> tuple[object, ...]:
    """The parts of a root that most commits do not change. If they differ from the parent's, the root is read back."""
    return root.codec.schema_json, _CARRIED_IN(root.header), [kind.named_in(root.header) for kind in PAGE_KINDS]


_CARRIED_IN: Final = attrgetter(*(part.name for part in CARRIED_PARTS))


def _faults_of_definition(body: bytes, meant: TableDefinition) -> list[str]:
    try:
        found = TableDefinition.from_json(body)
    except Corrupt as error:
        return [f"its definition could not be read back: {error.message}"]
    return [] if found.to_json() == meant.to_json() == body else ["its definition would be read differently"]
