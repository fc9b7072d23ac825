"""Decide the intents of a batch one after the other, each by the same steps in the same order.

Owns: the order of the steps, the rules about the name and its tables, and the record of each decision. Does not own:
the rules of files that arrive (`arrival_rules`), those that kinds share (`rootline.tree.rules`), those of one kind
(`rootline.tree.intents.kinds`), the ledger (`rootline.tree.parts`), the form of a verdict (`verdicts`).
Invariants: If nothing must be fetched, every record gets one verdict, and its outcome. It gets a ledger entry unless it
is a copy, has no writer, or is rejected by a step in `UNRECORDED`. A rejected intent does not change the draft. Only
`Invalid` rejects an intent. Any other error is not the intent's fault and stops the batch. An intent never applies to a
table with another uuid. Once a table of the name was dropped, an intent without a uuid never applies.

The steps, in order:

    meant_for_this_table   the intent names the uuid of this table, if a table of the name was dropped
    known_to_ledger        a copy of a committed intent is a duplicate, a copy of a rejected one is rejected likewise
    permitted              the publisher has the permission
    refused_by_catalog     an intent that only states a catalog's refusal is rejected
    fast_append            an append of one file that breaks no rule becomes a row
    general_rules          any other intent passes the rules below:
      shared_rules           the rules of all kinds: name, definition, isolation, files in the store
      judged_by_kind         the rules of the intent's kind, which make the change
      room_in_root           the next root has room for the change
    committed_before       an intent whose files were all rewritten since they were committed is a duplicate
    job_has_not_moved      the streaming job of a client's commit did not move since the client read
    arrival                the new files are neither condemned nor older than the horizon

Theory. A step returns `None` to pass the intent on. Otherwise no later step runs: the intent was decided before, or
objects must be fetched first. A step that raises `Invalid` rejects the intent. An intent that passes all steps is
committed with the change that they made of it. If objects must be fetched, nothing of the batch is kept: the whole
batch is decided again with them.

The order is part of the protocol. An intent with two faults is rejected for the one that is checked first, and every
coordinator must give the same reason. Five facts explain the order:
* A ledger belongs to one table, so the table's uuid is checked before it.
* A copy of an intent in the ledger is decided by the ledger alone, whatever happened to the table since. So the ledger
  precedes every other rule. A request that a catalog refused is not committed either, also by another plan of it.
* The fast append makes a row only if no general rule would reject it (a property test compares the two). Any other
  intent takes the general rules, which give the reasons.
* Files are compared with removed and condemned ones when the whole change is known.
* A commit moves its own job. So a copy that the ledger no longer knows must have been recognized by its files before
  its job is compared: it is `file-already-live` or a duplicate. The age of files is last, as it may need the store.

Source: protocol page, section 2. Definitions page, section 2. Decisions 0067, 0132, 0134 and 0147.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.client_commits import CLIENT, CLIENT_SNAPSHOTS, REFUSED, ClientCommit, client_snapshots_word
from rootline.schemas.errors import Internal, Invalid, RootlineError
from rootline.schemas.identifiers import SequenceNumber, TableName, Version, WriterId
from rootline.schemas.intent import Intent, Isolation
from rootline.schemas.intent_rules import BEGINNING_KINDS, MAINTENANCE_KINDS, VIEW_KINDS, IntentKind
from rootline.schemas.parts.ledger import RejectedSequence
from rootline.schemas.parts.name import NAME, NameState
from rootline.schemas.parts.progress import ClientSnapshot
from rootline.schemas.verdict import Verdict
from rootline.tree.commit import verdicts
from rootline.tree.commit.arrival_rules import check_arrival, was_committed_before
from rootline.tree.draft.batch import NO_NEEDS, FetchedObjects, Needs, Record
from rootline.tree.draft.change import CHANGES_OF_ROWS, Beginning, Change
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import check_user_summary
from rootline.tree.intents.append import append, fast_append_row
from rootline.tree.intents.create_drop import after_drop, uuid_of
from rootline.tree.intents.definition import Redefinition, redefinition
from rootline.tree.intents.kinds import KINDS
from rootline.tree.intents.row_changes import check_made_for_schema
from rootline.tree.parts.ledger import (
    VERSION_FORGOTTEN,
    LedgerDraft,
    committed_version,
    refusal_of,
    rejection_of,
    with_committed,
    with_rejected,
)
from rootline.tree.parts.outcomes import OutcomeDraft
from rootline.tree.rules.client_rules import check_progress, client_commit_of, move_jobs, words_for_root
from rootline.tree.rules.file_rules import check_named_once, files_to_verify
from rootline.tree.rules.isolation_rules import check_isolation
from rootline.tree.state.addressable import dropped_words
from rootline.tree.state.table_state import PendingObject, TableState

MESSAGE_CHARS_MAX: Final = 300
"""The length of a rejection's message. The root keeps it until the verdict is published, the ledger longer."""
_OF_TOMBSTONES: Final = frozenset(
    (IntentKind.DROP, IntentKind.PURGE, IntentKind.RESTORE, IntentKind.EXPIRE, IntentKind.SWEEP)
)
_OF_VIEWS: Final = VIEW_KINDS | {IntentKind.EXPIRE, IntentKind.SWEEP}
_AFTER_DROP: Final = frozenset((IntentKind.RESTORE, IntentKind.EXPIRE, IntentKind.SWEEP))
"""Kinds that wait for the next root if this root drops or purges the table. Kinds that create a table wait too."""
_AFTER_CREATE: Final = frozenset((IntentKind.DROP, IntentKind.DROP_VIEW))
"""Kinds that wait for the next root if this root creates or restores the table. `purge` always waits."""
_BESIDE_REWRITES: Final = MAINTENANCE_KINDS | {IntentKind.REWRITE}
"""Kinds that may share a root with a rewrite of data files. All others wait for the next root."""
CLIENT_SNAPSHOTS_MAX: Final = 1_000
"""A root that lists as many snapshots of clients takes no more commits of clients. The list is in its header."""


class Duplicate(NamedTuple):
    """The intent was committed before, in `version` if that is known."""

    version: Version | None


Stop = Duplicate | RejectedSequence | Needs
"""The reason of a step that ends the steps: committed before, rejected before, or objects must be fetched first."""


def meant_for_this_table(deciding: Decisions, record: Record) -> None:
    """Reject an intent for another table of the name, and find out whether the ledger applies."""
    draft = deciding.draft
    deciding.has_ledger = draft is not None and ledger_applies(draft, record.intent)


def known_to_ledger(deciding: Decisions, record: Record) -> Duplicate | RejectedSequence | None:
    """Settle a copy of a decided intent, and a request of a client that was refused. Reject another intent with a
    committed sequence.

    A `create` may be of a request that was refused because an earlier table had the name, so that table's ledger knows.
    """
    intent = record.intent
    if intent.writer_id is None or intent.writer_sequence is None:
        return None
    writer = WriterId(intent.writer_id)
    known = deciding.ledger.parts_of(writer)
    rejection = rejection_of(known, intent.intent_id) if deciding.has_ledger else None
    rejection = rejection or refusal_of(known, writer, intent.intent_id)
    if rejection is not None:
        deciding.ledger.saw(writer)
        return rejection
    if not deciding.has_ledger:
        return None
    version = committed_version(known, intent.writer_sequence)
    if version is None:
        return None
    named = None if version == VERSION_FORGOTTEN else version
    if deciding.ledger.has_other_content(intent, record.headers):
        when = "" if named is None else f" in version {named}"
        raise Invalid(
            "sequence-reused",
            f"{deciding.table}: sequence {intent.writer_sequence} of writer {intent.writer_id!r:.80} was "
            f"committed{when} with other content: publish this data under a new sequence",
        )
    deciding.ledger.saw(writer)
    return Duplicate(named)


def permitted(deciding: Decisions, record: Record) -> None:
    """Reject an intent whose publisher lacks the permission."""
    if record.refusal is not None:
        raise Invalid(*record.refusal)


def refused_by_catalog(deciding: Decisions, record: Record) -> None:
    """Reject an intent by which a catalog refuses a client's request. The ledger then knows the request."""
    reason = record.intent.summary.get(REFUSED)
    if reason is not None:
        raise Invalid("request-refused", reason)


def fast_append(deciding: Decisions, record: Record) -> None:
    """Make the row of an append of one file that breaks no rule."""
    draft = deciding.draft
    if draft is not None and draft.is_table:
        deciding.change = fast_append_row(draft, record.intent)


def shared_rules(deciding: Decisions, record: Record) -> Needs | None:
    """Check the rules that all kinds share: name, definition, isolation, files in the store."""
    draft, intent = deciding.draft, record.intent
    if draft is None:
        return None
    if KINDS[intent.kind].judge is None:
        check_may_begin(draft, intent)
        return None
    check_kind_of_name(draft, intent)
    check_made_for_schema(draft, intent)
    draft.appended_ms = record.appended_ms
    deciding.redefined = redefinition(draft, intent)
    seen = _seen(draft, deciding.redefined)
    _check_schema(seen, intent)
    _check_summary(deciding, intent)
    check_named_once(intent)
    if intent.isolation is not Isolation.SNAPSHOT:
        check_isolation(seen, intent)
    made_from = intent.made_from_version if intent.kind in MAINTENANCE_KINDS else None
    if made_from is not None and made_from >= seen.version:
        raise Invalid("version-unknown", f"made_from_version {made_from} is not a version of the table yet")
    return files_to_verify(seen, intent, deciding.fetched)


def _check_schema(draft: Draft, intent: Intent) -> None:
    if intent.schema_id is None or intent.schema_id == draft.definition.current_schema_id:
        return
    reused = draft.definition.reused_name(intent.schema_id)
    # clients of the REST catalog state themselves which schema must be current
    adds_rows = (intent.add_data_files or intent.add_manifests) and intent.kind not in MAINTENANCE_KINDS
    if reused is not None and adds_rows and CLIENT not in intent.summary:
        raise Invalid(
            "definition-changed",
            f"{draft.table}: the rows were written for schema {intent.schema_id}, in which {reused} is another column "
            "than now: reopen the table, and rewrite them",
        )


def judged_by_kind(deciding: Decisions, record: Record) -> Needs | None:
    """Make the change by the rules of the intent's kind."""
    draft, fetched, intent = deciding.draft, deciding.fetched, record.intent
    kind = KINDS[intent.kind]
    outcome: Change | Beginning | Needs
    if draft is not None and kind.judge is not None:
        outcome = kind.judge(_seen(draft, deciding.redefined), intent, fetched)
    elif kind.begin is not None:
        _check_summary(deciding, intent)
        outcome = kind.begin(intent, fetched, record.appended_ms)
    else:
        of, code = ("view", "view-unknown") if intent.kind in VIEW_KINDS else ("table", "table-unknown")
        raise Invalid(code, f"there is no {of} {deciding.table}")
    if isinstance(outcome, Needs):
        return outcome
    if deciding.redefined is not None and isinstance(outcome, Change):
        outcome = deciding.redefined.with_change(outcome)
    if isinstance(outcome, Beginning) and kind.judge is None:
        begun = outcome if draft is None else after_drop(draft, outcome)
        outcome = _with_files(deciding, intent, begun) if intent.add_data_files or intent.add_manifests else begun
        if isinstance(outcome, Needs):
            return outcome
    deciding.change = outcome
    return None


def _with_files(deciding: Decisions, intent: Intent, begun: Beginning) -> Beginning | Needs:
    """The table with its first files, by the rules of an append to the empty table. Raises `Invalid`."""
    empty = deciding.beginning(begun)
    _check_schema(empty, intent)
    check_named_once(intent)
    added = files_to_verify(empty, intent, deciding.fetched) or append(empty, intent, deciding.fetched)
    if isinstance(added, Needs):
        return added
    empty.check_room(added)
    first = begun.change
    return replace(begun, change=Change(first.effect | added.effect, (*added.edits, *first.edits), first.objects))


def room_in_root(deciding: Decisions, record: Record) -> None:
    """Reject a change for which the root has no room."""
    draft, change = deciding.draft, deciding.change
    if draft is not None and isinstance(change, Change):
        draft.check_room(change)


def general_rules(deciding: Decisions, record: Record) -> Needs | None:
    """Check the intent by the general rules, unless it is a fast append."""
    if deciding.change is not None:
        return None
    needs = shared_rules(deciding, record) or judged_by_kind(deciding, record)
    if needs is None:
        room_in_root(deciding, record)
    return needs


def committed_before(deciding: Decisions, record: Record) -> Duplicate | None:
    """Settle an intent whose files were all committed before and rewritten since. Reject removed files."""
    draft, change = deciding.draft, deciding.change
    if draft is None or not draft.retired or change is None or isinstance(change, Beginning):
        return None
    return Duplicate(None) if was_committed_before(draft, record.intent, change) else None


def job_has_not_moved(deciding: Decisions, record: Record) -> None:
    """Reject a client's commit whose job moved since the client read."""
    draft, client = deciding.draft, deciding.client
    if client is not None and client.progress and draft is not None and not isinstance(deciding.change, Beginning):
        check_progress(draft, record.intent, client)


def arrival(deciding: Decisions, record: Record) -> Needs | None:
    """Reject condemned files and files that are older than the horizon of the table's sweeps."""
    draft, change = deciding.draft, deciding.change
    if draft is None or not draft.sweeps or change is None:
        return None
    arriving = change.change if isinstance(change, Beginning) else change
    return check_arrival(draft, record, arriving, deciding.fetched)


STEPS: Final[tuple[Callable[[Decisions, Record], Stop | None], ...]] = (
    meant_for_this_table,
    known_to_ledger,
    permitted,
    refused_by_catalog,
    fast_append,
    general_rules,
    committed_before,
    job_has_not_moved,
    arrival,
)
UNRECORDED: Final = (meant_for_this_table, permitted)
"""Steps whose rejections do not enter the ledger: it is another table's, or the writer name is somebody else's."""


class Decisions:
    """The decisions of a batch so far, and the progress of the intent that is being decided.

    * `draft`: the table after the intents accepted so far, `None` while there is no table.
    * `needs`: the objects to fetch before the batch can be applied.
    * `has_ledger`: whether the draft's ledger applies to the current intent.
    * `redefined`: the definition that the current intent gives the table, `None` if it does not change it.
    * `change`: the change that the steps have made of the current intent.
    * `client`: the client's commit that the current intent states, `None` if it states none.
    """

    def __init__(
        self,
        parent: TableState | None,
        table: TableName,
        fetched: FetchedObjects,
        log_retention_s: int,
        file_prefixes: Sequence[str],
    ) -> None:
        self.table = table
        self.fetched = fetched
        self.file_prefixes = file_prefixes
        self.draft: Draft | None = None if parent is None else Draft.on(parent)
        if self.draft is not None:
            self.draft.log_retention_s, self.draft.file_prefixes = log_retention_s, file_prefixes
        self.version = Version(0 if parent is None else parent.header.version + 1)
        self.verdicts: list[Verdict] = []
        self.objects: list[PendingObject] = []
        self.summary: dict[str, str] = {}
        self.client_snapshots: dict[int, ClientSnapshot] = {}
        self.dropped_jobs: list[str] = []
        self.needs = NO_NEEDS
        self.ledger = LedgerDraft({}) if parent is None else LedgerDraft.on(parent.header.ledger, parent.pages)
        self.outcomes = OutcomeDraft(self.version)
        self.has_ledger = False
        self.redefined: Redefinition | None = None
        self.change: Row | Change | Beginning | None = None
        self.client: ClientCommit | None = None
        self._was_tombstone = parent is not None and parent.header.is_tombstone
        self._has_committed = self._has_rewritten = False

    @property
    def words(self) -> dict[str, str]:
        """The words of the intents for the root's summary, and the list of the clients' snapshots if there are any."""
        if not self.client_snapshots:
            return self.summary
        return {**self.summary, CLIENT_SNAPSHOTS: client_snapshots_word(self.client_snapshots.values())}

    def ends_before(self, record: Record) -> bool:
        """Whether `record` must wait for the next root.

        One root creates, drops or restores the table of its name at most once. A new or purged table contains nothing
        of the earlier intents in its root: they would be committed without a trace.

        A rewrite shares its root with no change of rows, so that the root is a `replace` for Iceberg's clients.

        A root lists the snapshots of clients, so it has room for a number of them.
        """
        draft = self.draft
        if draft is None or not self._has_committed or record.refusal is not None:
            return False
        if len(self.client_snapshots) >= CLIENT_SNAPSHOTS_MAX and CLIENT in record.intent.summary:
            return True
        kind, is_tombstone = record.intent.kind, draft.is_tombstone
        if self._has_rewritten and kind not in _BESIDE_REWRITES:
            return True
        if kind is IntentKind.REWRITE and (draft.is_first or draft.effect & CHANGES_OF_ROWS):
            return True
        if kind is IntentKind.PURGE or (is_tombstone and kind in BEGINNING_KINDS):
            return True
        if kind not in (_AFTER_DROP if is_tombstone else _AFTER_CREATE):
            return False
        return draft.is_first or draft.parent is None or is_tombstone is not self._was_tombstone

    def beginning(self, begun: Beginning) -> Draft:
        """A draft of the table that begins."""
        draft = Draft.beginning(begun, self.draft)
        draft.table, draft.file_prefixes = self.table, self.file_prefixes
        return draft

    def decide(self, record: Record) -> None:
        """Decide the next record, or add the objects it needs to `needs`."""
        self.redefined = self.change = self.client = None
        stop: Stop | None = None
        step = STEPS[0]
        try:
            for step in STEPS:
                stop = step(self, record)
                if stop is not None:
                    break
        except Invalid as error:
            in_ledger = step not in UNRECORDED and record.refusal is None
            self._reject(record, error.code, error.message, in_ledger=in_ledger)
            return
        except RootlineError:
            raise
        except Exception as error:
            intent_id = record.intent.intent_id
            raise Internal(
                "invariant-broken",
                f"{self.table}: intent {intent_id} at {tuple(record.position)} could not be decided: {error!r}",
            ) from error
        if stop is None:
            self._accept(record, self.change)
        else:
            self._settle(record, stop)

    def _settle(self, record: Record, stop: Stop) -> None:
        """Give the verdict of an earlier decision, or collect the needs."""
        match stop:
            case Needs():
                self.needs |= stop
            case Duplicate(version):
                if self.draft is None:
                    raise Internal("invariant-broken", f"{self.table}: a duplicate was found, but there is no table")
                self.outcomes.duplicate(record.position, version)
                table_uuid = self.draft.definition.table_uuid
                self.verdicts.append(verdicts.duplicate(self.table, table_uuid, record, version))
            case RejectedSequence(code=code, message=message):
                self.outcomes.rejected(record.position, code, message)
                self.verdicts.append(verdicts.rejected(self.table, record, code, message))

    def _accept(self, record: Record, change: Row | Change | Beginning | None) -> None:
        """Add the change to the draft, and commit the record."""
        if isinstance(change, Beginning):
            self.draft = self.beginning(change)
            if self.draft.is_first and self.version > 0:
                self.ledger = LedgerDraft({})
            change = change.change
        draft = self.draft
        if draft is None or change is None:
            raise Internal("invariant-broken", f"{self.table}: an intent was decided, but there is no table or change")
        if isinstance(change, Row):
            number = draft.accept_row(change)
        else:
            self.objects += change.objects
            number = draft.accept(change)
        self._commit(record, draft, number)

    def _commit(self, record: Record, draft: Draft, number: SequenceNumber) -> None:
        intent = record.intent
        self._has_committed = True
        if intent.kind is IntentKind.REWRITE:
            self._has_rewritten = True
        if intent.summary:
            self._keep_words(intent, draft, number)
        self.outcomes.committed(record.position, number)
        if intent.writer_id is not None and intent.writer_sequence is not None:
            writer = WriterId(intent.writer_id)
            known = self.ledger.record_of(writer)
            self.ledger.put(writer, with_committed(known, intent.writer_sequence, self.version))
            if record.headers:
                self.ledger.put_content(intent, record.headers)
        self.verdicts.append(verdicts.committed(self.table, record, self.version, draft.snapshot_id, number))

    def _keep_words(self, intent: Intent, draft: Draft, number: SequenceNumber) -> None:
        if self.client is None:
            self.summary.update(intent.summary)
            return
        self.dropped_jobs += move_jobs(draft, intent, self.client, number)
        self.summary.update(words_for_root(intent, self.client))
        for snapshot in self.client.snapshots:
            self.client_snapshots.setdefault(snapshot.snapshot_id, snapshot)

    def _reject(self, record: Record, code: str, message: str, *, in_ledger: bool) -> None:
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


def _check_summary(deciding: Decisions, intent: Intent) -> None:
    if intent.summary:
        check_user_summary(intent.summary)
        deciding.client = client_commit_of(intent)


def _seen(draft: Draft, redefined: Redefinition | None) -> Draft:
    """The table as the rules see it: under the definition that the intent gives it."""
    return draft if redefined is None else redefined.seen(draft)


def ledger_applies(draft: Draft, intent: Intent) -> bool:
    """Whether the ledger applies to the intent: `False` for a `create` of another table.

    Raises:
        Invalid: `table-uuid-mismatch`, the intent is for another table. `table-uuid-missing`, the intent has no uuid
            and needs one.
    """
    named, known, drops = intent.table_uuid, draft.definition.table_uuid, draft.parts.of(NAME).drops
    if named is not None and named.int == known.int:
        return True
    if intent.kind is IntentKind.CREATE:
        return uuid_of(intent) == known
    if intent.kind is IntentKind.CREATE_VIEW:
        return named == known
    if named is None:
        if drops:
            raise Invalid(
                "table-uuid-missing",
                f"{draft.table}: a table of this name was dropped in version {drops[-1].version}, and "
                "the intent does not name the table it is for: set its table_uuid",
            )
        return True
    dropped_in = next((drop.version for drop in reversed(drops) if drop.table_uuid == named), None)
    after = "" if dropped_in is None else f", which was dropped in version {dropped_in}"
    raise Invalid("table-uuid-mismatch", f"{draft.table} has uuid {known}, the intent names {named}{after}")


def check_kind_of_name(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid` (`table-dropped`, `name-is-view`, `name-is-table`) if the kind does not fit the object of the
    name.
    """
    if draft.is_tombstone and intent.kind not in _OF_TOMBSTONES:
        raise Invalid("table-dropped", dropped_words(draft.table, draft.parts.of(NAME).drops[-1]))
    if draft.parts.of(NAME).state is NameState.VIEW and intent.kind not in _OF_VIEWS:
        raise Invalid("name-is-view", f"{draft.table} is a view, and an intent of kind {intent.kind} is for a table")
    if draft.is_table and intent.kind in VIEW_KINDS:
        raise Invalid("name-is-table", f"{draft.table} is a table, and an intent of kind {intent.kind} is for a view")


def check_may_begin(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid` (`table-exists`, `view-exists`, `table-dropped`, `adoption-unsupported`) unless the newest root
    is a tombstone that the new table or view can follow.

    An intent that names the version it read does not follow a table or view that was dropped since. In that one's
    ledger, a catalog may have recorded that it refuses the same request.
    """
    if draft.is_table:
        raise Invalid("table-exists", f"{draft.table} already exists: use that table, or choose another name")
    if not draft.is_tombstone:
        raise Invalid("view-exists", f"{draft.table} is a view: replace it, drop it first, or choose another name")
    drop = draft.parts.of(NAME).drops[-1]
    if intent.read_version is not None and drop.version > intent.read_version:
        raise Invalid(
            "table-dropped",
            f"{draft.table}: version {intent.read_version} was read, and version {drop.version} dropped a table or "
            "view of this name: create it again",
        )
    if intent.adopt is not None:
        raise Invalid(
            "adoption-unsupported",
            f"{draft.table} had a table that was dropped: adopt under a name that never had a table",
        )
