"""The executor's side of a change of rows: writes new rows to files, collects positions of old rows in bitmaps.

Owns: a task's input (the `OF_CHANGE` columns, then the new row's) and its messages, rewriting a file without some of
its rows. Does not own: the choice of rows (`statements`), the intent (`row_change_job`).
Invariants: nothing is published here. A row keeps its row id when it is updated or only moves to another file. A row
that two source rows change is counted, never changed twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from rootline.client.data_file_writer import changed_rows, checked_rows, rewritten_rows
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.file_sink import FilesWritten, write_task
from rootline.spark.options import SourceOptions
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.metadata_columns import LINEAGE, POS, may_state_lineage
from rootline.storage.rows.row_deletes import places_by_file
from rootline.storage.rows.scan_executor import scan_batches
from rootline.tree.scan.file_task import FileTask

FILE_COLUMN: Final = "__rootline_file"
POS_COLUMN: Final = "__rootline_pos"
ACTION_COLUMN: Final = "__rootline_action"
MESSAGE_SCHEMA: Final = "message binary"
OF_CHANGE: Final = (FILE_COLUMN, POS_COLUMN, ACTION_COLUMN)
"""The first columns, in this order. Tasks use their positions, because a table may have columns with these names."""
Batches = Iterable[pa.RecordBatch]


class Action(IntEnum):
    """The change of a row."""

    DELETE = 0
    UPDATE = 1
    INSERT = 2


@dataclass
class TaskChanges:
    """The result of one task: files of new rows, and by data file the positions of old rows, as serialized bitmaps.

    `ambiguous`: the number of table rows that it should have changed more than once.
    """

    written: FilesWritten
    positions: dict[str, bytes]
    counts: tuple[int, int, int]
    ambiguous: int = 0


@dataclass
class _Gone:
    positions: dict[str, BitMap64] = field(default_factory=dict)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    ambiguous: int = 0

    def take(self, files: pa.Array, places: pa.Array, actions: pa.Array) -> None:
        done = actions.to_numpy(zero_copy_only=False)
        for action in Action:
            self.counts[action] += int((done == action).sum())
        is_old = pa.array(done != Action.INSERT)
        for name, of_file in places_by_file(files.filter(is_old), places.filter(is_old)):
            known = self.positions.setdefault(name, BitMap64())
            before = len(known)
            known |= BitMap64(of_file)
            self.positions[name] = known
            self.ambiguous += before + len(of_file) - len(known)


def change_rows(
    definition: bytes, options: SourceOptions, names: Sequence[str]
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: takes batches of changes with the columns `names`, yields one message."""

    def changed(batches: Batches) -> Iterator[pa.RecordBatch]:
        table, gone = TableDefinition.from_json(definition), _Gone()

        def new_rows() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                files, places, actions, *values = batch.columns
                gone.take(files, places, actions)
                if values:
                    is_new = pc.not_equal(actions, pa.scalar(int(Action.DELETE), pa.int32()))
                    yield pa.RecordBatch.from_arrays(values, list(names[len(OF_CHANGE) :])).filter(is_new)

        written = write_task(new_rows(), table, options, changed_rows)
        positions = {name: bitmap.serialize() for name, bitmap in gone.positions.items()}
        deleted, updated, inserted = gone.counts
        yield _message(TaskChanges(written, positions, (deleted, updated, inserted), gone.ambiguous))

    return changed


def rewrite_without(definition: bytes, options: SourceOptions) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: takes rows of `rewrite_order`, yields one message."""

    def rewritten(batches: Batches) -> Iterator[pa.RecordBatch]:
        table = TableDefinition.from_json(definition)
        orders = (order for batch in batches for order in batch.column(0).to_pylist())
        rows = (rows for order in orders for rows in _kept_rows(order, table, options))
        yield _message(TaskChanges(write_task(rows, table, options, _moved_rows), {}, (0, 0, 0)))

    return rewritten


def rewrite_order(task: FileTask, gone: BitMap64) -> bytes:
    """The serialized order to rewrite a file without the positions `gone`."""
    return pickle.dumps((FileTask(task.data, task.vectors, deletes=task.deletes), gone.serialize()))


def messages(rows: Iterable[bytes]) -> list[TaskChanges]:
    """The decoded messages of the tasks."""
    return [pickle.loads(row) for row in rows]


def _message(changes: TaskChanges) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"message": pa.array([pickle.dumps(changes)], pa.binary())})


def _kept_rows(order: bytes, definition: TableDefinition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    task, gone = pickle.loads(order)
    positions = BitMap64.deserialize(gone)
    lineage = LINEAGE if may_state_lineage(definition) else ()
    wanted = RowsWanted.of(definition, [*(column.name for column in definition.schema.fields), *lineage, POS])
    for batch in guest_lake(options).holder.iterate(
        lambda session: scan_batches(session.store, options.table, [task], wanted)
    ):
        at = batch.schema.get_field_index(POS)
        stays = [place not in positions for place in batch.column(at).to_pylist()]
        yield batch.filter(pa.array(stays, pa.bool_())).drop_columns([POS])


def _moved_rows(piece: Sequence[pa.RecordBatch], definition: TableDefinition) -> pa.Table:
    return (
        rewritten_rows(pa.Table.from_batches(piece), definition)
        if may_state_lineage(definition)
        else checked_rows(piece, definition)
    )
