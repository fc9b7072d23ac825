"""Random sequences of every kind, in random batches, against the model; and against themselves one by one."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from rootline.schemas.bytes.log.stated_content import content_headers
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.verdict import Verdict
from rootline.tree.check.state_rules import state_violations
from rootline.tree.draft.batch import Record
from tests.support.examples import examples
from tests.tree.kept_pages import expire
from tests.tree.lake_rows import ranked, rows_by_sequence
from tests.tree.planned_intents import FIRST_COLUMNS, intent_of, location
from tests.tree.range_changes import check_every_range
from tests.tree.reference_conversions import conversion_of
from tests.tree.reference_model import Outcome, ReferenceTable
from tests.tree.reference_plan import Plan, PlannedVector
from tests.tree.shown_rows import shown_rows
from tests.tree.tables import Lake, new_lake

CARRIERS = ("AA", "UA", None)
EXAMPLES = examples(300)
"""Of about sixteen intents each."""


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@dataclass(frozen=True)
class Draw:
    """Small numbers that a plan is made from; `lag`: how many batches ago the writer read."""

    kind: IntentKind
    lag: int
    picks: tuple[int, ...]
    closes_batch: bool
    writer: int
    resend: int
    flag: bool
    narrow: int | None
    leaf: bool


draws = st.builds(
    Draw,
    kind=st.sampled_from(
        [
            IntentKind.APPEND,
            IntentKind.APPEND,
            IntentKind.REMOVE,
            IntentKind.OVERWRITE,
            IntentKind.ROW_DELTA,
            IntentKind.ROW_DELTA,
            IntentKind.FLUSH,
            IntentKind.COMPACT_LEAVES,
            IntentKind.RESTORE,
            IntentKind.TAG,
            IntentKind.EXPIRE,
            IntentKind.ALTER,
            IntentKind.REWRITE,
            IntentKind.REWRITE,
            IntentKind.CONVERT_EQUALITY_DELETES,
            IntentKind.CONVERT_EQUALITY_DELETES,
        ]
    ),
    lag=st.integers(0, 3),
    picks=st.lists(st.integers(0, 11), min_size=6, max_size=6).map(tuple),
    closes_batch=st.booleans(),
    writer=st.integers(0, 3),
    resend=st.integers(0, 9),
    flag=st.booleans(),
    narrow=st.one_of(st.none(), st.none(), st.integers(0, 6)),
    leaf=st.booleans(),
)


late_readers = st.builds(
    Draw,
    kind=st.sampled_from(
        [
            IntentKind.APPEND,
            IntentKind.REMOVE,
            IntentKind.OVERWRITE,
            IntentKind.ROW_DELTA,
            IntentKind.REWRITE,
            IntentKind.CONVERT_EQUALITY_DELETES,
        ]
    ),
    lag=st.integers(0, 3),
    picks=st.lists(st.integers(0, 11), min_size=6, max_size=6).map(tuple),
    closes_batch=st.booleans(),
    writer=st.just(0),
    resend=st.just(1),
    flag=st.booleans(),
    narrow=st.one_of(st.none(), st.integers(0, 6)),
    leaf=st.just(False),
)
"""Writers who read some versions ago, half of them serializable, while rows leave."""


def plan_of(draw: Draw, number: int, view: ReferenceTable) -> Plan | None:
    """A plan of a writer who read `view`; `None` where there is nothing to do it to."""
    files = sorted(view.files)
    picks = draw.picks
    writer = f"writer-{draw.writer}" if draw.writer else None
    says = (None, b"one", b"two")[picks[0] % 3]
    plan = Plan(f"i{number}", draw.kind, writer, number // 2, serializable=draw.narrow, says=says)
    chosen = [files[pick % len(files)] for pick in picks[:2]] if files else []
    names = (f"f{picks[2]}", f"f{picks[3]}")
    adds = tuple((name, CARRIERS[picks[4] % 3], _ids(name)) for name in dict.fromkeys(names))
    if draw.kind is IntentKind.APPEND:
        return replace(plan, adds=adds[: 1 + draw.flag])
    if draw.kind is IntentKind.FLUSH:
        return _flush(draw, view, replace(plan, serializable=None))
    if draw.kind is IntentKind.TAG:
        name = f"t{picks[2] % 2}"
        return replace(plan, serializable=None, tags=name, untags=draw.flag and name in view.tags)
    if draw.kind is IntentKind.RESTORE:
        return replace(plan, serializable=None)
    if draw.kind is IntentKind.EXPIRE:
        before = range(max(0, view.moment - picks[0] % 4), view.moment)
        tagged = view.tags.values() if picks[2] % 4 else ()
        keeps = frozenset(moment for moment in (*before, *tagged) if moment < view.moment)
        return replace(plan, serializable=None, keeps=keeps)
    if draw.kind is IntentKind.ALTER:
        fewer = tuple(name for name in view.columns if name != f"c{picks[0]}")
        return replace(plan, serializable=None, columns=fewer if fewer != view.columns else (*fewer, f"c{number}"))
    if draw.kind is IntentKind.COMPACT_LEAVES:
        return _compaction(draw, view, replace(plan, serializable=None))
    if draw.kind is IntentKind.CONVERT_EQUALITY_DELETES:
        return conversion_of(picks, draw.flag, view, replace(plan, serializable=None))
    if not chosen:
        return None
    if draw.kind is IntentKind.REMOVE:
        return replace(plan, removes=tuple(dict.fromkeys(chosen)))
    if draw.kind is IntentKind.OVERWRITE:
        kept = tuple(add for add in adds if add[0] not in chosen)
        return replace(plan, removes=(chosen[0],), adds=kept)
    if draw.kind is IntentKind.REWRITE:
        return _rewrite(chosen, number, view, plan)
    vectors = tuple(
        PlannedVector(name, frozenset(view.files[name].deleted | {pick % len(view.files[name].ids)}))
        for name, pick in dict(zip(chosen, picks[4:], strict=True)).items()
    )
    equality = ((f"e{picks[5]}", CARRIERS[picks[3] % 3], picks[4] % 7),) if picks[2] % 3 == 0 else ()
    return replace(
        plan,
        vectors=vectors if picks[2] % 4 or not equality else (),
        adds=tuple(add for add in adds[:1] if draw.flag and add[0] not in chosen),
        equality=equality,
    )


def _rewrite(chosen: list[str], number: int, view: ReferenceTable, plan: Plan) -> Plan:
    """One file of the rows that are left in one or two of a carrier; no file if none are."""
    carrier = view.files[chosen[0]].carrier
    sources = tuple(name for name in dict.fromkeys(chosen) if view.files[name].carrier == carrier)
    rows = view.rows()
    ids = tuple(view.files[name].ids[position] for name in sources for position in sorted(rows[name]))
    return replace(plan, removes=sources, adds=((f"r{number}", carrier, ids),) if ids else ())


def _flush(draw: Draw, view: ReferenceTable, plan: Plan) -> Plan | None:
    share = draw.picks[0] % 3
    files = [name for name in sorted(view.files) if view.files[name].in_root][share:]
    vectors = [name for name, file in sorted(view.files.items()) if file.vector and file.vector_leaf is None]
    affiliated = draw.flag and bool(files)
    if affiliated:
        vectors = [name for name in vectors if name in files]
    equality = [name for name in sorted(view.equality) if view.equality[name].leaf is None]
    if not (files or vectors or equality):
        return None
    return replace(
        plan,
        flushed_files=tuple(files),
        flushed_vectors=tuple(vectors),
        flushed_equality=tuple(equality),
        affiliated=affiliated,
    )


def _compaction(draw: Draw, view: ReferenceTable, plan: Plan) -> Plan | None:
    """Some of the view's leaves become one of each sort; some root rows go along."""
    vectors = {name: file.vector_leaf for name, file in sorted(view.files.items()) if file.vector is not None}
    files = {name: file.leaf for name, file in sorted(view.files.items())}
    equality = {name: delete.leaf for name, delete in sorted(view.equality.items())}
    leaves = sorted({leaf for held in (files, vectors, equality) for leaf in held.values() if leaf is not None})
    chosen = leaves[draw.picks[0] % 3 :]
    if not chosen:
        return None
    places = {*chosen, None} if draw.picks[1] % 2 else set(chosen)
    moving = tuple(name for name, leaf in files.items() if leaf in places)
    if not moving and not any(leaf in places for leaf in (*vectors.values(), *equality.values())):
        return None
    return replace(
        plan,
        flushed_files=moving,
        flushed_vectors=tuple(
            name for name, leaf in vectors.items() if leaf in places and (name in moving or not (draw.flag and moving))
        ),
        flushed_equality=tuple(name for name, leaf in equality.items() if leaf in places),
        affiliated=draw.flag and bool(moving),
        replaces=tuple(chosen),
    )


def _ids(name: str) -> tuple[int, ...]:
    number = int(name[1:])
    return tuple((number * 3 + row) % 7 for row in range(1 + number % 4))


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
        self.views.append((copy.deepcopy(self.model), len(self.batched.states) - 1, len(self.single.states) - 1))

    def plan(self, draw: Draw, number: int) -> None:
        at = max(0, len(self.views) - 1 - draw.lag)
        if draw.resend == 0 and self.earlier:
            self.waiting.append(self.earlier[draw.picks[0] % len(self.earlier)])
            return
        if draw.kind is IntentKind.REWRITE:
            at = self._began(at)
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
        began, restores = len(self.single.states), any(plan.kind is IntentKind.RESTORE for plan, _ in self.waiting)
        expected = [self.model.apply(plan, self.views[at][0]) for plan, at in self.waiting]
        together = self.batched.put_records(
            [self._record(self.batched, plan, self.views[at][1]) for plan, at in self.waiting]
        )
        alone = [
            self.single.put_records([self._record(self.single, plan, self.views[at][2])])[0]
            for plan, at in self.waiting
        ]
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
            assert shown_rows(self.batched, len(self.batched.states) - 1) == shown_rows(self.single, began)
        self.remember()

    def _record(self, lake: Lake, plan: Plan, at: int) -> Record:
        [record] = lake.records([self._intent(lake, plan, at)])
        return replace(record, headers=content_headers(plan.says))

    def _intent(self, lake: Lake, plan: Plan, at: int) -> Intent:
        if plan.kind is IntentKind.EXPIRE:
            versions = sorted(self.views[moment][1 if lake is self.batched else 2] for moment in plan.keeps)
            writer = {} if plan.writer is None else {"writer_id": plan.writer, "writer_sequence": plan.sequence}
            return expire(lake, at, versions, named=plan.intent_id, **writer)
        return intent_of(plan, lake, lake.states[at])

    def compare(self, lake: Lake) -> None:
        state = lake.head
        assert state_violations(state) == []
        assert tuple(field.name for field in state.definition.schema.fields) == (*FIRST_COLUMNS, *self.model.columns)
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


def outcomes(verdicts: list[Verdict]) -> list[Outcome]:
    return [(verdict.kind, verdict.code) for verdict in verdicts]


@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=SLOW)
@given(st.lists(draws, min_size=4, max_size=30))
def test_batches_do_what_the_model_does_and_what_their_intents_do_one_by_one(sequence: list[Draw]) -> None:
    trial = Trial()
    for index, draw in enumerate(sequence):
        trial.plan(draw, index)
        if draw.closes_batch:
            trial.close_batch()
    trial.close_batch()
    check_every_range(trial.batched)
    if trial.batched.bodies:
        assert live_places(trial.batched.reloaded_lake()) == live_places(trial.batched)


@settings(deadline=None, max_examples=examples(150), suppress_health_check=SLOW)
@given(st.lists(late_readers, min_size=12, max_size=24))
def test_serializable_intents_see_what_came_and_what_left_since_they_read(sequence: list[Draw]) -> None:
    trial = Trial()
    for index, draw in enumerate(sequence):
        trial.plan(draw, index)
        if draw.closes_batch:
            trial.close_batch()
    trial.close_batch()


def live_places(lake: Lake) -> set[object]:
    return set(lake.live())
