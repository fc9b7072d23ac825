"""Creating a table through the log.

Owns: the `create` intent. Does not own: the definition (`definition_builder`), root 0 (`rootline.tree`).
Invariants: the caller gets the table only after its root 0 is confirmed.
"""

from __future__ import annotations

from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import commit_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AdoptedRoot, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import find_head


async def create_table(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    definition: TableDefinition,
    *,
    timeout_s: float,
    adopt: AdoptedRoot | None = None,
) -> Commit:
    """Publish the `create` intent and wait; `adopt` names the stored root of what an Iceberg table becomes.

    Raises:
        Invalid: `table-exists`, `definition-invalid`, or what else rejects the intent; `name-differs-in-case`.
        OutcomeUnknown: `verdict-timeout`.

    """
    await find_head(session.store, table)  # a store that cannot tell this name from another one says so here
    intent = Intent(
        intent_id=session.environment.fresh_id(),
        table=table,
        kind=IntentKind.CREATE,
        definition=definition.to_json().decode(),
        adopt=adopt,
    )
    return await commit_intent(session, stamp, intent, timeout_s=timeout_s)
