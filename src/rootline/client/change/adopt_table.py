"""Making an Iceberg table of V1 to V3 a table of this lake, without rewriting a file.

Owns: the order: plan, store the root that says what is adopted, publish the `create`, wait. Does not own: the plan
(`rootline.catalog.adoption_plan`), the rules and root 0 (`rootline.tree`).
Invariants: a dry run writes nothing; nothing of the Iceberg table is ever written or deleted; the caller gets the
table only after its root 0 is confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rootline.catalog.adoption_plan import AdoptionPlan, plan_adoption
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.upload import upload_all
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.create_table import create_table
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import is_absolute
from rootline.storage.metadata.root_reader import newest_root

ADOPTION_TIMEOUT_S = 600.0
"""For the verdict: the coordinator reads every manifest before it commits."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was adopted, or would be; `commit` is `None` after a dry run."""

    plan: AdoptionPlan
    commit: Commit | None = None


def absolute(location: str) -> str:
    """`location` as a URL: a path of this machine becomes one, everything else stays."""
    if location.startswith("/"):
        return f"file://{location}"
    return location if is_absolute(location) else f"file://{Path(location).resolve()}"


async def adopt_table(
    session: Session, stamp: WriterStamp, table: TableName, location: str, *, dry_run: bool, timeout_s: float
) -> Adopted:
    """Plan, and unless it is a dry run, publish and wait.

    Raises:
        Invalid: `table-exists`; `metadata-unreadable`, `adoption-unsupported`, `adoption-invalid`, `file-unreadable`.
        Corrupt: `object-missing`, `leaf-corrupt`: of what the metadata names.
        OutcomeUnknown: `verdict-timeout`.

    """
    root = await newest_root(session.store, table)
    if root is not None:
        there = "had a table that was dropped" if root.header.is_tombstone else "exists already"
        raise Invalid("table-exists", f"{table} {there}; adopt under another name")
    plan = await plan_adoption(session.store, table, absolute(location))
    if dry_run:
        return Adopted(plan)
    await upload_all(session, table, [(plan.named.location, plan.body)])
    commit = await create_table(session, stamp, table, plan.definition, timeout_s=timeout_s, adopt=plan.named)
    return Adopted(plan, commit)
