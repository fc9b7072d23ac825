"""Making and committing the intent of a planned change, which names the files and rows that it read in one version.

Owns: the options of every change by filter, and the fields that all such intents share. Does not own: the plan and its
rows (`row_changes`), planning again (`rootline.storage.replanning`).
Invariants: an intent names the version that it was planned from. A removed file is named with its delete vector at that
version, so a concurrent delete is never undone. Each plan makes a new intent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rootline.client import checks
from rootline.client.matched_rows import seen_vector
from rootline.client.new_files import NewFiles, verdict_on
from rootline.client.planned_files import FilePlan
from rootline.client.session import Commit, Session, WriterStamp, commit_of
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest, AddedVector, Intent, IntentKind, Isolation, RemovedFile
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict
from rootline.storage.replanning import Patience, drive_async
from rootline.tree.scan.file_task import FileTask

_NO_FILES: Final = NewFiles()


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options of every change by filter. `target_bytes` is the size of the data files that it writes."""

    timeout_s: float
    isolation: Isolation
    target_bytes: int
    summary: Mapping[str, str]

    @staticmethod
    def of(
        isolation: Isolation | str, timeout_s: float, target_bytes: int, summary: Mapping[str, str] | None
    ) -> ChangeOptions:
        """A caller's options, checked. Raises `Invalid` (`setting-invalid`)."""
        try:
            checked = Isolation(isolation)
        except ValueError as error:
            known = " or ".join(Isolation)
            raise Invalid("setting-invalid", f"isolation {isolation!r:.80}: write {known}") from error
        wait_s, checked_bytes, kept = checks.write_options(timeout_s, target_bytes, summary)
        return ChangeOptions(wait_s, checked, checked_bytes, kept)


def planned_intent(
    session: Session,
    plan: FilePlan,
    kind: IntentKind,
    summary: Mapping[str, str],
    *,
    isolation: Isolation = Isolation.SNAPSHOT,
    where: str | None = None,
    added: NewFiles = _NO_FILES,
    vectors: tuple[AddedVector, ...] = (),
    vector_leaves: tuple[AddedManifest, ...] = (),
    removed: Iterable[FileTask] = (),
    definition: TableDefinition | None = None,
    changes: str | None = None,
) -> Intent:
    """A new intent made from `plan`. `where` is the filter for its conflict check, and `removed` are files of the plan.

    If `definition` differs from the plan's, `changes` are the steps between the two.
    """
    return Intent(
        intent_id=session.environment.fresh_id(),
        table=plan.table,
        table_uuid=plan.definition.table_uuid,
        kind=kind,
        schema_id=(definition or plan.definition).current_schema_id,
        read_version=plan.root.header.version,
        read_sequence_number=plan.sequence_number,
        isolation=isolation,
        filter=where,
        add_data_files=added.files,
        add_manifests=(*added.leaves, *vector_leaves),
        add_vectors=vectors,
        remove_files=tuple(RemovedFile(location=task.location, vector=seen_vector(task)) for task in removed),
        definition=changes,
        summary=dict(summary),
    )


async def commit_planned(
    session: Session,
    stamp: WriterStamp,
    plan_intent: Callable[[], Awaitable[Intent | None]],
    *,
    timeout_s: float,
) -> Commit | None:
    """Commit the intent that `plan_intent` makes for the current head. If another change wins, make and commit a new
    one, while time is left and at most `REPLANS_MAX` times.

    Returns:
        The commit, or `None` if `plan_intent` found nothing to change. Nothing was published then.

    Raises:
        Invalid: a rejection that a new plan cannot fix, or could not fix in time; any error of `plan_intent`.
        OutcomeUnknown: `verdict-timeout`.
    """
    verdict = await verdict_on_planned(session, stamp, plan_intent, timeout_s=timeout_s)
    return None if verdict is None else commit_of(verdict)


async def verdict_on_planned(
    session: Session,
    stamp: WriterStamp,
    plan_intent: Callable[[], Awaitable[Intent | None]],
    *,
    timeout_s: float,
) -> Verdict | None:
    """Do the same as `commit_planned`, and return the last verdict, which may be a rejection."""
    patience = Patience.of(timeout_s, session.environment.monotonic_s, session.environment.jitter)

    async def publish(intent: Intent) -> Verdict:
        wait_s = patience.verdict_wait_s
        return await verdict_on(session, stamp, intent, timeout_s=wait_s, content=stamp.content)

    return await drive_async(plan_intent, publish, patience.delay_of)
