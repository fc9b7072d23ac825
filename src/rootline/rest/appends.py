"""Appends of Iceberg clients: snapshots that add data files, as one intent that is committed once.

Owns: the version that a client built on, the intent, its words, the outcome of a repeated request. Does not
own: the difference that the client made (`live_sets`), the request (`table_changes`), what is known of streaming jobs
(`job_progress`), the rules of the intent (`rootline.tree`).
Invariants: a request becomes one intent, or none if it changes no file. An append fits on every later version of its
table, unless the table was replaced since. Nothing is published before the whole request was checked. A request is
committed once: a running one is shared, and afterwards the ledger knows the id of its first snapshot. Before a request
is refused with a 4xx, the ledger knows that too, so no other catalog commits it.

Theory. A client that got no answer, or a wrong one, repeats the request, sometimes after it deleted its manifests. So
the ledger is asked first, and a missing list does not matter if the ledger knows the commit. A client that was refused
uses the same snapshot id for other content. So the writer is the id, and the intent's id begins with a digest of the
request. The ledger judges another request at a rejected sequence afresh. At a committed one, it recognizes other
content by a digest of the added files.

Source: the Iceberg REST specification, `CommitTableRequest`, docs/decisions/0136 and 0147.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.rest.responses import Refusal, bad_request
from rootline.client.new_files import dated_files, for_intent, verdict_on
from rootline.maintenance.limits import CLIENT_FILES_PROPERTY
from rootline.rest.bodies import AddedSnapshot
from rootline.rest.client_files import ClientFolder, ClientReads, MetadataMissing
from rootline.rest.job_progress import check_increases, progress_in
from rootline.rest.live_sets import Difference, check_appends, check_honest, difference
from rootline.rest.refusals import commit_failed
from rootline.rest.table_changes import ShownTable, TableCommit, replacing_with_rows
from rootline.rest.writing import Writing
from rootline.schemas.bytes.record_headers import kept_of, stated
from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.client_commits import CLIENT, CLIENT_WRITER_PREFIX, REFUSED, ClientCommit
from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import SnapshotId, TableName, Version, WriterId, snapshot_id_of
from rootline.schemas.intent import Intent, IntentKind, Isolation
from rootline.schemas.object_keys import is_absolute
from rootline.schemas.parts.name import NameState
from rootline.schemas.parts.progress import ClientSnapshot, Progress
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import checked_switch
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.page_reader import read_pages_of
from rootline.storage.metadata.root_reader import newest_root
from rootline.storage.metadata.table_loader import load_state
from rootline.storage.replanning import Patience, drive_async
from rootline.tree.draft.summary import RESERVED_WORDS, USER_SUMMARY_CHARS_MAX
from rootline.tree.evolution.next_definition import evolved
from rootline.tree.parts.ledger import CLIENT_RETENTION_S, LedgerDraft, committed_version
from rootline.tree.state.table_state import TableState

_SEQUENCE: Final = 0
_REMEMBERED_MS: Final = 500 * CLIENT_RETENTION_S
"""A decision of at most this age is in the ledger, even if clocks differ by half an hour."""
_CLIENTS_COUNTS: Final = (
    *RESERVED_WORDS,
    "manifests-created",
    "manifests-kept",
    "manifests-replaced",
    "entries-processed",
    "partitions.",
    "partition-summaries-included",
)
"""The beginnings of a summary's words that count, or that are the table's own. They are not kept."""
_APPEND, _REPLACE = "append", "replace"
_REASON_CHARS_MAX: Final = 300
"""The characters of a refusal that the ledger keeps."""
_NEAR: Final = 100
"""The number of versions among which the base of a commit is looked for without a thread."""


class _OtherFiles(Refusal):
    """Another commit has the snapshot id. No file of the request is in the table."""


class Appended(NamedTuple):
    """A request that is done. `version`: of its commit, if it was committed just now."""

    version: Version | None


@dataclass(frozen=True, slots=True)
class ClientAppend:
    """The snapshots that a client adds to a table. `request`: the digest of the whole request."""

    writing: Writing
    table: TableName
    wanted: TableCommit
    asked: FormatVersion | None
    request: str

    async def commit(self) -> Appended | None:
        """Commit the snapshots, with the changes of the definition in the same request.

        Returns:
            The commit. `None`: the request adds no file, and its changes of the definition remain.

        Raises:
            Refusal: it is refused, or was refused by the coordinator.
            Invalid: the coordinator rejected it.
            Unavailable: nothing was published.
            OutcomeUnknown: it was published, and has no verdict yet.
        """
        is_done, recent = False, self.writing.catalog.recent_root(self.table)

        async def plan() -> _Planned | None:
            nonlocal is_done, recent
            found = None if recent is None else await self._plan_on_recent(recent)
            recent = None  # another plan is made on the newest version
            if found is None:
                found = await self._plan(await self.writing.head(self.table))
            if isinstance(found, _Planned):
                return found
            is_done = found
            return None

        outcome = await self._publish(plan)
        if outcome is None:
            return Appended(None) if is_done else None
        verdict, planned = outcome
        await self._settle(verdict, planned.found)
        version = verdict.version if verdict.kind is VerdictKind.COMMITTED else None
        return Appended(None if version is None else Version(version))

    async def create(self, definition: TableDefinition, read: Version) -> bool:
        """Create the table with the snapshots' files. The name was free in version `read`.

        Returns whether the request is done. Raises as `commit`.
        """
        began_ms = self.writing.session.environment.now_ms()
        found = await self._read(None, definition)
        if not found.added:
            return False
        summary = self._summary(found, definition, (), 0)
        new = await for_intent(self.writing.session, self.table, definition, found.added)
        intent = Intent(
            intent_id=f"{self.request}/{IntentKind.CREATE}",
            table=self.table,
            table_uuid=definition.table_uuid,
            kind=IntentKind.CREATE,
            writer_id=self._writer,
            writer_sequence=_SEQUENCE,
            read_version=read,
            definition=definition.to_json().decode(),
            add_data_files=new.files,
            add_manifests=new.leaves,
            summary=summary,
        )
        verdict = await self._verdict_on(_Planned(intent, found), began_ms, self.writing.timeout_s)
        await self._settle(verdict, found)
        return True

    async def refused(self, refusal: Refusal, error: Exception) -> bool:
        """Refuse the request at every catalog, because it is answered with `refusal`. `error` is the reason.

        Clients delete their files after a 4xx. So the coordinator rejects the request first, and no slower catalog that
        has it too can commit it (docs/decisions/0147).

        Returns:
            `False` if the request is done instead: all its files are live, under whatever id. Or the ledger knows it,
            and the client has deleted its manifests since.

        Raises:
            Refusal: a part of it may be in the table, so the client must not delete a file.
        """
        if not 400 <= refusal.status < 500 or isinstance(error, _OtherFiles):
            return True
        if isinstance(error, RootlineError) and error.code in ("sequence-reused", "request-refused"):
            return True
        root = await self._newest_or_none()
        if root is None:  # no table ever had the name
            return True
        if not await self._may_be_refused(root):
            return False
        await self._record_refusal(root, refusal.message)
        return True

    async def _record_refusal(self, root: Root, reason: str) -> None:
        """Publish the intent that the coordinator rejects, and by which the ledger knows the request.

        Raises `Refusal` if the ledger does not know it as refused: it was committed, another table has the name, its
        verdict is late, or the intent was rejected for another reason, such as a permission, and so not recorded.
        """
        intent = Intent(
            intent_id=self.request,
            table=self.table,
            table_uuid=root.header.table_uuid,
            kind=IntentKind.APPEND,
            writer_id=self._writer,
            writer_sequence=_SEQUENCE,
            summary={REFUSED: reason[:_REASON_CHARS_MAX]},
        )
        session, timeout_s = self.writing.session, self.writing.timeout_s
        try:
            verdict = await verdict_on(session, self.writing.stamp, intent, timeout_s=timeout_s)
        except RootlineError as error:
            raise self._unknown(f"it is to be refused ({reason}), and that is not recorded: {error.message}") from error
        if verdict.code != "request-refused":
            found = f"{verdict.message or 'its id is committed'} [{verdict.code or verdict.kind}]"
            raise self._unknown(f"it is to be refused ({reason}), and that is not recorded: {found}")

    async def _may_be_refused(self, root: Root) -> bool:
        """As `refused`, with what the newest root shows."""
        if root.header.name.state is NameState.VIEW:
            return True
        is_table, is_committed = not root.header.is_tombstone, await self._is_committed(root.header)
        own = await self._own_files(root)
        if own is None and is_committed and is_table:
            return False
        state = await self._state(root)
        live = [file for file in own or () if state.find(EntryPlace(ContentType.DATA, file)) is not None]
        if live and live == own and is_table:
            return False
        if is_committed or live or (is_table and await self._is_listed()):
            raise self._unknown("some of its files are, or were, in the table")
        return True

    async def _own_files(self, root: Root) -> list[str] | None:
        """The data files that the client's own manifests add, as far as they can be read. `None`: one is missing."""
        ids = {each.snapshot_id for each in self.wanted.snapshots}
        try:
            definition = await self.writing.definition(root)
            reads = self._reads(definition)
            async with asyncio.timeout(self.writing.timeout_s), self.writing.commits.reading.of(self.table):
                listed = (await reads.listed(self.wanted.snapshots[-1].manifest_list)).values()
                own = tuple(each for each in listed if each.is_data and each.added_snapshot_id in ids)
                async with reads.of_size(own):
                    entries = [entry for each in own for entry in await reads.entries(each, definition)]
        except MetadataMissing:
            return None
        except (Refusal, RootlineError, TimeoutError):
            return []
        added = [entry for entry in entries if entry.version_info.status is Status.ADDED]
        return [reads.folder.relative(entry.location) or entry.location for entry in added]

    async def _is_listed(self) -> bool:
        """Whether an export of the newest version lists one of the request's snapshots. Raises `Refusal`."""
        try:
            metadata = await self.writing.metadata(self.table, self.asked)
        except (Refusal, RootlineError) as error:
            raise self._unknown(str(error)) from error
        listed = {each["snapshot-id"] for each in metadata["snapshots"]}
        return any(each.snapshot_id in listed for each in self.wanted.snapshots)

    async def _is_committed(self, header: RootHeader) -> bool:
        """Whether the ledger in the newest root has the request's first snapshot. Raises `Refusal` if unknown."""
        try:
            pages = await read_pages_of(self.writing.session.store, header, LEDGER_PAGES)
        except RootlineError as error:
            raise self._unknown(error.message) from error
        parts = LedgerDraft(header.ledger.writers, pages).parts_of(WriterId(self._writer))
        return committed_version(parts, _SEQUENCE) is not None

    @property
    def _writer(self) -> str:
        return f"{CLIENT_WRITER_PREFIX}{self.wanted.snapshots[0].snapshot_id}"

    async def _plan_on_recent(self, root: Root) -> _Planned | bool | None:
        """As `_plan`, on a version that was the newest a moment ago. `None`: a plan needs the newest one.

        The coordinator decides on the newest version in any case, and so does a refusal.
        """
        base = None if self.wanted.base is None else _version_of(root.header, self.wanted.base, _NEAR)
        known = {schema.schema_id for schema in (await self.writing.definition(root)).schemas}
        if base is None or any(each.schema_id not in known for each in self.wanted.snapshots):
            return None
        try:
            return await self._plan(root)
        except (MetadataMissing, Refusal, Invalid):
            return None

    async def _plan(self, root: Root) -> _Planned | bool:
        """The intent on a version. `True`: the request is done. `False`: it adds no file."""
        definition = await self.writing.definition(root)
        if _has_committed(root.header, self._writer):
            await self._check_repeated(root, definition)
            return True
        return await self._planned(root.header, definition)

    async def _planned(self, header: RootHeader, before: TableDefinition) -> _Planned | bool:
        """The intent for a table whose newest version has `header` and `before`. `False`: it adds no file."""
        writing, table, wanted = self.writing, self.table, self.wanted
        shown = self._shown(before)
        await self._check_requirements(shown)
        base = await self._base(header, shown.format_version)
        changes = wanted.changes_of(shown, header.definition.digest, is_replace=False)
        after = before if changes is None else evolved(before, changes)
        if after is not before:
            writing.check_shown(after, self.asked)
        found = await self._read(base, after)
        if not found.added:
            return False
        if _may_be_forgotten(header, base) and await self._is_listed():
            if await self._all_live(found):
                return True
            raise self._unknown("its snapshot is listed, and its files are not in the table any more")
        is_append = all(each.operation == _APPEND for each in wanted.snapshots)
        seen = 0 if base is None else int(base["sequence-number"])
        summary = self._summary(found, after, header.progress, seen)
        if header.locations.horizon_ms:
            await self._check_stored(found)
        new = await for_intent(writing.session, table, after, found.added)
        intent = Intent(
            # a definition that was there before has another location, so a rejection of then does not apply
            intent_id=f"{self.request}/{sha256(header.definition.location.encode()).hexdigest()[:16]}",
            table=table,
            table_uuid=header.table_uuid,
            kind=IntentKind.APPEND,
            writer_id=self._writer,
            writer_sequence=_SEQUENCE,
            schema_id=self._schema_id(before, base) if after is before else after.current_schema_id,
            read_sequence_number=seen,
            isolation=Isolation.SNAPSHOT if is_append else Isolation.SERIALIZABLE,
            filter=None if is_append else "true",  # an overwrite that removes nothing must not miss a row
            add_data_files=new.files,
            add_manifests=new.leaves,
            definition=changes.to_json() if changes and (after is not before or changes.replaces) else None,
            summary=summary,
        )
        return _Planned(intent, found)

    async def _check_repeated(self, root: Root, definition: TableDefinition) -> None:
        """Check that a committed snapshot id is the request's own, as far as its manifests are still there.

        Raises:
            Refusal: the id was committed with other files, or that is unknown.
        """
        try:
            base = await self._base(root.header, self._shown(definition).format_version)
            found = await self._read(base, definition)
        except MetadataMissing:
            return  # clients delete their manifests after a refusal that they misread
        except (Refusal, RootlineError) as error:
            raise self._unknown(str(error)) from error
        await self._check_same(root, found)

    def _unknown(self, reason: str) -> Refusal:
        words = f"{self.table}: snapshot {self.wanted.snapshots[0].snapshot_id} may be committed"
        return Refusal(500, "CommitStateUnknownException", f"{words}: {reason}: load the table to find out")

    def _reads(self, definition: TableDefinition) -> ClientReads:
        is_swept = checked_switch(definition.properties, CLIENT_FILES_PROPERTY)
        folder = ClientFolder(self.table, self._shown(definition).location, is_swept)
        return ClientReads(self.writing.session.store, folder, self.writing.commits)

    def _shown(self, definition: TableDefinition) -> ShownTable:
        catalog = self.writing.catalog
        format_version = catalog.format_of(self.asked, definition.properties)
        return ShownTable(self.table, definition, format_version, catalog.folder(self.table, format_version).base)

    async def _check_requirements(self, shown: ShownTable) -> None:
        """Check what the client requires of the newest version."""
        wanted, writing = self.wanted, self.writing
        wanted.check_requirements(shown, {})
        wanted.check_served()
        if wanted.may_replace and not await writing.refs(self.table, self.asked):
            raise bad_request(replacing_with_rows(self.table))

    async def _base(self, header: RootHeader, format_version: FormatVersion) -> Mapping[str, Any] | None:
        """The snapshot that the client built on, as exports show it, or `None` if the client saw none.

        Raises:
            Refusal: it is not a version of the table that can still be read.
        """
        wanted = self.wanted.base
        if wanted is None:
            return None
        version = await asyncio.to_thread(_version_of, header, wanted)
        if version is not None:
            try:
                found = await self.writing.catalog.snapshot(self.table, format_version, version, SnapshotId(wanted))
            except Invalid as error:
                if error.code != "version-unknown":
                    raise
                found = None
            if found is not None:
                return found
        raise commit_failed(
            f"Requirement failed: branch main has changed: snapshot {wanted} is not a version of {self.table} that can "
            "still be read: reload the table"
        )

    async def _read(self, base: Mapping[str, Any] | None, definition: TableDefinition) -> Difference:
        """The checked difference between `base` and the client's last snapshot."""
        writing, table, snapshots = self.writing, self.table, self.wanted.snapshots
        reads = self._reads(definition)
        before = None if base is None else str(base["manifest-list"])
        try:
            async with asyncio.timeout(writing.timeout_s), writing.commits.reading.of(table):
                found = await difference(reads, before, [each.manifest_list for each in snapshots], definition)
        except TimeoutError:
            raise Unavailable(
                "store-unavailable", f"{table}: the commit's manifests were not read in time; nothing was published"
            ) from None
        check_honest(table, found, snapshots)
        check_appends(table, found)
        if found.added and any(each.operation == _REPLACE for each in snapshots):
            raise bad_request(
                f"{table}: a snapshot of operation replace adds {len(found.added)} files and removes none: rewriting "
                "files is not taken yet; Rootline's workers do it"
            )
        return found

    async def _check_stored(self, found: Difference) -> None:
        """Ask the store for the added files, so that the intent claims the date of the oldest one.

        Raises:
            Refusal: a file has another length than its entry states.
            Invalid: `file-missing`, `file-unreadable`.
            Unavailable: `store-unavailable`.
        """
        names = [file.location for file in found.added if not is_absolute(file.location)]
        stored = await dated_files(self.writing.session, self.table, names)
        for file in found.added:
            there = stored.get(file.location)
            if there is not None and there.length != file.file_size_in_bytes:
                raise bad_request(
                    f"{self.table}: {file.location[:200]!r} has {there.length} bytes, its entry states "
                    f"{file.file_size_in_bytes}: correct the manifest"
                )

    def _schema_id(self, definition: TableDefinition, base: Mapping[str, Any] | None) -> int | None:
        """The schema that the client wrote for, by which rows for a table that was replaced since are recognized."""
        known = {schema.schema_id for schema in definition.schemas}
        stated_id = self.wanted.snapshots[-1].schema_id
        if stated_id in known:
            return stated_id
        return None if base is None else int(base["schema-id"])

    def _summary(self, found: Difference, definition: TableDefinition, known: Progress, seen: int) -> dict[str, str]:
        """The words of the intent. Raises `Refusal`: they are too long, or a job has stated them before."""
        table, snapshots = self.table, self.wanted.snapshots
        words = {key: text for each in snapshots for key, text in _own_words(each).items()}
        progress = progress_in(words, definition.properties)
        hidden = [job for each in snapshots for job in progress_in(_own_words(each), definition.properties)]
        if not progress.keys() >= set(hidden):
            raise bad_request(f"{table}: the snapshots are of several streaming jobs: commit for one job at a time")
        check_increases(table, words, progress, known, seen)
        ids = tuple(ClientSnapshot(each.snapshot_id, each.operation) for each in snapshots)
        words[CLIENT] = ClientCommit(ids, found.digest, progress).to_json()
        if sum(len(key) + len(text) for key, text in words.items()) > USER_SUMMARY_CHARS_MAX:
            raise bad_request(
                f"{table}: the summaries of the snapshots have more than {USER_SUMMARY_CHARS_MAX} characters: shorten "
                "them"
            )
        ClientCommit.of(words)  # as a coordinator checks it
        return words

    async def _publish(self, plan: Callable[[], Awaitable[_Planned | None]]) -> tuple[Verdict, _Planned] | None:
        """Publish the intent, and make another plan if only its definition was overtaken."""
        environment = self.writing.session.environment
        patience = Patience.of(self.writing.timeout_s, environment.monotonic_s, environment.jitter)
        began_ms = environment.now_ms()

        async def publish(planned: _Planned) -> tuple[Verdict, _Planned]:
            return await self._verdict_on(planned, began_ms, patience.verdict_wait_s), planned

        def delay_of(outcome: tuple[Verdict, _Planned], replans: int) -> float | None:
            verdict = outcome[0]
            return patience.delay_of(verdict, replans) if verdict.code == "definition-changed" else None

        return await drive_async(plan, publish, delay_of)

    async def _verdict_on(self, planned: _Planned, began_ms: int, timeout_s: float) -> Verdict:
        """Publish an intent. Raises `Refusal` if this process was stopped for so long since `began_ms` that the ledger
        may have forgotten that another catalog refused the request.
        """
        session = self.writing.session
        if session.environment.now_ms() - began_ms > _REMEMBERED_MS:
            raise self._unknown("the catalog was stopped while it planned the commit")
        return await verdict_on(
            session, self.writing.stamp, planned.intent, timeout_s=timeout_s, content=planned.found.digest
        )

    async def _settle(self, verdict: Verdict, found: Difference) -> None:
        """Return if the rows of a published intent are in the table. Raises `Refusal`, `Invalid`."""
        if verdict.kind is VerdictKind.COMMITTED:
            return
        if verdict.kind is VerdictKind.DUPLICATE:
            await self._check_same(await self._newest(), found)
            return
        code, message = verdict.code or "intent-malformed", verdict.message or ""
        if code == "file-already-live" and await self._all_live(found):
            return
        if code == "definition-changed":  # another catalog may commit the same request on the newer definition
            raise self._unknown("the table's definition changed each time it was planned")
        if code == "intent-malformed":  # the intent is valid: its words are not known everywhere yet
            raise Refusal(
                503,
                "ServiceUnavailableException",
                f"{self.table}: a coordinator does not take commits of Iceberg clients: update all coordinators "
                f"({message}) [{code}]",
            )
        raise Invalid(code, message or f"{self.table}: intent {verdict.intent_id} was rejected ({code})")

    async def _check_same(self, root: Root, found: Difference) -> None:
        """Check that a commit under the request's snapshot id has its files. Raises `Refusal`."""
        content = stated(found.digest)
        assert content is not None, "a digest is not empty"
        pair, digest = kept_of(self._writer, _SEQUENCE, content)
        kept = next((each.content for each in root.header.ledger.contents if each.pair == pair), None)
        if kept == digest or (kept is None and await self._all_live(found)):
            return
        if kept is None:  # the ledger has forgotten the digest, and some files were rewritten or removed since
            raise self._unknown("its files are no longer compared")
        raise _OtherFiles(
            409,
            "CommitFailedException",
            f"{self.table}: snapshot {self.wanted.snapshots[0].snapshot_id} was committed with other files: reload the "
            "table, and give the snapshot another id",
        )

    async def _newest(self) -> Root:
        """The newest root of the name, after something was published. Raises `Refusal` if it cannot be read."""
        root = await self._newest_or_none()
        assert root is not None, "its intents have verdicts"
        return root

    async def _newest_or_none(self) -> Root | None:
        try:
            return await newest_root(self.writing.session.store, self.table)
        except RootlineError as error:
            raise self._unknown(error.message) from error

    async def _all_live(self, found: Difference) -> bool:
        """Whether all added files are in the table now. Raises `Refusal` if that is unknown."""
        root = await self._newest()
        if root.header.is_tombstone:
            return False
        state = await self._state(root)
        live = [state.find(EntryPlace(ContentType.DATA, file.location)) for file in found.added]
        for file, known in zip(found.added, live, strict=True):
            if known is not None and known.entry.record_count != file.record_count:
                raise self._unknown(f"{file.location[:200]!r} is in the table with another number of rows")
        return None not in live

    async def _state(self, root: Root) -> TableState:
        try:
            return await load_state(self.writing.session.store, root)
        except RootlineError as error:
            raise self._unknown(error.message) from error


@dataclass(frozen=True, slots=True)
class _Planned:
    """An intent, and the difference that it makes."""

    intent: Intent
    found: Difference


def _own_words(snapshot: AddedSnapshot) -> dict[str, str]:
    """The words of a summary that are kept."""
    return {key: text for key, text in snapshot.summary.items() if not key.startswith(_CLIENTS_COUNTS)}


def _has_committed(header: RootHeader, writer: str) -> bool:
    """Whether the ledger in the header itself has the writer's only sequence."""
    record = header.ledger.writers.get(WriterId(writer))
    return record is not None and committed_version((record,), _SEQUENCE) is not None


def _may_be_forgotten(header: RootHeader, base: Mapping[str, Any] | None) -> bool:
    """Whether the ledger may have forgotten a commit that was made on `base`."""
    if base is None:
        return header.version > 0
    return header.snapshot.timestamp_ms - int(base["timestamp-ms"]) > _REMEMBERED_MS


def _version_of(header: RootHeader, snapshot_id: int, versions_max: int | None = None) -> Version | None:
    """The addressable version with this snapshot id, one of the newest `versions_max`. Ids follow from versions, so it
    is found by counting back.
    """
    wanted, oldest = SnapshotId(snapshot_id), header.versions.oldest
    if versions_max is not None:
        oldest = max(oldest, Version(header.version - versions_max))
    versions: Iterable[Version] = map(Version, range(header.version, oldest - 1, -1))
    return next((one for one in versions if snapshot_id_of(header.table_uuid, one) == wanted), None)
