"""The reference: a table is a dictionary from file to deleted rows. Too simple to be wrong."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rootline.schemas.bytes.record_headers import content_of_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from tests.simulation.client_commits import ClientHistory
from tests.simulation.evolving import Shape
from tests.simulation.name_history import NameAt, NameHistory, Seen, table_of
from tests.simulation.names import ReferenceView, SeenVersions

_OF_TOMBSTONES = (IntentKind.CREATE, IntentKind.CREATE_VIEW, IntentKind.RESTORE, IntentKind.PURGE)
_OF_ANY_NAME = (IntentKind.EXPIRE, IntentKind.SWEEP)
_OF_VIEWS = (IntentKind.REPLACE_VIEW, IntentKind.DROP_VIEW)
_DROPS = (IntentKind.DROP, IntentKind.PURGE, IntentKind.DROP_VIEW)
_EMPTIED = (IntentKind.CREATE, IntentKind.CREATE_VIEW, IntentKind.PURGE, IntentKind.REPLACE)
_GIVES_UP = (IntentKind.PURGE, IntentKind.DROP_VIEW)
_TURNS = (*_OF_TOMBSTONES, *_DROPS, IntentKind.REPLACE, IntentKind.ALTER)
_REWRITES = (IntentKind.REWRITE, IntentKind.CONVERT_EQUALITY_DELETES)
_MAINTENANCE = (IntentKind.FLUSH, IntentKind.COMPACT_LEAVES, IntentKind.COMPACT_VECTORS)


Place = tuple[uuid.UUID, str, int]
"""A table, a writer, and a sequence of it. Each table of a name has a ledger of its own."""


@dataclass(slots=True)
class Reference:
    """`files`: location → deleted positions. `committed`: table, writer and sequence → the verdict that said so.
    `contents`: the same → what that intent does.

    `past`: (version, its files, its shape), ascending, of the versions that changed them. `leaves`: leaf → the files in
    it. `shape`: what writers go by. `view`: what the name is, if it is no table. `views`: versions that were gone
    back to.
    """

    files: dict[str, set[int]] = field(default_factory=dict)
    committed: dict[Place, Verdict] = field(default_factory=dict)
    contents: dict[Place, str] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    rewritten: set[str] = field(default_factory=set)
    """Files and equality deletes that others took the place of: who brings them again hears `duplicate`."""
    past: list[tuple[int, dict[str, set[int]], Shape | None]] = field(default_factory=lambda: [(0, {}, None)])
    turns: set[int] = field(default_factory=set)
    """The versions in which all that the name is may have become something else."""
    restores: int = 0
    replaces: int = 0
    definitions: list[str] = field(default_factory=list)
    """The changes that were accepted, in order."""
    leaves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_dropped: bool = False
    drops: int = 0
    first_schemas: int = 1
    """That its table began with."""
    shape: Shape | None = None
    view: ReferenceView | None = None
    views: SeenVersions = field(default_factory=dict)
    clients: ClientHistory = field(default_factory=ClientHistory)

    def brought_by(self, intent: Intent) -> list[str]:
        """The data files of an intent, those in its leaves included."""
        named = [added.location for added in intent.add_data_files]
        return [*named, *(name for leaf in intent.add_manifests for name in self.leaves[leaf.location])]

    def commit(self, version: int, intent: Intent, vectors: Mapping[tuple[str, int], frozenset[int]]) -> None:
        """What an intent does that `version` committed."""
        self.apply(intent, vectors)
        if self.past[-1][0] == version:
            self.past.pop()
        self.past.append((version, {name: set(deleted) for name, deleted in self.files.items()}, self.shape))
        if intent.kind in _TURNS:
            self.turns.add(version)

    def apply(self, intent: Intent, vectors: Mapping[tuple[str, int], frozenset[int]]) -> None:
        """What an accepted intent does."""
        if intent.kind in _MAINTENANCE or (intent.kind in _OF_ANY_NAME and (self.is_dropped or self.view)):
            return
        assert not self.is_dropped or intent.kind in _OF_TOMBSTONES, f"{intent.kind} of a table that is not there"
        is_of_views = intent.kind in _OF_VIEWS
        assert is_of_views is (self.view is not None), f"{intent.kind} of a {'table' if is_of_views else 'view'}"
        if intent.kind in _DROPS:
            self.is_dropped = True
            self.drops += 1
        if intent.kind in _EMPTIED:
            self.files = {}
        if intent.kind in _GIVES_UP:
            self.tags = {}
        if intent.kind is IntentKind.CREATE:
            self.tags, self.definitions, self.is_dropped, self.replaces = {}, [], False, 0
            definition = TableDefinition.from_json((intent.definition or "").encode())
            self.first_schemas, self.shape = len(definition.schemas), Shape.of(definition)
        if intent.kind is IntentKind.CREATE_VIEW:
            self.tags, self.definitions, self.is_dropped = {}, [], False
            self.first_schemas, self.shape, self.view = 1, None, ReferenceView.of(intent)
        if intent.kind is IntentKind.REPLACE_VIEW and self.view is not None:
            self.view.change(intent, self.views)
        if intent.kind is IntentKind.DROP_VIEW:
            self.view = None
        if is_of_views:
            return
        if intent.kind is IntentKind.RESTORE and intent.ref is not None:
            self.is_dropped = False
            wanted = intent.ref.version or 0
            then, self.shape = next(
                (files, shape) for version, files, shape in reversed(self.past) if version <= wanted
            )
            self.files = {name: set(deleted) for name, deleted in then.items()}
            self.restores += 1
        if intent.kind is IntentKind.REPLACE:
            self.replaces += 1
        if intent.kind is IntentKind.TAG and intent.ref is not None:
            self.tags.pop(intent.ref.tag or "", None)
            if intent.ref.version is not None:
                self.tags[intent.ref.tag or ""] = intent.ref.version
        if intent.definition is not None and intent.kind not in (IntentKind.CREATE, IntentKind.CREATE_VIEW):
            self.definitions.append(intent.definition)
            self.shape = None if self.shape is None else self.shape.after(intent.definition)
        if intent.kind in _REWRITES:
            self.rewritten |= {removed.location for removed in intent.remove_files}
        for removed in intent.remove_files:
            if removed.content_type is ContentType.DATA:
                del self.files[removed.location]
        for vector in intent.add_vectors:
            if intent.kind is IntentKind.CONVERT_EQUALITY_DELETES and vector.referenced_file not in self.files:
                continue  # it has left since
            read = vector.replaces_vector
            base = frozenset() if read is None else vectors[read.location, read.offset]
            self.files[vector.referenced_file] |= vectors[vector.location, vector.offset] - base
        for location in self.brought_by(intent):
            if location in self.files:
                raise AssertionError(f"{location} was added while it was live")
            self.files[location] = set()


def replay(
    decided: Iterable[tuple[Verdict, Intent]],
    vectors: Mapping[tuple[str, int], frozenset[int]],
    leaves: Mapping[str, Sequence[str]],
    first: TableDefinition,
    views: SeenVersions,
    seen: Seen,
) -> Reference:
    """Apply a table's accepted intents in the order of their sequence numbers.

    Raises:
        AssertionError: a (writer, sequence) was committed twice to one table, a duplicate was called so without a
            commit, or an intent that was sent again was called another one, or one was for another table than took it,
            or for what was there before the table was replaced, or heard of its name what was not so.
    """
    shape = Shape.of(first)
    reference = Reference(leaves=leaves, views=views, shape=shape, past=[(0, {}, shape)])
    names = NameHistory([NameAt(0, first.table_uuid)])
    own = [
        (verdict, intent, (table_of(intent, first.table_uuid), intent.writer_id, intent.writer_sequence))
        for verdict, intent in decided
        if intent.writer_id is not None and intent.writer_sequence is not None
    ]
    accepted = [item for item in own if item[0].kind is VerdictKind.COMMITTED]
    for verdict, intent, place in sorted(accepted, key=lambda item: item[0].sequence_number or 0):
        assert place not in reference.committed, f"{place} was committed twice"
        reference.committed[place] = verdict
        reference.contents[place] = content_of_intent(intent)
        assert verdict.version is not None
        names.accept(verdict, intent, seen)
        reference.commit(verdict.version, intent, vectors)
        reference.clients.accept(verdict, intent)
    for partition in {verdict.partition for verdict, _, _ in own}:
        names.check_rejections([item[:2] for item in own if item[0].partition == partition], seen)
    for verdict, intent, place in own:
        first = reference.committed.get(place)
        if verdict.kind is VerdictKind.REJECTED and first is not None and first.intent_id == intent.intent_id:
            before_the_table = verdict.code in ("table-unknown", "table-uuid-mismatch", "table-dropped", "table-exists")
            assert before_the_table, f"{place} was committed, and its receipt called rejected: {verdict.code}"
        if verdict.code == "sequence-reused":
            assert place in reference.contents, f"{place} was called used, but never committed"
            assert reference.contents[place] != content_of_intent(intent), f"{place} was sent again, and called reused"
        if verdict.kind is VerdictKind.DUPLICATE:
            names.check_duplicate(intent)
            first = reference.committed.get(place)
            is_later = first is not None and (first.partition != verdict.partition or first.offset < verdict.offset)
            if not is_later and (first is None or first.intent_id != intent.intent_id):  # its number was not used by it
                brought = {*reference.brought_by(intent), *(item.location for item in intent.add_equality_deletes)}
                was_here = bool(brought) and brought <= reference.rewritten
                assert was_here, f"{place} was called a duplicate, but never committed, and its files not rewritten"
                continue
            assert is_later, f"{place} was called a duplicate before it was committed"
    return reference
