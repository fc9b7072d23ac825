"""Decide intents one after the other: the ledger first, then the rules that all kinds share, then the kind's own.

Owns: the order of the checks, and what is noted of each decision. Does not own: the rules themselves.
Invariants: every record gets one verdict, and the outcome and ledger that go with it; a rejected intent leaves no
trace in the draft; only `Invalid` rejects, everything else is not this intent's fault and stops the batch.

Source: protocol page, section 2.
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Internal, Invalid, RootlineError
from rootline.schemas.identifiers import SequenceNumber, TableName, Version, WriterId
from rootline.schemas.intent import Intent, IntentKind, Isolation
from rootline.schemas.root_header import DefinitionReference, RejectedSequence
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict
from rootline.tree.commit import answers
from rootline.tree.draft.batch import Adopting, FetchedObjects, Needs, Record, VectorAt
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.root_room import check_room
from rootline.tree.draft.summary import check_user_summary
from rootline.tree.intents.append import append, overwrite, remove
from rootline.tree.intents.compact_vectors import compact_vectors
from rootline.tree.intents.create import definition_of, stored_definition
from rootline.tree.intents.fast_append import fast_append_row
from rootline.tree.intents.file_rules import check_named_once
from rootline.tree.intents.flush import flush
from rootline.tree.intents.isolation_rules import check_isolation
from rootline.tree.intents.restore import restore
from rootline.tree.intents.rewrite import rewrite
from rootline.tree.intents.row_delta import row_delta
from rootline.tree.intents.tag import tag
from rootline.tree.ledger.ledger import (
    VERSION_FORGOTTEN,
    LedgerDraft,
    committed_version,
    rejection_of,
    with_committed,
    with_rejected,
)
from rootline.tree.ledger.outcomes import OutcomeDraft
from rootline.tree.proof.adoption import check_named
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState

MESSAGE_CHARS_MAX = 300
"""Of a rejection: the root keeps it until the verdict is published, and the ledger longer."""


class Decisions:
    """What a batch has come to so far; `draft` is `None` while there is no table."""

    def __init__(self, parent: TableState | None, table: TableName, fetched: FetchedObjects) -> None:
        self.draft: Draft | None = None if parent is None else Draft.on(parent)
        self.definition: DefinitionReference | None = None if parent is None else parent.header.definition
        self.verdicts: list[Verdict] = []
        self.objects: list[PendingObject] = []
        self.summary: dict[str, str] = {}
        self.missing_leaves: set[str] = set()
        self.missing_vectors: set[VectorAt] = set()
        self.proving: dict[str, TableDefinition] = {}
        self.missing_versions: set[Version] = set()
        self.adopting: dict[bytes, Adopting] = {}
        self.older: dict[str, tuple[ContentEntry, TableDefinition]] = {}
        self.version = Version(0 if parent is None else parent.header.version + 1)
        self.ledger = (
            LedgerDraft({}) if parent is None else LedgerDraft(parent.header.ledger, parent.known_pages.ledger)
        )
        self.outcomes = OutcomeDraft(self.version)
        self.table = table
        self._fetched = fetched

    @property
    def needs_more(self) -> bool:
        """Whether something must be fetched before anything of it counts."""
        missing = (self.missing_leaves, self.missing_vectors, self.missing_versions, self.adopting)
        return any(missing)

    def decide(self, record: Record) -> None:
        """Give the next record its verdict, or note what is missing for it."""
        intent = record.intent
        if self._known_to_ledger(record):
            return
        try:
            row = None if self.draft is None else fast_append_row(self.draft, intent)
            if self.draft is not None and row is not None:
                self._commit(record, self.draft, self.draft.accept_row(row))
                return
            change = self._change_of(intent)
            if isinstance(change, Needs):
                self.missing_leaves |= change.leaves
                self.missing_vectors |= change.vectors
                self.proving.update(change.proving)
                self.missing_versions |= change.versions
                self.adopting.update(change.adopting)
                self.older.update(change.older)
                return
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
        if self.draft is None:
            raise Internal("invariant-broken", f"{self.table}: a change without a table")
        self.objects += [PendingObject(leaf.location, leaf.body) for leaf in change.leaves]
        self._commit(record, self.draft, self.draft.accept(change))

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
            self.verdicts.append(answers.rejected(self.table, record, rejection.code, rejection.message))
            return True
        version = committed_version(known, intent.writer_sequence)
        if version is None or self.draft is None:
            return False
        named = None if version == VERSION_FORGOTTEN else version
        self.ledger.put(writer, known[0])
        self.outcomes.duplicate(record.position, named)
        self.verdicts.append(answers.duplicate(self.table, self.draft.definition.table_uuid, record, named))
        return True

    def _change_of(self, intent: Intent) -> Change | Needs:
        draft = self.draft
        if intent.kind is IntentKind.CREATE:
            return self._create(intent)
        if draft is None:
            raise Invalid("table-unknown", f"there is no table {self.table}")
        definition = draft.definition
        if intent.table_uuid is not None and intent.table_uuid.int != definition.table_uuid.int:
            raise Invalid(
                "table-uuid-mismatch",
                f"{self.table} has uuid {definition.table_uuid}, the intent names {intent.table_uuid}",
            )
        if intent.schema_id is not None and intent.schema_id != definition.current_schema_id:
            definition.schema_by_id(intent.schema_id)
        if intent.summary:
            check_user_summary(intent.summary)
        check_named_once(intent)
        if intent.isolation is not Isolation.SNAPSHOT:
            check_isolation(draft, intent)
        change = self._by_kind(draft, intent)
        if isinstance(change, Change):
            check_room(draft, change)
        return change

    def _by_kind(self, draft: Draft, intent: Intent) -> Change | Needs:
        match intent.kind:
            case IntentKind.APPEND:
                return append(draft, intent, self._fetched)
            case IntentKind.REMOVE:
                return remove(draft, intent)
            case IntentKind.OVERWRITE:
                return overwrite(draft, intent, self._fetched)
            case IntentKind.REWRITE:
                return rewrite(draft, intent)
            case IntentKind.ROW_DELTA:
                return row_delta(draft, intent, self._fetched)
            case IntentKind.FLUSH | IntentKind.COMPACT_LEAVES:
                return flush(draft, intent, self._fetched)
            case IntentKind.TAG:
                return tag(draft, intent)
            case IntentKind.RESTORE:
                return restore(draft, intent, self._fetched, self.definition)
            case IntentKind.COMPACT_VECTORS:
                return compact_vectors(draft, intent, self._fetched)
            case _:
                raise Invalid("kind-unknown", f"kind {intent.kind} is not carried out by this version")

    def _create(self, intent: Intent) -> Change | Needs:
        if self.draft is not None:
            raise Invalid("table-exists", f"{self.table} exists already")
        check_user_summary(intent.summary)
        definition = definition_of(intent)
        pending, reference = stored_definition(intent, definition)
        if intent.adopt is None:
            self.draft = Draft.of_new_table(definition)
        else:
            check_named(intent.adopt)
            key = intent.adopt.digest + reference.digest
            adopted = self._fetched.adopted.get(key)
            if adopted is None:
                return Needs(frozenset(), frozenset(), adopting={key: Adopting(intent.adopt, definition)})
            if isinstance(adopted, Invalid):
                raise adopted
            self.draft = Draft.on_adopted(adopted)
        self.definition = reference
        self.objects.append(pending)
        return Change(Effect.ADDS if intent.adopt is None else Effect.NOTHING)

    def _commit(self, record: Record, draft: Draft, number: SequenceNumber) -> None:
        intent = record.intent
        self.summary.update(intent.summary)
        self.outcomes.committed(record.position, number)
        if intent.writer_id is not None and intent.writer_sequence is not None:
            writer = WriterId(intent.writer_id)
            known = self.ledger.record_of(writer)
            self.ledger.put(writer, with_committed(known, intent.writer_sequence, self.version))
        self.verdicts.append(answers.committed(self.table, record, self.version, draft.snapshot_id, number))

    def _reject(self, record: Record, code: str, message: str) -> None:
        intent = record.intent
        if len(message) > MESSAGE_CHARS_MAX:
            message = message[: MESSAGE_CHARS_MAX - 1] + "…"
        self.outcomes.rejected(record.position, code, message)
        if intent.writer_id is not None and intent.writer_sequence is not None:
            writer = WriterId(intent.writer_id)
            known = self.ledger.record_of(writer)
            rejection = RejectedSequence(intent.writer_sequence, intent.intent_id, code, message)
            self.ledger.put(writer, with_rejected(known, rejection))
        self.verdicts.append(answers.rejected(self.table, record, code, message))
