"""Dropping a table, and bringing a dropped one back.

Owns: the intents, made from what the name's newest root says. Does not own: their rules (`rootline.tree.intents.drop`).
Invariants: the intent names the table that was seen, so that one which was made meanwhile is never hit.
"""

from __future__ import annotations

from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import commit_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.root_reader import newest_root, table_root
from rootline.tree.state.name_state import check_is_table


async def drop_table(
    session: Session, stamp: WriterStamp, table: TableName, *, is_purge: bool, timeout_s: float
) -> Commit:
    """Drop the table that has the name now; a purge also takes one that was dropped before.

    Raises:
        Invalid: `table-unknown`, `table-dropped`; `table-uuid-mismatch`, another table has the name by now.
        OutcomeUnknown: `verdict-timeout`.

    """
    root = await newest_root(session.store, table) if is_purge else None
    if root is None or not root.header.is_tombstone:
        root = await table_root(session.store, table)
    kind = IntentKind.PURGE if is_purge else IntentKind.DROP
    return await commit_intent(session, stamp, _intent(session, root.header, kind), timeout_s=timeout_s)


async def restore_table(session: Session, stamp: WriterStamp, table: TableName, *, timeout_s: float) -> Commit:
    """Bring the table back that was dropped last, as it was.

    Raises:
        Invalid: `table-unknown`; `table-exists`, a table has the name; `name-is-view`; `table-dropped`, it was purged.
        OutcomeUnknown: `verdict-timeout`.

    """
    root = await newest_root(session.store, table)
    if root is None:
        root = await table_root(session.store, table)
    header = root.header
    if not header.is_tombstone:
        check_is_table(header)
        raise Invalid(
            "table-exists", f"{table} is there: `rootline restore {table}` takes it back to an earlier version"
        )
    ref = VersionReference(version=header.drops[-1].version)
    return await commit_intent(session, stamp, _intent(session, header, IntentKind.RESTORE, ref), timeout_s=timeout_s)


def _intent(session: Session, head: RootHeader, kind: IntentKind, ref: VersionReference | None = None) -> Intent:
    return Intent(
        intent_id=session.environment.fresh_id(), table=head.table, table_uuid=head.table_uuid, kind=kind, ref=ref
    )
