"""What every plan can do: write itself, as objects to store and the intent to publish after them.

Owns: the shape of a plan and of what it writes. Does not own: the plans (`*_plan`), storing and publishing
(`rootline.workers.jobs.maintenance_job`).
Invariants: pure; a plan that is written twice with one stamp gives the same objects under the same names.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Protocol

from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.pending_object import PendingObject


@dataclass(frozen=True, slots=True)
class IntentStamp:
    """Whose intent it is, and of which table. `intent_id`: fresh, 32 hex digits; new objects are named after it."""

    intent_id: str
    table: TableName
    table_uuid: uuid.UUID
    writer_id: str
    writer_sequence: int

    def object_uuid(self, number: int) -> uuid.UUID:
        """For the name of the plan's object `number`: no other object has it."""
        return uuid.uuid5(uuid.UUID(self.intent_id), str(number))

    def intent(self, kind: IntentKind, made_from_version: Version, **cargo: Any) -> Intent:
        """The intent of this stamp; `cargo`: the fields of `Intent` that `kind` carries."""
        return Intent(
            intent_id=self.intent_id,
            table=self.table,
            table_uuid=self.table_uuid,
            kind=kind,
            writer_id=self.writer_id,
            writer_sequence=self.writer_sequence,
            made_from_version=made_from_version,
            **cargo,
        )


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """A plan as bytes: `objects` to store, and then `intent` to publish."""

    objects: tuple[PendingObject, ...]
    intent: Intent


class Plan(Protocol):
    """What is to be done to one root of a table."""

    @property
    def made_from_version(self) -> Version:
        """The root's."""
        ...

    @property
    def leaf_count(self) -> int:
        """New leaves."""
        ...

    @property
    def entries(self) -> int:
        """Entries that move."""
        ...

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """The objects and the intent; the same arguments give the same bytes and names. Encoding takes a while.

        Raises:
            Invalid: `leaf-invalid`, `statistics-invalid`, a leaf cannot hold an entry.

        """
        ...
