"""The examples of "Scan Planning" in the Iceberg specification (the seed on row-level deletes), one test each.

That a scan for `id = 9` ignores a delete file of ids 1 to 4, and the rules for equality and position deletes, are in
`tests/storage/rows/test_row_deletes.py`, on real files.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from dataclasses import replace

import pyarrow as pa

from rootline.client.create_drop import build_definition
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.filter.filters import AllOf, Operator, Predicate
from rootline.tree.filter.pruning import PruningFilter, text_of
from tests.storage.stored_tables import StoredTable

EVENTS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
DAY_ZERO = dt.datetime(2013, 1, 1)
X = "2013-01-03T12:00:00"
DAY_OF_X = (dt.date(2013, 1, 3) - dt.date(1970, 1, 1)).days


def _definition() -> TableDefinition:
    return build_definition(EVENTS, partition_by=["day(ts) as ts_day"], table_uuid=uuid.UUID(int=3))


def _events() -> StoredTable:
    """Five files, one a day; each has an event at 06:00 and one at 18:00."""
    table = StoredTable(_definition())
    for day in range(5):
        times = [DAY_ZERO + dt.timedelta(days=day, hours=hour) for hour in (6, 18)]
        table.entries += table.write(pa.table({"id": [2 * day, 2 * day + 1], "ts": times}, EVENTS))
    return table


def test_a_filter_on_ts_becomes_an_inclusive_filter_on_its_day() -> None:
    pruning = PruningFilter.of(f"ts > '{X}'", _definition())
    (expression,) = _definition().expressions
    assert isinstance(pruning.inclusive, AllOf)
    assert Predicate(expression.expr_id, Operator.GE, (DAY_OF_X,)) in pruning.inclusive.parts


def test_files_of_the_day_of_x_and_later_are_selected() -> None:
    table = _events()
    table.commit()
    days = [task.data.content_stats[3].lower_bound for task in asyncio.run(table.plan(f"ts > '{X}'")).tasks()]
    assert days == [DAY_OF_X, DAY_OF_X + 1, DAY_OF_X + 2]


def test_rows_just_before_x_are_in_the_file_but_not_in_the_scan() -> None:
    table = _events()
    table.commit()
    assert table.scan(f"ts > '{X}'").column("id").to_pylist() == [5, 6, 7, 8, 9]


def test_a_file_all_of_whose_rows_must_match_has_no_residual_filter() -> None:
    table = _events()
    table.entries = [table.leaf(table.entries[:3]), *table.entries[3:]]
    table.commit()
    tasks = list(asyncio.run(table.plan(f"ts > '{X}'")).tasks())
    of_day = {task.data.content_stats[3].lower_bound: task.residual for task in tasks}
    assert [residual is None for _, residual in sorted(of_day.items())] == [False, True, True]


def test_the_strict_projection_onto_the_partition_alone_says_so_too() -> None:
    """Without statistics of `ts` itself, the day decides."""
    table = _events()
    table.entries = [replace(entry, content_stats={3: entry.content_stats[3]}) for entry in table.entries]
    table.commit()
    tasks = list(asyncio.run(table.plan(f"ts > '{X}'")).tasks())
    assert [task.residual is None for task in tasks] == [False, True, True]


def test_a_residual_is_what_the_partition_does_not_decide() -> None:
    table = _events()
    table.commit()
    tasks = list(asyncio.run(table.plan(f"ts > '{X}' and id != 6 and (id = 7 or ts < '2012-01-01T00:00:00')")).tasks())
    schema = table.definition.schema
    assert [(task.location, task.residual and text_of(task.residual.condition, schema)) for task in tasks] == [
        (table.entries[3].location, "id != 6 and id = 7")
    ]
    assert table.scan(f"ts > '{X}' and id != 6 and (id = 7 or ts < '2012-01-01T00:00:00')").to_pylist()[0]["id"] == 7


def test_a_residual_is_shown_as_a_person_would_write_it() -> None:
    schema = _definition().schema
    condition = PruningFilter.of(f"(ts >= '{X}' and id in (1, 2)) or id is null", _definition()).bound.condition
    assert text_of(condition, schema) == "(ts >= '2013-01-03T12:00:00' and id in (1, 2)) or id is null"
