"""Decide intents one after the other: the table they are for, the ledger, the shared rules, the rules of the kind.

Owns: the order of the checks, and the record of each decision. Does not own: the rules of each kind (`kinds`).
Invariants: Every record gets one verdict, with its outcome and ledger entry. A rejected intent does not change the
draft. Only `Invalid` rejects an intent. Any other error is not the intent's fault and stops the batch.

Source: protocol page, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from rootline.schemas.errors import Internal, Invalid, RootlineError
from rootline.schemas.identifiers import SequenceNumber, TableName, Version, WriterId
from rootline.schemas.intent import Intent, Isolation
from rootline.schemas.intent_rules import BEGINNING_KINDS, MAINTENANCE_KINDS, VIEW_KINDS, IntentKind
from rootline.schemas.parts.ledger import RejectedSequence
from rootline.schemas.verdict import Verdict
from rootline.tree.commit import verdicts
from rootline.tree.commit.arrival_rules import (
    added_locations,
    check_arrival,
    check_not_condemned,
    retirement_of,
    was_committed_before,
)
from rootline.tree.commit.table_rules import (
    AFTER_CREATE,
    AFTER_DROP,
    check_kind_of_name,
    check_name_is_free,
    is_of_this_table,
)
from rootline.tree.draft.batch import NO_NEEDS, FetchedObjects, Needs, Record
from rootline.tree.draft.change import Beginning, Change
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.root_room import check_room
from rootline.tree.draft.summary import check_user_summary
from rootline.tree.intents.create import after_drop, create_again
from rootline.tree.intents.fast_append import fast_append_row
from rootline.tree.intents.kinds import KINDS
from rootline.tree.intents.redefinition import redefinition
from rootline.tree.intents.replace import check_meant_for_this
from rootline.tree.intents.view import create_view
from rootline.tree.ledger.contents import ContentDraft
from rootline.tree.ledger.ledger import (
    VERSION_FORGOTTEN,
    LedgerDraft,
    committed_version,
    rejection_of,
    with_committed,
    with_rejected,
)
from rootline.tree.ledger.outcomes import OutcomeDraft
from rootline.tree.rules.file_rules import check_named_once
from rootline.tree.rules.isolation_rules import check_isolation
from rootline.tree.rules.verified_files import files_to_verify
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState

MESSAGE_CHARS_MAX = 300
"""The length of a rejection's message. The root keeps it until the verdict is published, the ledger longer."""


class Decisions:
    """The decisions of a batch so far. `draft` is `None` while there is no table."""

    def __init__(
        self, parent: TableState | None, table: TableName, fetched: FetchedObjects, log_retention_s: int
    ) -> None:
        self.table = table
        self.draft: Draft | None = None if parent is None else Draft.on(parent)
        if self.draft is not None:
            self.draft.log_retention_s = log_retention_s
        self.version = Version(0 if parent is None else parent.header.version + 1)
        self.verdicts: list[Verdict] = []
        self.objects: list[PendingObject] = []
        self.summary: dict[str, str] = {}
        self.needs = NO_NEEDS
        """Objects to fetch before the batch can be applied."""
        self.ledger = (
            LedgerDraft({}) if parent is None else LedgerDraft(parent.header.ledger.writers, parent.known_pages.ledger)
        )
        self.contents = ContentDraft(() if parent is None else parent.header.ledger.contents)
        self.outcomes = OutcomeDraft(self.version)
        self._fetched = fetched
        self._was_tombstone = parent is not None and parent.header.is_tombstone
        self._has_committed = False
        self._has_changed_name = False

    def ends_before(self, record: Record) -> bool:
        """Whether `record` must wait for the next root.

        One root creates, drops or restores the table of its name at most once. A new or purged table contains nothing
        of the earlier intents in its root: they would be committed without a trace.
        """
        if self.draft is None or not self._has_committed or record.refusal is not None:
            return False
        kind, is_tombstone = record.intent.kind, self.draft.is_tombstone
        if kind is IntentKind.PURGE or (is_tombstone and kind in BEGINNING_KINDS):
            return True
        return self._has_changed_name and kind in (AFTER_DROP if is_tombstone else AFTER_CREATE)

    def decide(self, record: Record) -> None:
        """Decide the next record, or add the objects it needs to `needs`."""
        intent, draft = record.intent, self.draft
        try:
            is_same = draft is not None and is_of_this_table(draft, intent)
        except Invalid as error:  # the ledger belongs to another table
            self._reject(record, error.code, error.message, in_ledger=False)
            return
        if is_same and self._known_to_ledger(record):
            return
        if record.refusal is not None:  # not in the ledger: the writer name may belong to somebody else
            self._reject(record, *record.refusal, in_ledger=False)
            return
        try:
            row = None if draft is None or not draft.is_table else fast_append_row(draft, intent)
            if self.draft is not None and row is not None:
                if self.draft.retired and retirement_of(self.draft, row.entry.location):
                    self._duplicate(record, self.draft)
                    return
                if self.draft.sweeps and self._waits_for_dates(record, [row.entry.location]):
                    return
                self._commit(record, self.draft, self.draft.accept_row(row))
                return
            outcome = (
                _beginning_of(self.table, record, self._fetched) if self.draft is None else self._change_of(record)
            )
            if self.draft is not None and isinstance(outcome, Change):
                if was_committed_before(self.draft, intent, outcome):
                    self._duplicate(record, self.draft)
                    return
                if self.draft.sweeps:
                    outcome = self._check_change(record, outcome)
        except Invalid as error:
            self._reject(record, error.code, error.message)
            return
        except RootlineError:
            raise
        except Exception as error:
            raise Internal(
                "invariant-broken",
                f"{self.table}: intent {intent.intent_id} at {tuple(record.position)} could not be decided: {error!r}",
            ) from error
        if isinstance(outcome, Needs):
            self.needs |= outcome
            return
        if isinstance(outcome, Beginning):
            self.draft = Draft.beginning(outcome, self.draft)
            self.draft.table = self.table
            if self.draft.is_first and self.version > 0:
                self.ledger, self.contents = LedgerDraft({}), ContentDraft(())
            outcome = outcome.change
        self.objects += outcome.objects
        draft = self.draft
        if draft is None:
            raise Internal("invariant-broken", f"{self.table}: a change was decided, but there is no table")
        self._commit(record, draft, draft.accept(outcome))
        self._has_changed_name = draft.is_first or draft.parent is None or draft.is_tombstone is not self._was_tombstone

    def _known_to_ledger(self, record: Record) -> bool:
        intent = record.intent
        if intent.writer_id is None or intent.writer_sequence is None:
            return False
        writer = WriterId(intent.writer_id)
        known = self.ledger.parts_of(writer)
        rejection = rejection_of(known, intent.intent_id)
        if rejection is not None:
            self.ledger.put(writer, known[0])
            self.outcomes.rejected(record.position, rejection.code, rejection.message)
            self.verdicts.append(verdicts.rejected(self.table, record, rejection.code, rejection.message))
            return True
        version = committed_version(known, intent.writer_sequence)
        if version is None or self.draft is None:
            return False
        named = None if version == VERSION_FORGOTTEN else version
        if self.contents.is_another(intent, record.headers):
            in_ledger = record.refusal is None
            self._reject(record, "sequence-reused", _reused(self.table, intent, named), in_ledger=in_ledger)
            return True
        self.ledger.put(writer, known[0])
        self.outcomes.duplicate(record.position, named)
        self.verdicts.append(verdicts.duplicate(self.table, self.draft.definition.table_uuid, record, named))
        return True

    def _waits_for_dates(self, record: Record, locations: Sequence[str]) -> bool:
        """Whether dates must be read from the store before `locations` may be added. Raises `Invalid`."""
        assert self.draft is not None, "only a table has condemned files"
        needs = check_arrival(self.draft, record, locations, self._fetched)
        if needs is not None:
            self.needs |= needs
        return needs is not None

    def _change_of(self, record: Record) -> Change | Beginning | Needs:
        """The change that an intent makes to the table. Raises `Invalid`."""
        draft, intent = self.draft, record.intent
        judge = KINDS[intent.kind].judge
        assert draft is not None, "there is a root"
        if judge is None:
            check_name_is_free(draft)
            if intent.kind is IntentKind.CREATE_VIEW:
                return after_drop(draft, create_view(intent, self._fetched, record.appended_ms))
            return create_again(draft, intent, self._fetched)
        check_kind_of_name(draft, intent)
        check_meant_for_this(draft, intent)
        draft.appended_ms = record.appended_ms
        redefined = redefinition(draft, intent)
        seen = draft if redefined is None else redefined.seen(draft)
        _check_shared(seen, intent)
        needs = files_to_verify(seen, intent, self._fetched)
        if needs is not None:
            return needs
        change = judge(seen, intent, self._fetched)
        if isinstance(change, Change):
            if redefined is not None:
                change = redefined.with_change(change)
            check_room(draft, change)
        return change

    def _check_change(self, record: Record, change: Change) -> Change | Needs:
        """Check the files that a change adds to a table with a horizon or condemned files.

        Returns the change, or the dates to read from the store first. Raises `Invalid`.
        """
        draft = self.draft
        assert draft is not None, "there is a root"
        check_not_condemned(draft, [item.location for item in change.objects])
        return check_arrival(draft, record, added_locations(record.intent, change), self._fetched) or change

    def _duplicate(self, record: Record, draft: Draft) -> None:
        """Answer `duplicate`: all files of the record were committed before, in an unknown version."""
        self.outcomes.duplicate(record.position, None)
        self.verdicts.append(verdicts.duplicate(self.table, draft.definition.table_uuid, record, None))

    def _commit(self, record: Record, draft: Draft, number: SequenceNumber) -> None:
        intent = record.intent
        self._has_committed = True
        self.summary.update(intent.summary)
        self.outcomes.committed(record.position, number)
        if intent.writer_id is not None and intent.writer_sequence is not None:
            writer = WriterId(intent.writer_id)
            known = self.ledger.record_of(writer)
            self.ledger.put(writer, with_committed(known, intent.writer_sequence, self.version))
            if record.headers:
                self.contents.committed(intent, record.headers)
        self.verdicts.append(verdicts.committed(self.table, record, self.version, draft.snapshot_id, number))

    def _reject(self, record: Record, code: str, message: str, *, in_ledger: bool = True) -> None:
        """Reject a record. `in_ledger`: store the rejection in the ledger, so that a copy of the intent gets the same
        answer.
        """
        intent = record.intent
        if len(message) > MESSAGE_CHARS_MAX:
            message = message[: MESSAGE_CHARS_MAX - 1] + "…"
        self.outcomes.rejected(record.position, code, message)
        if in_ledger and intent.writer_id is not None and intent.writer_sequence is not None:
            writer = WriterId(intent.writer_id)
            known = self.ledger.record_of(writer)
            rejection = RejectedSequence(intent.writer_sequence, intent.intent_id, code, message)
            self.ledger.put(writer, with_rejected(known, rejection))
        self.verdicts.append(verdicts.rejected(self.table, record, code, message))


def _reused(table: TableName, intent: Intent, version: Version | None) -> str:
    when = "" if version is None else f" in version {version}"
    return (
        f"{table}: sequence {intent.writer_sequence} of writer {intent.writer_id!r:.80} was committed{when} with other "
        "content: publish this data under a new sequence"
    )


def _beginning_of(table: TableName, record: Record, fetched: FetchedObjects) -> Beginning | Needs:
    intent = record.intent
    begin = KINDS[intent.kind].begin
    if begin is None:
        kind, code = ("view", "view-unknown") if intent.kind in VIEW_KINDS else ("table", "table-unknown")
        raise Invalid(code, f"there is no {kind} {table}")
    return begin(intent, fetched, record.appended_ms)


def _check_shared(draft: Draft, intent: Intent) -> None:
    """Check the rules that all kinds share, on a table that exists. Raises `Invalid`."""
    definition = draft.definition
    if intent.schema_id is not None and intent.schema_id != definition.current_schema_id:
        definition.schema_by_id(intent.schema_id)
    if intent.summary:
        check_user_summary(intent.summary)
    check_named_once(intent)
    if intent.isolation is not Isolation.SNAPSHOT:
        check_isolation(draft, intent)
    made_from = intent.made_from_version if intent.kind in MAINTENANCE_KINDS else None
    if made_from is not None and made_from >= draft.version:
        raise Invalid("version-unknown", f"made_from_version {made_from} is not a version of the table yet")
