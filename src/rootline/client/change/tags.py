"""Naming versions: set, move, delete and list tags.

Owns: the intents, made from what the head says of a tag. Does not own: what a tag may be (`rootline.tree.intents.tag`).
Invariants: a tag that someone else moved meanwhile is not moved again unseen.
"""

from __future__ import annotations

from rootline.client.read.time_travel import read_addressable, read_head, version_of_tag
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import commit_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.root_header import RootHeader
from rootline.tree.intents.tag import check_tag_name


async def set_tag(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    name: str,
    version: int | None,
    *,
    may_move: bool,
    timeout_s: float,
) -> Commit:
    """Let tag `name` be at `version` (`None`: the newest).

    Raises:
        Invalid: `tag-invalid`, `version-unknown`; `tag-conflict`, it is elsewhere and may not move, or moved meanwhile.
        OutcomeUnknown: `verdict-timeout`.

    """
    head = (await read_head(session.store, table)).header
    wanted = int(head.version) if version is None else version
    (await read_addressable(session.store, head, wanted)).check(wanted)
    seen = head.tags.get(check_tag_name(name))
    if seen not in (None, wanted) and not may_move:
        raise Invalid(
            "tag-conflict", f"{table}: tag {name!r} is at version {seen} already; to move it, give move=True (`--move`)"
        )
    reference = VersionReference(version=wanted, tag=name, seen_version=seen)
    return await commit_intent(session, stamp, _intent(session, head, reference), timeout_s=timeout_s)


async def delete_tag(session: Session, stamp: WriterStamp, table: TableName, name: str, *, timeout_s: float) -> Commit:
    """Delete tag `name`; its version stays addressable as long as any other.

    Raises:
        Invalid: `tag-unknown`; `tag-conflict`, someone moved it meanwhile.
        OutcomeUnknown: `verdict-timeout`.

    """
    head = (await read_head(session.store, table)).header
    reference = VersionReference(tag=name, seen_version=version_of_tag(head, name))
    return await commit_intent(session, stamp, _intent(session, head, reference), timeout_s=timeout_s)


def _intent(session: Session, head: RootHeader, reference: VersionReference) -> Intent:
    return Intent(
        intent_id=session.environment.fresh_id(),
        table=head.table,
        table_uuid=head.table_uuid,
        kind=IntentKind.TAG,
        ref=reference,
    )
