"""The side of a simulated world that speaks REST: catalogs, engines, and what must hold of both.

Owns: how many there are, the tables that begin with a request, the comparison of what engines heard with the log. Does
not own: rows (`judgement` replays the appends of engines as it does all other intents).
Invariants: nothing is believed of an engine but what it wrote, deleted and heard.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import VerdictKind
from rootline.storage.metadata.root_reader import newest_root, read_definition
from tests.simulation.catalogs import Catalog, Front, Lost, count_awaits
from tests.simulation.engine_files import BY_K, SCHEMA
from tests.simulation.engines import Append, Engine, Heard, Java, OldJava, PyIceberg
from tests.simulation.faulty_world import World
from tests.simulation.published import Published

_CATALOGS = 2


@dataclass(frozen=True, slots=True)
class EngineSide:
    """Catalogs, the way to them, and engines: by turns Java, PyIceberg and an old Java."""

    world: World
    published: Published
    catalogs: Sequence[Catalog]
    front: Front
    engines: Sequence[Engine]

    @staticmethod
    def of(world: World, published: Published, engines: int, steps: int, tables: Sequence[TableName]) -> EngineSide:
        """`steps`: calls of all engines together."""
        catalogs = [Catalog(world, f"catalog-{number}", published) for number in range(_CATALOGS)]
        front = Front(world, catalogs)
        kinds = (Java, PyIceberg, OldJava)
        made = [
            kinds[number % 3](
                world, front, published, f"engine-{number}", tables[number // 2 % len(tables)], steps // engines
            )
            for number in range(engines)
        ]
        return EngineSide(world, published, catalogs, front, made)

    def start(self) -> None:
        """Start all catalogs."""
        count_awaits(asyncio.get_running_loop())
        for catalog in self.catalogs:
            catalog.start()

    async def create(self, table: TableName, properties: Mapping[str, str]) -> None:
        """Create a table, whatever it takes."""
        namespace, _, name = table.rpartition(".")
        asked = {"name": name, "schema": SCHEMA, "partition-spec": BY_K, "properties": dict(properties)}
        while True:
            try:
                await self.front.ask("POST", "/namespaces", {"namespace": [namespace]})
                answer = await self.front.ask("POST", f"/own/namespaces/{namespace}/tables", asked)
            except Lost:
                continue
            if answer.status in (200, 409):
                break
            assert answer.status >= 404, answer
        root = await newest_root(self.world.store, table)
        assert root is not None, f"{table} was created, and is not there"
        self.published.first[table] = await read_definition(self.world.store, root.header)

    def running(self) -> list[Coroutine[Any, Any, None]]:
        """What engines do."""
        return [engine.run() for engine in self.engines]

    async def settle(self) -> None:
        """Wait until no catalog works on anything. Then every engine loads its table once more, in calm."""
        for catalog in self.catalogs:
            await catalog.rest()
        for engine in self.engines:
            await engine.look_again()

    async def close(self) -> None:
        """End all catalogs."""
        for catalog in self.catalogs:
            await catalog.close()

    @property
    def appends(self) -> list[Append]:
        """Of all engines."""
        return [append for engine in self.engines for append in engine.appends]

    @property
    def kills(self) -> int:
        """Of catalogs."""
        return sum(catalog.kills for catalog in self.catalogs)

    def check(self) -> None:
        """Raise `AssertionError` unless what engines heard and deleted fits what was committed."""
        missing = [words for engine in self.engines for words in engine.missing]
        assert not missing, f"answered, and not listed: {missing[:5]}"
        for refused in (refused for catalog in self.catalogs for refused in catalog.refused):
            kinds = {self.world.log.verdicts[position].kind for position in refused.records}
            assert kinds <= {VerdictKind.REJECTED}, f"{refused} was answered to a request that is in the table"
        accepted = self._accepted()
        by_file: dict[tuple[str, str], int] = defaultdict(int)
        for intent in accepted:
            for file in intent.add_data_files:
                by_file[intent.table, file.location] += 1
        for append in self.appends:
            _check_append(append, [by_file[append.table, location] for location in append.files])
        definitions = "\n".join(intent.definition or "" for intent in accepted)
        for change in (change for engine in self.engines for change in engine.changes):
            is_there = f'"{change.value}"' in definitions
            assert is_there or change.heard is not Heard.DONE, f"{change} was answered, and never committed"
            assert not is_there or change.heard is not Heard.REFUSED, f"{change} was refused, and is committed"

    def _accepted(self) -> list[Intent]:
        log, by_value = self.world.log, self.published.by_value
        records = [record for record in log.records() if record.value in by_value]
        return [
            by_value[record.value] for record in records if log.verdicts[record.position].kind is VerdictKind.COMMITTED
        ]


def _check_append(append: Append, times: Sequence[int]) -> None:
    assert len(set(times)) == 1, f"{append} was committed in part: {times}"
    assert times[0] <= 1, f"{append} was committed {times[0]} times"
    assert times[0] or append.heard is not Heard.DONE, f"{append} was answered, and never committed"
    if append.is_gone:
        return
    deleted = sorted({*append.files} & {*append.deleted})
    assert not times[0] or not deleted, f"{append} was committed, and its engine was let delete {deleted}"
    assert not times[0] or append.heard is not Heard.REFUSED, f"{append} was refused, and is committed"
