"""Simulated engines: clients of the REST catalog that delete what they wrote when an answer lets them.

Owns: what Iceberg's Java (below Spark) and PyIceberg send, retry and delete after each answer, and what they heard.
Does not own: bytes (`engine_files`), the way of requests (`catalogs`), what must hold (`engine_checks`).
Invariants: an engine deletes nothing but what it wrote itself for the same append, and only after an answer after which
its original does so too; names and snapshot ids are never used twice; every choice comes from the seed.

Source: Iceberg 1.11, `SnapshotProducer`, `RESTTableOperations`, `ErrorHandlers`, Spark's `SparkWrite`; PyIceberg 0.12,
`Transaction.commit_transaction`; section 5 of the design, which docs/decisions repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, NoReturn

from typing_extensions import override

from rootline.catalog.client_snapshots import EARLIER_MAX
from rootline.catalog.table_metadata import VERSION
from rootline.schemas.identifiers import ObjectKey, TableName, name_in_namespace, namespace_of, table_name
from rootline.schemas.object_keys import key_of, table_prefix
from rootline.storage.metadata.root_reader import newest_root
from tests.simulation.catalogs import LAKE, Answer, Front, Lost
from tests.simulation.engine_files import (
    BODY,
    BY_K,
    SCHEMA,
    created,
    data_file,
    own_list,
    own_manifest,
    rows_of,
    snapshot_of,
)
from tests.simulation.faulty_world import World
from tests.simulation.published import Published

Metadata = Mapping[str, Any]
_SENDS: Final = 5
"""How often Java's HTTP client sends a request that hears 503 or 429."""
_OK, _CONFLICT, _AWAY = 200, 409, (429, 503)
_DELETES_AFTER: Final = (400, 401, 403, 404)


class Heard(Enum):
    """What an engine reports to its user."""

    DONE = "done"
    REFUSED = "refused"
    """It is not in the table, and never will be."""
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Append:
    """One append. `files`: relative locations. `answers`: the statuses, in order. `deleted`: what the engine removed.

    `table_uuid`: of the table that it was meant for.
    """

    engine: str
    table: TableName
    snapshot_id: int
    table_uuid: str
    files: tuple[str, ...] = ()
    heard: Heard = Heard.UNKNOWN
    answers: list[int | str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    """Manifests and lists that it wrote and did not delete."""
    manifest: tuple[str, int] | None = None
    is_gone: bool = False
    """Its table was purged, or its name had become another's, when the engine deleted files."""
    version: int = -1
    """The version that has it, as the engine saw it."""
    words: dict[str, str] = field(default_factory=dict)
    """What the summary of its snapshot states besides, or otherwise."""
    removes: tuple[str, ...] = ()
    """The files that it removes. This catalog takes no such commit yet."""
    is_shared: bool = False
    """Its files may be in other appends too, because a job sends them again."""
    progress: tuple[int, ...] = ()
    """Of its job, when its engine looked first."""

    def find(self, metadata: Metadata) -> bool:
        """Whether the append is listed."""
        listed = [each for each in metadata.get("snapshots", ()) if each["snapshot-id"] == self.snapshot_id]
        self.version = int(listed[0]["summary"][VERSION]) if listed else self.version
        return bool(listed)

    def absolute(self, location: str) -> str:
        """A location as clients name it."""
        return f"{LAKE}/{table_prefix(self.table)}{location}"


@dataclass(slots=True)
class Change:
    """A property that an engine sets, with a value that no one else uses."""

    table: TableName
    value: str
    heard: Heard = Heard.UNKNOWN


class Ended(Exception):
    """The engine's call ends with an error, and its user hears `heard`."""

    def __init__(self, heard: Heard) -> None:
        super().__init__(heard)
        self.heard = heard


@dataclass(slots=True)
class Engine:
    """One client, which appends to a table, changes it, and creates and drops one of its own.

    `missing`: answered ids that a table did not list later.
    """

    warehouse: ClassVar[str] = "own"
    deletes_after_503: ClassVar[bool] = False
    retries: ClassVar[int] = 10
    """`commit.retry.num-retries`, which exports hand on."""
    world: World
    front: Front
    published: Published
    name: str
    table: TableName
    steps: int
    appends: list[Append] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    absent: list[tuple[Append, int]] = field(default_factory=list)
    """Appends that the answers to their own requests did not list, and the oldest versions that these listed."""
    rng: random.Random = field(init=False)
    minted: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.name}/{self.world.rng.random()}")

    async def run(self) -> None:
        """Make `steps` calls, one after the other."""
        for _ in range(self.steps):
            roll = self.rng.random()
            if roll < 0.7:
                await self._append()
            elif roll < 0.75:
                await self._use_again()
            elif roll < 0.82:
                await self._set_property()
            elif roll < 0.95 and isinstance(self, Java):
                await self._table_as()
            else:
                await self._own_table()
            await asyncio.sleep(self.rng.expovariate(1 / 0.3))

    async def look_again(self) -> None:
        """Load the table: what was answered must be listed."""
        with contextlib.suppress(Ended):
            await self._load()

    # appends

    async def _append(self) -> None:
        try:
            metadata = await self._load()
        except (Ended, Lost):
            return
        append, described = await self._new_append(self.table, metadata)
        await self._until_heard(append, self._commit(append, metadata, described))

    async def _new_append(self, table: TableName, metadata: Metadata) -> tuple[Append, list[dict[str, Any]]]:
        """An append whose data files are stored, and their descriptions."""
        append = Append(self.name, table, self.rng.getrandbits(62) + 1, metadata["table-uuid"])
        files = [self._new_file() for _ in range(self.rng.randint(1, 3))]
        append.files = tuple(location for location, _ in files)
        self.appends.append(append)
        for location in append.files:
            await self._store(append.table, location, BODY)
        return append, [data_file(append.absolute(location), k) for location, k in files]

    async def _until_heard(self, append: Append, committing: Awaitable[Heard]) -> None:
        try:
            append.heard = await committing
        except Ended as end:
            append.heard = end.heard
        except Lost:
            append.heard = Heard.UNKNOWN
        self.world.trace.note(self.name, "append", append.snapshot_id, append.heard.value, append.answers)

    async def _use_again(self) -> None:
        """Append other files under the id of an append that is done, as if by chance."""
        used = [each for each in self.appends if each.heard is Heard.DONE and each.table == self.table]
        try:
            metadata = await self._load()
            if not used:
                return
            append, described = await self._new_append(self.table, metadata)
            append.snapshot_id = self.rng.choice(used).snapshot_id
            answer = await self._post(await self._request_of(append, metadata, described, keeps_manifest=True))
            append.answers.append(answer.status)
            append.heard = Heard.DONE if answer.status == _OK else _heard_of(answer)
        except (Ended, Lost):
            return

    async def _commit(self, append: Append, metadata: Metadata, files: list[dict[str, Any]]) -> Heard:
        raise NotImplementedError

    async def _request_of(
        self, append: Append, metadata: Metadata, files: list[dict[str, Any]], *, keeps_manifest: bool
    ) -> dict[str, Any]:
        """The request to add the append to what was loaded. Its new list is stored, and its manifest."""
        number = len(append.metadata) + len(append.deleted)
        if append.manifest is None or not keeps_manifest:
            body = own_manifest(metadata, append.snapshot_id, files)
            append.manifest = f"rest/metadata/{self._uuid()}-m{number}.avro", len(body)
            await self._write(append, append.manifest[0], body)
        below = await self._below(append, metadata)
        path, length = append.manifest
        listed = own_list(metadata, below, append.absolute(path), length, append.snapshot_id, len(files))
        name = f"rest/metadata/snap-{append.snapshot_id}-{number}-{self._uuid()}.avro"
        await self._write(append, name, listed)
        snapshot = snapshot_of(metadata, append.snapshot_id, append.absolute(name), len(files), self.world.dates())
        snapshot["summary"] |= append.words
        return {
            "requirements": _requirements(metadata),
            "updates": [{"action": "add-snapshot", "snapshot": snapshot}, _main_is(append.snapshot_id)],
        }

    async def _below(self, append: Append, metadata: Metadata) -> list[dict[str, Any]]:
        """The rows of the list that the append's own list is made of: of its parent's."""
        parent = _current(metadata)
        return [] if parent is None else rows_of(await self._read(parent["manifest-list"]))

    def _hear(self, append: Append, answer: Answer) -> None:
        """Note an answer. Where it is a success, the append must be listed in it, unless it may be there already."""
        append.answers.append(answer.status)
        is_absent = answer.status == _OK and not append.find(answer.body["metadata"])
        if is_absent and append.files and not append.is_shared:
            self.absent.append((append, oldest_with_commits(answer.body["metadata"])))

    async def _see_name(self, append: Append) -> None:
        """Note whether the table of an append is gone for good: no root that can be read names its files."""
        head = await newest_root(self.world.store, append.table)
        if head is not None:
            is_other = str(head.header.table_uuid) != append.table_uuid
            drops = head.header.name.drops
            append.is_gone = is_other or (head.header.is_tombstone and bool(drops) and drops[-1].is_purged)

    def _delete_metadata(self, append: Append) -> None:
        for location in append.metadata:
            self._delete(append, location)
        append.metadata = []

    def _delete(self, append: Append, location: str) -> None:
        """Delete what this append wrote."""
        self.world.trace.note(self.name, "deletes", location)
        append.deleted.append(location)
        key = key_of(append.table, location)
        if (needed := self.world.needed_of(key)) is not None:
            needed.going(key, self.world.dates())
        self.world.store.discard(key)

    # changes and tables

    async def _set_property(self) -> None:
        change = Change(self.table, f"{self.name}-{self._fresh()}")
        self.changes.append(change)
        updates = [{"action": "set-properties", "updates": {f"set-by-{self.name}": change.value}}]
        try:
            answer = await self._post({"requirements": [], "updates": updates})
        except Lost:
            return
        change.heard = Heard.DONE if answer.status == _OK else _heard_of(answer)

    async def _own_table(self) -> None:
        """Create a table and drop it, and see that each happened."""
        folder, name = self._folder, self._own_name()
        asked = {"name": name, "schema": SCHEMA}
        try:
            made = await self.front.ask("POST", folder, asked)
            if made.status != _OK:
                return
            found = await self._get(f"{folder}/{name}")
            assert found.status == _OK, f"{name} was created, and is not there: {found}"
            wanted, given = found.body["metadata"]["table-uuid"], made.body["metadata"]["table-uuid"]
            assert wanted == given, f"{name} was created as {given}, and is {wanted}"
            dropped = await self.front.ask("DELETE", f"{folder}/{name}")
            if dropped.status != 204:
                return
            found = await self._get(f"{folder}/{name}")
            assert found.status == 404, f"{name} was dropped, and is there: {found.status}"
        except Lost:
            return

    # requests

    async def _load(self) -> Metadata:
        """The table as it is now. Every append that was answered must be listed in it.

        Raises:
            Lost: it cannot be loaded. Ended: it does not exist.
        """
        answer = await self._get(self._path)
        if answer.status == 404:
            raise Ended(Heard.REFUSED)
        if answer.status != _OK:
            raise Lost
        metadata: Metadata = answer.body["metadata"]
        seen = _current(metadata)
        number, version = (0, -1) if seen is None else (seen["sequence-number"], int(seen["summary"][VERSION]))
        self.published.bases[metadata["table-uuid"], number] = version
        listed = {each["snapshot-id"] for each in metadata.get("snapshots", ())}
        oldest = oldest_with_commits(metadata)
        for append in self.appends:
            is_of_it = append.heard is Heard.DONE and append.table_uuid == metadata["table-uuid"]
            if is_of_it and append.snapshot_id not in listed and append.version >= oldest:
                self.missing.append(f"{append} is not listed, and commits of versions from {oldest} on are")
        return metadata

    async def _refreshed(self, append: Append) -> Metadata:
        """The table of an append, loaded again. Another table of its name ends the call with an error."""
        metadata = await self._load()
        if metadata["table-uuid"] != append.table_uuid:
            raise Ended(Heard.UNKNOWN)
        return metadata

    async def _get(self, path: str) -> Answer:
        """Read, as often as Java's HTTP client does. Raises `Lost`."""
        for _ in range(_SENDS * 4):
            try:
                answer = await self.front.ask("GET", path)
            except Lost:
                continue
            if answer.status < 500:
                return answer
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
        raise Lost

    async def _post(self, asked: dict[str, Any], path: str = "") -> Answer:
        return await self.front.ask("POST", path or self._path, asked, doubles=True, lies=not self.deletes_after_503)

    @property
    def _folder(self) -> str:
        return f"/{self.warehouse}/namespaces/{namespace_of(self.table)}/tables"

    @property
    def _path(self) -> str:
        return f"{self._folder}/{name_in_namespace(self.table)}"

    def _own_name(self) -> str:
        return f"own{self._fresh()}of{self.name.replace('-', '')}"

    # objects

    async def _store(self, table: TableName, location: str, body: bytes) -> None:
        await asyncio.sleep(self.world.delay_s())
        await self.world.store.put_if_absent(key_of(table, location), body)

    async def _write(self, append: Append, location: str, body: bytes) -> None:
        await self._store(append.table, location, body)
        append.metadata.append(location)

    async def _read(self, path: str) -> bytes:
        await asyncio.sleep(self.world.delay_s())
        found = await self.world.store.get(ObjectKey(path.removeprefix(f"{LAKE}/")))
        assert found is not None, f"{path} is in a table's metadata, and not in the store"
        return found.body

    def _new_file(self) -> tuple[str, int]:
        """The location of a data file, and the partition of its rows."""
        k = self.rng.randint(0, 3)
        return f"data/k={k}/00000-{self._fresh()}-{self._uuid()}.parquet", k

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.rng.getrandbits(128), version=4)

    def _fresh(self) -> int:
        self.minted += 1
        return self.minted


class Java(Engine):
    """Iceberg's Java 1.11 below Spark."""

    deletes_files: ClassVar[bool] = True

    @override
    async def _commit(self, append: Append, metadata: Metadata, files: list[dict[str, Any]]) -> Heard:
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(self.rng.uniform(0.1, 1.0))
                metadata = await self._refreshed(append)
            if append.find(metadata):  # an attempt that was refused is there all the same
                if metadata["current-snapshot-id"] == append.snapshot_id:
                    break
                asked = {"requirements": _requirements(metadata), "updates": [_main_is(append.snapshot_id)]}
            else:
                asked = await self._request_of(append, metadata, files, keeps_manifest=True)
            answer = await self._sent(asked)
            self._hear(append, answer)
            if answer.status == _OK:
                break
            if answer.status in _DELETES_AFTER:
                await self._abort(append)
            if answer.status != _CONFLICT:
                if not await self._is_listed(append):
                    return Heard.UNKNOWN
                append.answers.append("found")
                break
        else:
            await self._abort(append)
        await self._clean(append)
        return Heard.DONE

    async def _table_as(self) -> None:
        """Create a table with files, as `CREATE TABLE AS` does. Its name is used once."""
        name = self._own_name()
        staged = {"name": name, "schema": SCHEMA, "partition-spec": BY_K, "stage-create": True}
        try:
            answer = await self.front.ask("POST", self._folder, staged)
        except Lost:
            return
        if answer.status == _OK:
            metadata = answer.body["metadata"]
            append, described = await self._new_append(table_name(f"{namespace_of(self.table)}.{name}"), metadata)
            await self._until_heard(append, self._create(append, metadata, described))

    async def _create(self, append: Append, metadata: Metadata, files: list[dict[str, Any]]) -> Heard:
        """A create is tried once: who hears that the table is there has not made it."""
        adding = await self._request_of(append, metadata, files, keeps_manifest=True)
        updates = [*created(metadata), *adding["updates"]]
        path = f"{self._folder}/{name_in_namespace(append.table)}"
        answer = await self._sent({"requirements": [{"type": "assert-create"}], "updates": updates}, path)
        self._hear(append, answer)
        if answer.status in (*_DELETES_AFTER, _CONFLICT) or (answer.status in _AWAY and self.deletes_after_503):
            await self._abort(append)
        return Heard.DONE if answer.status == _OK else Heard.UNKNOWN

    async def _sent(self, asked: dict[str, Any], path: str = "") -> Answer:
        """Send a request again while it hears that nobody is there."""
        for _ in range(_SENDS):
            answer = await self._post(asked, path)
            if answer.status not in _AWAY:
                break
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
        return answer

    @override
    async def _refreshed(self, append: Append) -> Metadata:
        try:
            return await Engine._refreshed(self, append)
        except Ended as end:
            if end.heard is Heard.REFUSED:
                await self._abort(append)
            raise

    async def _is_listed(self, append: Append) -> bool:
        """Whether an append is there whose outcome is unknown."""
        try:
            return append.find(await self._load())
        except (Ended, Lost):
            return False

    async def _abort(self, append: Append) -> NoReturn:
        """Nothing of it was committed: Iceberg deletes manifests and lists, then Spark its data files."""
        await self._see_name(append)
        self._delete_metadata(append)
        for location in append.files if self.deletes_files else ():
            self._delete(append, location)
        raise Ended(Heard.REFUSED)

    async def _clean(self, append: Append) -> None:
        """After a commit: delete what the table does not name."""
        if await self._is_listed(append):
            self._delete_metadata(append)


class OldJava(Java):
    """Java 1.9, which deletes after 503 too, and asks nothing after other errors."""

    deletes_after_503 = True

    @override
    async def _is_listed(self, append: Append) -> bool:
        if append.answers[-1] == _OK:
            return await Java._is_listed(self, append)
        if append.answers[-1] in _AWAY:
            await self._abort(append)
        return False


class PyIceberg(Engine):
    """PyIceberg 0.12, which writes format 2 and never deletes a data file."""

    warehouse = "v2"

    @override
    async def _commit(self, append: Append, metadata: Metadata, files: list[dict[str, Any]]) -> Heard:
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(self.rng.uniform(0.1, 1.0))
                metadata = await self._refreshed(append)
                if append.find(metadata):
                    append.answers.append("found")
                    return Heard.DONE
            answer = await self._post(await self._request_of(append, metadata, files, keeps_manifest=False))
            self._hear(append, answer)
            if answer.status == _OK:
                return Heard.DONE
            if answer.status != _CONFLICT:
                return _heard_of(answer)
        await self._see_name(append)
        self._delete_metadata(append)
        return Heard.REFUSED


def _heard_of(answer: Answer) -> Heard:
    return Heard.REFUSED if 400 <= answer.status < 429 else Heard.UNKNOWN


def _current(metadata: Metadata) -> Mapping[str, Any] | None:
    wanted = metadata.get("current-snapshot-id")
    return next((each for each in metadata.get("snapshots", ()) if each["snapshot-id"] == wanted), None)


def chain(metadata: Metadata) -> Iterator[Mapping[str, str]]:
    """The summaries of the current snapshot and of those below it, as clients walk there."""
    return (each["summary"] for each in _walk(metadata))


def _walk(metadata: Metadata) -> Iterator[Mapping[str, Any]]:
    by_id = {each["snapshot-id"]: each for each in metadata.get("snapshots", ())}
    at = by_id.get(metadata.get("current-snapshot-id"))
    while at is not None:
        yield at
        at = by_id.get(at.get("parent-snapshot-id"))


def oldest_with_commits(metadata: Metadata) -> int:
    """The first version from which all commits of clients are listed.

    That is where the chain of `main` begins, which tagged versions before it are not in. Where the list has as many
    commits of earlier versions as an export lists, it is the one after the oldest of them. Jobs' newest commits are
    among the words behind the chain instead.
    """
    walked = list(_walk(metadata))
    if not walked:
        return 0
    newest, oldest = (int(each["summary"][VERSION]) for each in (walked[0], walked[-1]))
    in_chain = {each["snapshot-id"] for each in walked}
    words = sum(int(each["summary"][VERSION]) == oldest for each in walked) - 1
    beside = (each["summary"] for each in metadata["snapshots"] if each["snapshot-id"] not in in_chain)
    earlier = sorted(version for each in beside if (version := int(each[VERSION])) < newest)
    is_full = len(earlier) + words >= EARLIER_MAX
    return max(oldest, earlier[0] + 1) if is_full and earlier else oldest


def _requirements(metadata: Metadata) -> list[dict[str, Any]]:
    found = _current(metadata)
    at = None if found is None else found["snapshot-id"]
    return [
        {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": at},
    ]


def _main_is(snapshot_id: int) -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
