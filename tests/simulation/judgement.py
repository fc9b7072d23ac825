"""What must hold when a simulated world has come to rest.

Owns: the comparison of log, store and reference. Does not own: what must hold at every moment (`rootline.testing`
asserts it where it would be broken: one verdict for a record, no offset remembered past an undecided one).
Invariants: nothing is believed that is not in the log or in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import Intent
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.metadata.root_reader import newest_root, read_root
from rootline.storage.metadata.table_loader import load_state
from rootline.tree.evolution.changes import AddSchema, DefinitionChanges
from rootline.tree.state.table_state import TableState
from tests.simulation.evolving import Shape
from tests.simulation.faulty_world import World
from tests.simulation.names import check_name
from tests.simulation.published import Published
from tests.simulation.reference import Reference, replay
from tests.simulation.seen_files import live_data, stored_positions


def is_drained(world: World) -> bool:
    """Every record has its verdict and its dead letter, and the group knows: no lag; nothing is parked."""
    log = world.log
    known = all((log.remembered(partition) or 0) == log.span(partition)[1] for partition in range(log.partitions))
    return known and log.is_decided() and not log.group.parked.tables


async def judge(world: World, published: Published, tables: Sequence[TableName]) -> list[TableState]:
    """Raise `AssertionError` unless everything holds; the tables' states."""
    log = world.log
    assert log.violations == []
    faults = [fault for needed in world.needed.values() for fault in needed.faults]
    assert not faults, f"deleted: {faults[:5]}"
    assert is_drained(world), f"liveness: undecided {log.undecided()[:10]}"
    records = list(log.records())
    verdicts = [log.verdicts[record.position] for record in records]
    intents = [published.by_value.get(record.value) for record in records]
    states = []
    for table in tables:
        own = [
            (verdict, intent)
            for verdict, intent in zip(verdicts, intents, strict=True)
            if intent is not None and intent.table == table
        ]
        for partition in range(log.partitions):
            _check_order([item for item in verdicts if (item.table, item.partition) == (table, partition)])
        states.append(await _compare(world, table, own, published))
    return states


async def _compare(
    world: World, table: TableName, decided: Sequence[tuple[Verdict, Intent]], published: Published
) -> TableState:
    reference = replay(
        decided, published.vectors, published.leaves, published.first[table], published.views, published.seen
    )
    root = await newest_root(world.store, table)
    assert root is not None
    await reference.clients.compare(world.store, table, root.header)
    await _compare_turns(world, table, reference, root.header)
    check_name(root.header, reference.view, is_dropped=reference.is_dropped)
    state = await load_state(world.store, root)
    assert sorted(reference.files) == live_data(state), f"{table}: the live files are not those of the accepted intents"
    for name, deleted in reference.files.items():
        assert await stored_positions(world, table, state, name) == deleted, f"{name}: other rows are deleted"
    assert reference.tags == dict(state.header.tags), f"{table}: the tags are not those of the accepted intents"
    wanted = [change.schema.fields for text in reference.definitions for change in _schemas_in(text)]
    added = [schema.fields for schema in state.definition.schemas[reference.first_schemas :]]
    made = [fields for at, fields in enumerate(wanted) if fields not in wanted[:at]]
    first = [schema.fields for schema in state.definition.schemas[: reference.first_schemas]]
    if reference.replaces:  # which add equal schemas, and so do restores of what was before
        assert all(fields in first or fields in wanted for fields in added), f"{table}: a schema that no change makes"
    else:
        was_made = [fields for fields in made if fields not in first]
        assert added == was_made, f"{table}: other schemas than its changes make"
    if reference.shape is not None:
        assert Shape.of(state.definition) == reference.shape, f"{table}: the definition is not what its changes make"
    findings = [finding async for finding in check_table(world.store, table)]
    assert not findings, findings
    return state


async def _compare_turns(world: World, table: TableName, reference: Reference, head: RootHeader) -> None:
    """Where all that a table is changed at once, it is what the accepted intents had made of it by then."""
    for version, files, shape in reference.past:
        if version not in reference.turns or not head.versions.oldest <= version:
            continue
        state = await load_state(world.store, await read_root(world.store, table, Version(version)))
        assert sorted(files) == live_data(state), f"{table}: other live files than accepted intents made of {version}"
        if shape is not None:
            assert Shape.of(state.definition) == shape, f"{table}: version {version} has another definition"


def _schemas_in(text: str) -> list[AddSchema]:
    return [change for change in DefinitionChanges.from_json(text).changes if isinstance(change, AddSchema)]


def _check_order(verdicts: Sequence[Verdict]) -> None:
    """Of one table on one partition: versions follow the log's order, and sequence numbers increase strictly."""
    committed = [verdict for verdict in verdicts if verdict.kind is VerdictKind.COMMITTED]
    for before, after in pairwise(committed):
        assert before.version is not None
        assert after.version is not None
        assert before.sequence_number is not None
        assert after.sequence_number is not None
        assert before.version <= after.version, f"offset {after.offset} was committed before offset {before.offset}"
        assert before.sequence_number < after.sequence_number, (
            f"offset {after.offset} has no sequence number of its own"
        )
