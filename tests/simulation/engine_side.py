"""The side of a simulated world that speaks REST: catalogs, engines, jobs, and what must hold of them.

Owns: how many there are, the tables that begin with a request, the comparison of what engines heard with the log. Does
not own: rows (`judgement` replays the appends of engines as it does all other intents).
Invariants: nothing is believed of an engine but what it wrote, deleted and heard.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rootline.catalog.export_keys import SNAPSHOTS
from rootline.schemas.client_commits import CLIENT_WRITER_PREFIX, request_of
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.root_reader import newest_root, read_definition
from tests.simulation.catalogs import Catalog, Front, Lost, count_awaits
from tests.simulation.engine_files import BY_K, SCHEMA
from tests.simulation.engines import Append, Engine, Heard, Java, OldJava, PyIceberg
from tests.simulation.faulty_world import World
from tests.simulation.jobs import Flink, Job, KafkaConnect, SparkStream
from tests.simulation.name_history import table_of
from tests.simulation.published import Published
from tests.simulation.refused_engines import Overwriting, StaleLists

_CATALOGS = 2
_KINDS: Final = (Java, PyIceberg, OldJava, Java, PyIceberg, OldJava, StaleLists, Overwriting)
_JOBS: Final = (Flink, SparkStream, KafkaConnect)
_FEW: Final = {SNAPSHOTS: "5"}
"""Where there are jobs, exports list few versions: mostly none of those in which a job committed that comes back."""


@dataclass(frozen=True, slots=True)
class EngineSide:
    """Catalogs, the way to them, and engines: by turns those of `_KINDS`, then jobs."""

    world: World
    published: Published
    catalogs: Sequence[Catalog]
    front: Front
    engines: Sequence[Engine]

    @staticmethod
    def of(
        world: World, published: Published, engines: int, jobs: int, steps: int, tables: Sequence[TableName]
    ) -> EngineSide:
        """`steps`: calls of all engines, and units of all jobs, together."""
        catalogs = [Catalog(world, f"catalog-{number}", published) for number in range(_CATALOGS)]
        front = Front(world, catalogs)
        kinds: list[type[Engine]] = [_KINDS[number % len(_KINDS)] for number in range(engines)]
        kinds += [_JOBS[number % len(_JOBS)] for number in range(jobs)]
        made = [
            kind(world, front, published, f"engine-{at}", tables[at // 2 % len(tables)], steps // len(kinds))
            for at, kind in enumerate(kinds)
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
        few = _FEW if any(isinstance(engine, Job) for engine in self.engines) else {}
        asked = {"name": name, "schema": SCHEMA, "partition-spec": BY_K, "properties": {**properties, **few}}
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
        """Wait until no catalog works on anything. Then jobs finish, and every engine loads its table, in calm."""
        for catalog in self.catalogs:
            await catalog.rest()
        for engine in self.engines:
            await engine.look_again()
        for catalog in self.catalogs:
            await catalog.rest()

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
        committed = self._decided(lambda verdict: verdict.kind is VerdictKind.COMMITTED)
        accepted = [intent for intent, _ in committed]
        refusals = {intent.intent_id for intent, _ in self._decided(lambda verdict: verdict.code == "request-refused")}
        both = refusals & {request_of(intent.intent_id) for intent in accepted}
        assert not both, f"{both} are requests that were refused, and are committed"
        versions = {(str(table_of(intent)), intent.writer_id): verdict.version for intent, verdict in committed}
        for append, oldest in (item for engine in self.engines for item in engine.absent):
            version = versions.get((append.table_uuid, f"{CLIENT_WRITER_PREFIX}{append.snapshot_id}"))
            assert version in range(oldest), f"{append} of {version} is not in its answer, which lists from {oldest} on"
        by_file: dict[tuple[TableName, str], int] = defaultdict(int)
        for intent in accepted:
            self._check_intent(intent)
            for file in intent.add_data_files:
                by_file[intent.table, file.location] += 1
        for append in self.appends:
            _check_append(append, [by_file[append.table, location] for location in append.files])
        for engine in self.engines:
            if isinstance(engine, Job):
                engine.check(by_file, accepted)
        definitions = "\n".join(intent.definition or "" for intent in accepted)
        for change in (change for engine in self.engines for change in engine.changes):
            is_there = f'"{change.value}"' in definitions
            assert is_there or change.heard is not Heard.DONE, f"{change} was answered, and never committed"
            assert not is_there or change.heard is not Heard.REFUSED, f"{change} was refused, and is committed"

    def _check_intent(self, intent: Intent) -> None:
        """An intent with the id of an append adds what that engine wrote, and removes what it wanted to remove."""
        own = [each for each in self.appends if intent.writer_id == f"{CLIENT_WRITER_PREFIX}{each.snapshot_id}"]
        done = {*(each.location for each in intent.add_data_files)}, {*(each.location for each in intent.remove_files)}
        wanted = [({*each.files}, {*each.removes}) for each in own]
        assert not own or done in wanted, f"{own} became {done}"

    def _decided(self, is_so: Callable[[Verdict], bool]) -> list[tuple[Intent, Verdict]]:
        log, by_value = self.world.log, self.published.by_value
        decided = [(by_value.get(record.value), log.verdicts[record.position]) for record in log.records()]
        return [(intent, verdict) for intent, verdict in decided if intent is not None and is_so(verdict)]


def _check_append(append: Append, times: Sequence[int]) -> None:
    if append.is_shared:
        assert append.heard is not Heard.DONE or {*times} <= {1}, f"{append} was answered, and committed {times} times"
        assert not append.deleted or not {*append.files} & {*append.deleted}, f"{append}: files of a job were deleted"
        return
    assert len(set(times)) == 1, f"{append} was committed in part: {times}"
    assert times[0] <= 1, f"{append} was committed {times[0]} times"
    assert times[0] or append.heard is not Heard.DONE, f"{append} was answered, and never committed"
    if append.is_gone:
        return
    deleted = sorted({*append.files} & {*append.deleted})
    assert not times[0] or not deleted, f"{append} was committed, and its engine was let delete {deleted}"
    assert not times[0] or append.heard is not Heard.REFUSED, f"{append} was refused, and is committed"
