"""Simulated streaming jobs: clients of the REST catalog that die, and learn from the table what they have committed.

Owns: what Flink's committer, Spark's streaming sink and Kafka Connect's coordinators keep, look for and send again, and
what became of each unit of it (a checkpoint, an epoch, an event). Does not own: one commit (`engines.Java`).
Invariants: a life of a job dies at any await, or goes on beside the next one until its commit has an end; the next one
knows what is durable elsewhere, and nothing else. Each unit is committed once.

Source: Iceberg 1.11, Flink's `IcebergFilesCommitter` and `SinkUtil`, Spark's `SparkWrite`, Kafka Connect's
`Coordinator`.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from typing_extensions import override

from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent
from tests.simulation.catalogs import Lost
from tests.simulation.engine_files import BODY, data_file
from tests.simulation.engines import Append, Ended, Heard, Java, Metadata, chain

_LIVES_MAX: Final = 40
_LIFE_S: Final = 2.0
_AWAY_S: Final = (0.05, 0.5, 6.0)
"""How long a job is away: also while many versions are committed."""
_ZOMBIES: Final = 0.5
_EMPTY_COMMITS: Final = 3
"""Flink commits every third of the empty checkpoints in a row (`flink.max-continuous-empty-commits`)."""
_PARTITIONS: Final = 2
File = tuple[str, int]
"""The location of a data file, and the partition of its rows."""
Progress = tuple[int, ...]
"""The number of a checkpoint or an epoch, or the offset of each partition. Empty for none."""


class Job(Java):
    """A streaming job of `steps` units."""

    deletes_files: ClassVar[bool] = False
    shares_files: ClassVar[bool] = True
    at_once: ClassVar[int] = 1
    """How many of its lives there are at once, which know nothing of each other."""

    def __post_init__(self) -> None:
        Java.__post_init__(self)
        self.units: dict[Hashable, list[tuple[str, ...]]] = defaultdict(list)
        """Unit → the files with its rows, each time that they were written."""
        self.answered: Progress = ()
        self.walked: Progress = ()
        """The greatest progress that was answered as done, and that of the last walk."""
        self.table_uuid = ""
        self.is_gone = self.is_done = False
        self.validates = self.rng.random() < 0.5
        """Whether a commit ends if another life moved the job since it looked, as Iceberg checks since 1.11."""
        self.life = 0
        self.lives: list[asyncio.Task[None]] = []

    async def _work(self, life: int) -> None:
        """Do the work of the job from what is durable on, until all is committed."""
        raise NotImplementedError

    def _progress_in(self, summary: Mapping[str, str]) -> Progress:
        """The progress of this job that a summary states."""
        raise NotImplementedError

    @override
    async def run(self) -> None:
        """Live, die and come back until all is committed."""
        await asyncio.gather(*(self._lives() for _ in range(self.at_once)))

    @override
    async def look_again(self) -> None:
        """Finish in calm, and walk once more."""
        await self._end()
        await self.run()
        await self._end()
        await Java.look_again(self)

    async def _lives(self) -> None:
        for _ in range(_LIVES_MAX):
            if self.is_done:
                break
            self.life += 1
            living = self.world.send(self._live(self.life))
            self.lives.append(living)
            await asyncio.wait({living}, timeout=self.rng.expovariate(1 / _LIFE_S) if self.world.roughness else 600.0)
            if living.done():
                living.result()
            elif self.at_once > 1 or self.rng.random() > _ZOMBIES:
                living.cancel()
            if not self.is_done:
                self.world.trace.note(self.name, "dies", self.answered)
                await asyncio.sleep(self.rng.choice(_AWAY_S))

    async def _live(self, life: int) -> None:
        try:
            await self._work(life)
        except (Ended, Lost):
            return

    async def _end(self) -> None:
        """End what still lives. Raises what a life raised."""
        for living in self.lives:
            living.cancel()
        for end in await asyncio.gather(*self.lives, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
        self.lives = []

    # what lives share

    @override
    async def _load(self) -> Metadata:
        """The table, in which the walk finds at least what was answered before."""
        answered, self.is_gone = self.answered, True
        metadata = await Java._load(self)
        self.table_uuid = self.table_uuid or metadata["table-uuid"]
        if metadata["table-uuid"] != self.table_uuid:
            raise Ended(Heard.UNKNOWN)
        self.is_gone, self.walked = False, self._found(metadata)
        assert _most(answered, self.walked) == self.walked, (
            f"{self.name} walked to {self.walked}, and {answered} was answered"
        )
        return metadata

    def _found(self, metadata: Metadata) -> Progress:
        """The newest progress of the job in the table."""
        return next(filter(None, map(self._progress_in, chain(metadata))), ())

    async def _written(self, count: int) -> list[File]:
        """So many data files, which are stored."""
        files = [self._new_file() for _ in range(count)]
        for location, _ in files:
            await self._store(self.table, location, BODY)
        return files

    async def _commit_files(self, files: Sequence[File], words: dict[str, str], metadata: Metadata) -> None:
        """Commit files on what was loaded. Raises `Ended` unless it is done."""
        append = Append(self.name, self.table, self.rng.getrandbits(62) + 1, metadata["table-uuid"])
        append.files, append.words = tuple(location for location, _ in files), words
        append.is_shared, append.progress = self.shares_files, self._found(metadata)
        self.appends.append(append)
        described = [data_file(append.absolute(location), k) for location, k in files]
        await self._until_heard(append, self._commit(append, metadata, described))
        if append.heard is not Heard.DONE:
            raise Ended(append.heard)
        if append.version >= 0:
            self.answered = _most(self.answered, self._progress_in(words))

    @override
    async def _request_of(
        self, append: Append, metadata: Metadata, files: list[dict[str, Any]], *, keeps_manifest: bool
    ) -> dict[str, Any]:
        if self.validates and self._found(metadata) != append.progress:
            self._delete_metadata(append)
            raise Ended(Heard.REFUSED)
        return await Java._request_of(self, append, metadata, files, keeps_manifest=keeps_manifest)

    def check(self, times: Mapping[tuple[TableName, str], int], accepted: Sequence[Intent]) -> None:
        """Raise `AssertionError` unless each unit was committed once, and the walk finds the newest."""
        assert self.is_done or self.is_gone, f"liveness: {self.name} never ended: {self.appends[-3:]}"
        for unit, written in self.units.items():
            found = [{times[self.table, location] for location in files} for files in written if files]
            assert all(len(each) == 1 for each in found), f"{self.name}: {unit} was committed in part: {written}"
            total = sum(sum(each) for each in found)
            assert total <= 1, f"{self.name}: {unit} was committed {total} times: {written}"
            assert total or self.is_gone or not found, f"{self.name}: {unit} was never committed: {written}"
        own = [each for each in accepted if each.table == self.table and str(each.table_uuid) == self.table_uuid]
        newest = _most(*(self._progress_in(each.summary) for each in own))
        assert self.is_gone or self.walked == newest, f"{self.name} walked to {self.walked}, and {newest} is committed"


def _most(*progress: Progress) -> Progress:
    """The greatest of each number."""
    return tuple(map(max, zip(*filter(None, progress), strict=True)))


class Flink(Job):
    """Flink's committer, whose state has the files of each checkpoint that was not committed when it was taken."""

    def __post_init__(self) -> None:
        Job.__post_init__(self)
        self.state: tuple[int, dict[int, list[File]]] = (0, {})
        self.empty = 0

    @override
    async def _work(self, life: int) -> None:
        committed = self._found(await self._load())
        checkpoint, kept = self.state
        pending = {number: files for number, files in kept.items() if (number,) > committed}
        await self._commit_up_to(pending)
        while checkpoint < self.steps:
            files = await self._written(self.rng.choice((0, 0, 1, 2)))
            if self.life != life:
                return
            checkpoint += 1
            pending[checkpoint] = files
            self.units[checkpoint].append(tuple(location for location, _ in files))
            self.state = checkpoint, dict(pending)
            if self.rng.random() < 0.8:  # else it is not notified, and commits more the next time
                await self._commit_up_to(pending)
            await asyncio.sleep(self.rng.expovariate(1 / 0.3))
        await self._commit_up_to(pending)
        self.is_done = True

    async def _commit_up_to(self, pending: dict[int, list[File]]) -> None:
        if not pending:
            return
        files = [file for number in sorted(pending) for file in pending[number]]
        self.empty = 0 if files else self.empty + 1
        if files or self.empty % _EMPTY_COMMITS == 0:
            words = {
                "flink.job-id": self.name,
                "flink.operator-id": "sink",
                "flink.max-committed-checkpoint-id": str(max(pending)),
            }
            await self._commit_files(files, words, await self._load())
        pending.clear()

    @override
    def _progress_in(self, summary: Mapping[str, str]) -> Progress:
        is_own = summary.get("flink.job-id") == self.name and summary.get("flink.operator-id") == "sink"
        return (int(summary["flink.max-committed-checkpoint-id"]),) if is_own else ()


class SparkStream(Job):
    """Spark's streaming sink. After a restart it writes and sends the last epoch again. Refused files are deleted."""

    deletes_files: ClassVar[bool] = True
    shares_files: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Job.__post_init__(self)
        self.epoch = 0
        self.validates = False

    @override
    async def _work(self, life: int) -> None:
        for epoch in range(self.epoch, self.steps):
            files = await self._written(self.rng.randint(1, 2))
            self.units[epoch].append(tuple(location for location, _ in files))
            metadata = await self._load()
            if (epoch,) > self._found(metadata):
                words = {"spark.sql.streaming.queryId": self.name, "spark.sql.streaming.epochId": str(epoch)}
                await self._commit_files(files, words, metadata)
            await asyncio.sleep(self.rng.expovariate(1 / 0.3))
            if self.life != life:
                return
            self.epoch = epoch
        self.is_done = True

    @override
    def _progress_in(self, summary: Mapping[str, str]) -> Progress:
        is_own = summary.get("spark.sql.streaming.queryId") == self.name
        return (int(summary["spark.sql.streaming.epochId"]),) if is_own else ()


class KafkaConnect(Job):
    """Two coordinators of Kafka Connect, one of them a zombie. Workers send the files' names through a topic."""

    at_once: ClassVar[int] = 2

    def __post_init__(self) -> None:
        Job.__post_init__(self)
        self.topic: list[list[list[File]]] = [[] for _ in range(_PARTITIONS)]
        """Partition → its events, each with the files that it names, perhaps none."""
        self.consumed = [0] * _PARTITIONS
        """The offsets of the coordinators' consumer group. The one that stores them last wins."""

    @override
    async def _work(self, life: int) -> None:
        place, buffer = list(self.consumed), list[tuple[int, int, list[File]]]()
        while not self.is_done:
            await self._workers_answer()
            for partition, events in enumerate(self.topic):
                before, place[partition] = place[partition], self.rng.randint(place[partition], len(events))
                buffer += [(partition, offset, events[offset]) for offset in range(before, place[partition])]
            try:
                await self._commit_buffer(buffer, place)
            except (Ended, Lost):  # it tries again in the next cycle
                if self.is_gone:
                    return
                await asyncio.sleep(self.rng.expovariate(1 / 0.3))
                continue
            self.consumed, buffer = list(place), []
            self.is_done = sum(place) >= self.steps and place == [len(events) for events in self.topic]
            await asyncio.sleep(self.rng.expovariate(1 / 0.3))

    async def _workers_answer(self) -> None:
        """Write to the topic what workers have written meanwhile."""
        files, partition = await self._written(self.rng.choice((0, 1, 2))), self.rng.randrange(_PARTITIONS)
        if sum(map(len, self.topic)) < self.steps:
            self.units[partition, len(self.topic[partition])].append(tuple(location for location, _ in files))
            self.topic[partition].append(files)

    async def _commit_buffer(self, buffer: Iterable[tuple[int, int, list[File]]], place: Sequence[int]) -> None:
        metadata = await self._load()
        committed = self._found(metadata) or (0,) * _PARTITIONS
        files = [file for partition, offset, files in buffer if offset >= committed[partition] for file in files]
        if files:
            words = {self._offsets: json.dumps(dict(enumerate(place)))}
            words["kafka.connect.commit-id"] = str(self._uuid())
            if self.rng.random() < 0.7:  # a commit of a part has none
                words["kafka.connect.valid-through-ts"] = str(self.world.dates())
            await self._commit_files(files, words, metadata)

    @property
    def _offsets(self) -> str:
        return f"kafka.connect.offsets.control.{self.name}"

    @override
    def _progress_in(self, summary: Mapping[str, str]) -> Progress:
        offsets = json.loads(summary.get(self._offsets, "{}"))
        return tuple(offsets[str(partition)] for partition in range(_PARTITIONS) if offsets)
