"""What is drawn, and what a writer who sees the reference model plans from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import hypothesis.strategies as st

from rootline.schemas.intent import IntentKind
from tests.tree.reference_conversions import conversion_of
from tests.tree.reference_model import ReferenceTable
from tests.tree.reference_names import about_name
from tests.tree.reference_plan import Plan, PlannedVector

CARRIERS = ("AA", "UA", None)


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
    names: int = 9
    """Whether it says which table (not for 0) and which schema (not for 1) it is for."""
    of_tags: bool = False
    """Whether versions expire as a worker plans it, and many of those that are gone back to have a tag."""
    of_clients: bool = False
    """Whether all appends are those of Iceberg clients."""


def draws_of(*kinds: IntentKind) -> st.SearchStrategy[Draw]:
    return st.builds(
        Draw,
        kind=st.sampled_from(kinds),
        lag=st.integers(0, 3),
        picks=st.lists(st.integers(0, 11), min_size=6, max_size=6).map(tuple),
        closes_batch=st.booleans(),
        writer=st.integers(0, 3),
        resend=st.integers(0, 9),
        flag=st.booleans(),
        narrow=st.one_of(st.none(), st.none(), st.integers(0, 6)),
        leaf=st.booleans(),
        names=st.integers(0, 9),
    )


draws = draws_of(
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
    IntentKind.REPLACE,
)
of_names = draws_of(
    *(IntentKind.APPEND, IntentKind.ROW_DELTA, IntentKind.RESTORE) * 3,
    *(IntentKind.REPLACE, IntentKind.DROP, IntentKind.CREATE, IntentKind.ALTER) * 2,
    IntentKind.PURGE,
    IntentKind.REMOVE,
    IntentKind.OVERWRITE,
    IntentKind.REWRITE,
    IntentKind.CONVERT_EQUALITY_DELETES,
    IntentKind.FLUSH,
    IntentKind.COMPACT_LEAVES,
    IntentKind.TAG,
    IntentKind.EXPIRE,
)
"""Tables that are dropped, made again, brought back and replaced, and files of all kinds to do it to."""


of_tags = draws_of(
    *(IntentKind.TAG, IntentKind.EXPIRE) * 4,
    *(IntentKind.APPEND, IntentKind.RESTORE) * 2,
    IntentKind.ROW_DELTA,
    IntentKind.REMOVE,
).map(lambda draw: replace(draw, of_tags=True))
"""Versions that are tagged, expire, and are gone back to."""


of_clients = draws_of(
    *(IntentKind.APPEND,) * 9,
    *(IntentKind.REMOVE, IntentKind.RESTORE, IntentKind.REPLACE, IntentKind.REWRITE),
    *(IntentKind.FLUSH, IntentKind.DROP, IntentKind.CREATE, IntentKind.PURGE, IntentKind.EXPIRE),
).map(lambda draw: replace(draw, of_clients=True))
"""Jobs of clients that read some versions ago, on a name whose rows, tables and versions change."""


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
    plan = Plan(
        f"i{number}",
        draw.kind,
        writer,
        number // 2,
        serializable=draw.narrow,
        says=says,
        names_table=draw.names != 0,
        names_schema=draw.names != 1,
    )
    plan = about_name(plan, picks, draw.flag, view)
    if plan.kind is not draw.kind:
        return plan
    chosen = [files[pick % len(files)] for pick in picks[:2]] if files else []
    names = (f"f{picks[2]}", f"f{picks[3]}")
    adds = tuple((name, CARRIERS[picks[4] % 3], _ids(name)) for name in dict.fromkeys(names))
    if draw.kind is IntentKind.APPEND:
        return _of_client(draw, number, replace(plan, adds=adds[: 1 + draw.flag]))
    if draw.kind is IntentKind.FLUSH:
        return _flush(draw, view, replace(plan, serializable=None))
    if draw.kind is IntentKind.TAG:
        name = f"t{picks[2] % 2}"
        return replace(plan, serializable=None, tags=name, untags=draw.flag and name in view.tags)
    if draw.kind in (IntentKind.RESTORE, IntentKind.DROP, IntentKind.PURGE):
        return plan
    if draw.kind is IntentKind.CREATE:
        return _create_of_client(draw, number, replace(plan, adds=adds[: picks[1] % 3]))
    if draw.kind is IntentKind.EXPIRE:
        before = range(max(0, view.moment - picks[0] % 4), view.moment)
        tagged = view.tags.values() if picks[2] % 4 else ()
        is_planned = draw.of_tags and picks[2] % 4 > 0
        stay = tagged if is_planned else (*before, *tagged)
        keeps = frozenset(moment for moment in stay if moment < view.moment) - view.tombstones
        return replace(plan, serializable=None, keeps=keeps, is_planned=is_planned)
    if draw.kind is IntentKind.ALTER:
        fewer = tuple(name for name in view.columns if name != f"c{picks[0]}")
        return replace(plan, serializable=None, columns=fewer if fewer != view.columns else (*fewer, f"c{number}"))
    if draw.kind is IntentKind.REPLACE:
        columns = (view.columns, view.columns[1:], (*view.columns, f"c{number}"))[picks[0] % 3]
        return replace(plan, serializable=None, names_table=True, columns=columns, adds=adds[: picks[1] % 3])
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


def _of_client(draw: Draw, number: int, plan: Plan) -> Plan:
    """Every third append is an Iceberg client's. Some have the id of an earlier one, move its job, or refuse it."""
    if draw.picks[5] % 3 and not draw.of_clients:
        return plan
    client, jobs = 1_000 + number // 4, ((), ("a",), ("b",), ("b", "a"))[draw.picks[4] % 4]
    of_client = replace(plan, writer=f"rest/{client}", sequence=0, client=client)
    if draw.picks[3] % 4 == 0:
        return replace(of_client, intent_id=f"r{client}", adds=(), serializable=None, refuses=True)
    return replace(of_client, intent_id=f"r{client}/{number}", jobs=jobs)


def _create_of_client(draw: Draw, number: int, plan: Plan) -> Plan:
    """A table that an Iceberg client creates. The request may have been refused while another table had the name."""
    if not draw.of_clients or draw.picks[5] % 3 == 0:
        return plan
    client = 1_000 + number // 4
    return replace(plan, intent_id=f"r{client}", writer=f"rest/{client}", sequence=0, client=client)


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
