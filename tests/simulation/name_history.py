"""What a name was after each accepted intent: which intents may be accepted then, and which may hear that they are for
something else.

Owns: this judgement, by the order of the log and what each writer had seen. Does not own: files and rows (`reference`).
Invariants: nothing is asked of a root; between two accepted intents of one partition the name was what it was after the
first, or after one of another partition that came between.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.parts.name import NameState
from rootline.schemas.verdict import Verdict, VerdictKind

Seen = Mapping[str, int | None]
"""Intent → the version that its writer had loaded when it made it; `None`: no table was there."""
_MAKES = {IntentKind.CREATE: NameState.TABLE, IntentKind.CREATE_VIEW: NameState.VIEW}
_ENDS = (IntentKind.DROP, IntentKind.PURGE, IntentKind.DROP_VIEW)
_OF_NAMES = frozenset(
    (
        "table-exists",
        "view-exists",
        "name-is-view",
        "name-is-table",
        "table-dropped",
        "table-uuid-mismatch",
        "table-uuid-missing",
        "table-replaced",
        "schema-id-missing",
        "table-unknown",
    )
)
"""Codes of rejections that say what a name is."""
_OF_ANY_SCHEMA = (IntentKind.REPLACE, IntentKind.CONVERT_EQUALITY_DELETES, *_MAKES, IntentKind.DROP_VIEW)


_NONE = uuid.UUID(int=0)


def table_of(intent: Intent, first: uuid.UUID = _NONE) -> uuid.UUID:
    """The table that an intent is for, or makes. Who names none means the `first` one of the name."""
    if intent.table_uuid is None and intent.kind in _MAKES:
        return uuid.UUID(json.loads(intent.definition or "")["table-uuid"])
    return intent.table_uuid or first


@dataclass(frozen=True, slots=True)
class NameAt:
    """Since the intent with sequence number `number`. `replaced_in`: the version; -1: it was not."""

    number: int
    table_uuid: uuid.UUID
    what: NameState = NameState.TABLE
    drops: int = 0
    replaced_in: int = -1


@dataclass(slots=True)
class NameHistory:
    """`states`: ascending."""

    states: list[NameAt]
    made: dict[tuple[str | None, int | None], set[uuid.UUID]] = field(default_factory=lambda: defaultdict(set))
    """Writer and sequence of what was accepted → the tables that it went to: each has a ledger of its own."""

    def accept(self, verdict: Verdict, intent: Intent, seen: Seen) -> None:
        """Raise `AssertionError` unless an accepted intent was for what the name was."""
        now, kind, named = self.states[-1], intent.kind, intent.table_uuid
        after = replace(now, number=verdict.sequence_number or 0)
        if kind in _MAKES:
            named = table_of(intent, now.table_uuid)
            assert now.what is NameState.TOMBSTONE, f"{intent.intent_id} made something of a {now.what}"
            assert all(state.table_uuid != named for state in self.states), f"{named} was made twice"
            after = replace(after, table_uuid=named, what=_MAKES[kind], replaced_in=-1)
        else:
            is_for_it = named == now.table_uuid or (named is None and not now.drops)
            assert is_for_it, f"{intent.intent_id} was for table {named}, and {now.table_uuid} took it"
            brings = intent.add_data_files or intent.add_equality_deletes or intent.add_manifests
            if now.replaced_in >= 0 and kind not in _OF_ANY_SCHEMA and (brings or intent.schema_id is not None):
                known = seen.get(intent.intent_id)
                is_meant = intent.schema_id is not None and known is not None and known >= now.replaced_in
                assert is_meant, f"{intent.intent_id} was made on version {known}, before the table was replaced"
        if kind in _ENDS:
            drops = now.drops + (now.what is not NameState.TOMBSTONE)
            after = replace(after, what=NameState.TOMBSTONE, drops=drops)
        if kind is IntentKind.RESTORE and now.what is NameState.TOMBSTONE:
            after = replace(after, what=NameState.TABLE)
        if kind is IntentKind.REPLACE:
            after = replace(after, replaced_in=verdict.version or 0)
        self.states.append(after)
        self.made[intent.writer_id, intent.writer_sequence].add(after.table_uuid)

    def check_duplicate(self, intent: Intent) -> None:
        """Raise `AssertionError` if what became of it is said of another table."""
        made = self.made.get((intent.writer_id, intent.writer_sequence))
        if made is not None and intent.table_uuid is not None:
            assert intent.table_uuid in made, f"{intent.intent_id} is a duplicate of what went to tables {made}"

    def check_rejections(self, decided: Sequence[tuple[Verdict, Intent]], seen: Seen) -> None:
        """Raise `AssertionError` if a name was never what a rejected intent heard; `decided`: of one partition."""
        said: set[tuple[str, str]] = set()
        numbers = [verdict.sequence_number or 0 for verdict, _ in decided]
        is_in = [verdict.kind is VerdictKind.COMMITTED for verdict, _ in decided]
        end = self.states[-1].number + 1
        before = 0
        for at, (verdict, intent) in enumerate(decided):
            before = numbers[at] if is_in[at] else before
            code = verdict.code or ""
            if code not in _OF_NAMES or (intent.intent_id, code) in said:
                continue  # it is about something else, or what was said before is said again
            after = next((numbers[later] for later in range(at, len(decided)) if is_in[later]), end)
            past = max(index for index, state in enumerate(self.states) if state.number <= before)
            states = [state for index, state in enumerate(self.states) if index >= past and state.number < after]
            assert _explains(states, verdict, intent, seen.get(intent.intent_id)), (
                f"{intent.intent_id} heard {verdict.code} between {before} and {after}, where the name was {states}"
            )
            said.add((intent.intent_id, code))


def _explains(states: Sequence[NameAt], verdict: Verdict, intent: Intent, seen: int | None) -> bool:
    """Whether one of them is what the code says."""
    match verdict.code:
        case "table-exists":
            return any(state.what is NameState.TABLE for state in states)
        case "view-exists" | "name-is-view":
            return any(state.what is NameState.VIEW for state in states)
        case "name-is-table":
            return any(state.what is NameState.TABLE for state in states)
        case "table-dropped":
            return any(state.what is NameState.TOMBSTONE for state in states)
        case "table-uuid-mismatch":
            return any(state.table_uuid != intent.table_uuid for state in states)
        case "table-uuid-missing":
            return any(state.drops for state in states)
        case "table-replaced":
            return seen is not None and any(seen < state.replaced_in for state in states)
        case "schema-id-missing":
            return intent.schema_id is None and any(state.replaced_in >= 0 for state in states)
        case _:
            return False  # there was a table before the first writer came
