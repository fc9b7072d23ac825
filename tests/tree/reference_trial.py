"""The same plans applied to the reference model, and to lakes in batches and one by one, compared after each batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rootline.schemas.bytes.record_headers import content_headers
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.client_commits import CLIENT, client_snapshots_in
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.intent_rules import MAINTENANCE_KINDS
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import Operation
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.draft.batch import Record
from rootline.tree.state.addressable import Addressable
from tests.support.state_rules import state_violations
from tests.tree.drawn_plans import Draw, plan_of
from tests.tree.kept_pages import expire, planned
from tests.tree.lake_rows import ranked, rows_by_sequence
from tests.tree.planned_intents import FIRST_COLUMNS, intent_of, location, made_by
from tests.tree.reference_model import Outcome, ReferenceTable
from tests.tree.reference_plan import Plan
from tests.tree.shown_rows import shown_rows
from tests.tree.tables import Lake, new_lake

OF_ONE_EFFECT = {
    IntentKind.APPEND: Operation.APPEND,
    IntentKind.CREATE: Operation.APPEND,
    IntentKind.REMOVE: Operation.DELETE,
}
CHANGING_ROWS = {
    *OF_ONE_EFFECT,
    *(IntentKind.OVERWRITE, IntentKind.ROW_DELTA, IntentKind.RESTORE, IntentKind.REPLACE),
}
OF_NO_ROWS = MAINTENANCE_KINDS | {IntentKind.REWRITE, IntentKind.ALTER, IntentKind.TAG}


@dataclass
class Trial:
    """The same plans applied to the model, to a lake in batches, and to a lake one by one."""

    model: ReferenceTable = field(default_factory=ReferenceTable)
    batched: Lake = field(default_factory=new_lake)
    single: Lake = field(default_factory=new_lake)
    views: list[tuple[ReferenceTable, int, int]] = field(default_factory=list)
    earlier: list[tuple[Plan, int]] = field(default_factory=list)
    waiting: list[tuple[Plan, int]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.remember()

    def remember(self) -> None:
        self.model.moment = len(self.views)
        if self.model.is_dropped:
            self.model.tombstones |= {self.model.moment}
        self.views.append((copy.deepcopy(self.model), len(self.batched.states) - 1, len(self.single.states) - 1))

    def plan(self, draw: Draw, number: int) -> None:
        at = max(0, len(self.views) - 1 - draw.lag)
        if draw.resend == 0 and self.earlier:
            self.waiting.append(self.earlier[draw.picks[0] % len(self.earlier)])
            return
        if draw.kind is IntentKind.REWRITE:
            at = self._began(at)
        if draw.of_tags and draw.kind is IntentKind.RESTORE and draw.flag and self.model.tags:
            tagged = sorted(self.model.tags.values())
            at = tagged[draw.picks[1] % len(tagged)]
        plan = plan_of(draw, number, self.views[at][0])
        if (
            plan is not None and plan.adds and plan.writer is not None and plan.kind is not IntentKind.REWRITE
        ):  # without one, a leaf cannot come back
            plan = replace(plan, adds_in_leaf=draw.leaf)
        if plan is not None and plan.vectors and plan.writer is not None and not plan.converts:
            plan = replace(plan, vectors_in_leaf=draw.leaf)
        if plan is not None:
            self.waiting.append((plan, at))
            self.earlier.append((plan, at))

    def _began(self, at: int) -> int:
        """The first version like this one: rejections alone make versions too, whose numbers the model does not know.

        A file rewritten from such a version is as old as it is: a narrow reader of the version before sees a change.
        """
        while at > 0 and self.views[at - 1][0].number == self.views[at][0].number:
            at -= 1
        return at

    def close_batch(self) -> None:
        if not self.waiting:
            return
        began, began_alone = len(self.batched.states), len(self.single.states)
        restores = any(plan.kind is IntentKind.RESTORE for plan, _ in self.waiting)
        expected = [self.model.apply(plan, self.views[at][0]) for plan, at in self.waiting]
        together = self.batched.put_records(
            [self._record(self.batched, plan, self.views[at][1]) for plan, at in self.waiting]
        )
        alone = [
            self.single.put_records([self._record(self.single, plan, self.views[at][2])])[0]
            for plan, at in self.waiting
        ]
        check_operations(self.batched, [plan.kind for plan, _ in self.waiting], together)
        self.waiting = []
        assert outcomes(together) == expected
        assert outcomes(alone) == expected
        self.compare(self.batched)
        self.compare(self.single)
        tags = [(name, self.views[moment]) for name, moment in self.model.tags.items()]
        assert self.batched.head.header.tags == {name: version for name, (_, version, _) in tags}
        assert self.single.head.header.tags == {name: version for name, (_, _, version) in tags}
        assert ranked(self.batched) == ranked(self.single)
        if not restores:  # what comes back again is in no change of a batch, and in one of its intents'
            assert shown_rows(self.batched, began) == shown_rows(self.single, began_alone)
        self.remember()
        for lake, which in ((self.batched, 1), (self.single, 2)):
            self._check_addressable(lake, [view[which] for view in self.views])

    def _check_addressable(self, lake: Lake, versions: Sequence[int]) -> None:
        """Which of the versions, one a moment, can be read."""
        if self.model.tombstones:  # of names that begin again others can be read
            return
        found = Addressable.of(lake.head.header, lake.head.pages.newest(RETAINED_PAGES))
        for moment, version in enumerate(versions):
            can_be_read = moment >= self.model.oldest or moment in self.model.kept
            assert found.has(version) is can_be_read, f"version {version}"

    def _record(self, lake: Lake, plan: Plan, at: int) -> Record:
        [record] = lake.records([self._intent(lake, plan, at)])
        return replace(record, headers=content_headers(plan.says))

    def _intent(self, lake: Lake, plan: Plan, at: int) -> Intent:
        if plan.kind is IntentKind.EXPIRE:
            versions = planned(lake, at) if plan.is_planned else None
            if versions is None:
                versions = sorted(self.views[moment][1 if lake is self.batched else 2] for moment in plan.keeps)
            writer = {} if plan.writer is None else {"writer_id": plan.writer, "writer_sequence": plan.sequence}
            names = {"table_uuid": lake.states[at].header.table_uuid} if plan.names_table else {}
            return expire(lake, at, versions, named=plan.intent_id, **writer, **names)
        return intent_of(plan, lake, lake.states[at])

    def compare(self, lake: Lake) -> None:
        state = lake.head
        assert state_violations(state) == []
        assert state.header.table_uuid == made_by(self.model.made_by).table_uuid
        assert state.header.name.state is (NameState.TOMBSTONE if self.model.is_dropped else NameState.TABLE)
        assert state.definition.oldest_schema_id == self.model.first_schema
        assert state.definition.current_schema_id == self.model.schema
        assert tuple(field.name for field in state.definition.schema.fields) == (*FIRST_COLUMNS, *self.model.columns)
        jobs = [(job.identity, job.words[job.identity]) for job in state.header.progress]
        assert jobs == [(job, intent_id) for job, (_, intent_id) in self.model.jobs.items()]
        summaries = [each.header.snapshot.summary for each in lake.states]
        assert sorted(each.snapshot_id for words in summaries for each in client_snapshots_in(words)) == sorted(
            self.model.clients
        )
        assert all(words.keys().isdisjoint(("a", "b", CLIENT)) for words in summaries)
        live = lake.live().values()
        data = {entry.location: entry for entry in live if entry.content_type is ContentType.DATA}
        assert set(data) == {location(name) for name in self.model.files}
        for name, file in self.model.files.items():
            entry = data[location(name)]
            assert entry.record_count == len(file.ids)
            assert entry.first_row_id == file.first_row_id
        deleted = lake.deleted_rows()
        assert deleted == {location(name): file.deleted for name, file in self.model.files.items()}
        in_root = {place.location for place in state.live.rows if place.content_type is ContentType.DATA}
        assert in_root == {location(name) for name, file in self.model.files.items() if file.in_root}
        equality = {entry.location for entry in live if entry.content_type is ContentType.EQUALITY_DELETE}
        assert equality == {location(name) for name in self.model.equality}
        totals = state.header.totals
        assert totals.rows == sum(len(file.ids) for file in self.model.files.values())
        assert totals.deleted_rows == sum(len(file.deleted) for file in self.model.files.values())
        assert totals.rows - totals.deleted_rows == sum(
            len(file.ids) - len(file.deleted) for file in self.model.files.values()
        )
        assert rows_by_sequence(lake, self.model) == self.model.rows()


def check_operations(lake: Lake, kinds: Sequence[IntentKind], verdicts: Sequence[Verdict]) -> None:
    """What each root calls itself, by the kinds of the intents that it committed."""
    of_version: dict[int, set[IntentKind]] = {}
    for kind, verdict in zip(kinds, verdicts, strict=True):
        if verdict.kind is VerdictKind.COMMITTED and verdict.version is not None:
            of_version.setdefault(verdict.version, set()).add(kind)
    for version, together in of_version.items():
        changing = together & CHANGING_ROWS
        assert not changing or IntentKind.REWRITE not in together, "a rewrite shares its root with a change of rows"
        if together <= OF_ONE_EFFECT.keys() | OF_NO_ROWS:
            [operation, *others] = sorted({OF_ONE_EFFECT[kind] for kind in changing}) or [Operation.REPLACE]
            expected = Operation.OVERWRITE if others else operation
            assert lake.states[version].header.snapshot.operation is expected, together


def outcomes(verdicts: list[Verdict]) -> list[Outcome]:
    return [(verdict.kind, verdict.code) for verdict in verdicts]


def tried(sequence: list[Draw]) -> Trial:
    trial = Trial()
    for index, draw in enumerate(sequence):
        trial.plan(draw, index)
        if draw.closes_batch:
            trial.close_batch()
    trial.close_batch()
    return trial
