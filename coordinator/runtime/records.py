"""Turns one record of the log into an intent or a rejection, and checks the writer's permission.

A *suspect* record may have crashed the process that read it last. *Poison* is a record that crashed the child process
which tried it.

Owns: the choice which records are intents of a table, the rejection of the others, the child process that decodes
suspect records first, the policy file of keys, tables and kinds. Does not own: framing
(`rootline.schemas.bytes.intent_codec`), the child's side (`decoding_child`), the choice of suspects (the feed), the
time at which a rejection is published (`intake`), signatures (`rootline.schemas.bytes.record_headers`), the
order of refusals among decisions (`rootline.tree.commit.decide`).
Invariants: any record yields an intent or a rejection, never an error, because a record that ends this process would
end the next one. A record that damages the child does not affect this process. If the child ends, only the
record that it was decoding is rejected, and a child that does not start rejects nothing. The policy file lists all that
is allowed. A file that cannot be read in full is refused at the start. A secret is never shown. The age of a signature
follows from the record alone, so all coordinators reach the same result.

Theory. A record that kills the process that decodes it would kill the next owner too, and the one after that. So
after an unclean end the records that may have caused it are passed to a child, one by one. The child replies to each
with a byte. The first record without a reply is rejected: its verdict and dead letter name it by partition and offset.
A new child takes the rest.

Source: decision 0089.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import re
import sys
import tomllib
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

from rootline.coordinator.runtime.decoding_child import READY, frame
from rootline.library_log import library_logger
from rootline.ports.intent_feed import ANY_TABLE, RecordedRejection
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.bytes.record_headers import (
    KEY_ID,
    SECRET_BYTES_MIN,
    SIGNED_AT_HEADER,
    Lake,
    refusal_of_lake,
    signed_at,
    signer_of,
)
from rootline.schemas.content_entry import quick
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName, by_name, oldest_file_of, table_name
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import MAINTENANCE_KINDS, IntentKind, IntentLimits
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind, letter_of, unread_id
from rootline.tree.draft.batch import Record

_UNDECODED = "?"
_unchecked_record: Final = quick(Record)
_INTENT_BYTES: Final = 3_500
_ADDED_BYTES: Final = 2_000
_COLUMN_BYTES: Final = 1_400
_REMOVED_BYTES: Final = 600
"""Measured with CPython 3.11, without the record's own bytes."""

UNREAD: Final = frozenset(
    {"undecodable", "intent-malformed", "kind-unknown", "intent-too-large", "batch-unreadable", "table-name-invalid"}
)
"""Codes of records that are identified by their coordinates only."""
_HELD_CHARS_MAX: Final = 300
"""Limit of a reason that is stored for later owners, in a small space."""

Rejection = tuple[Verdict, DeadLetter]


def decoded(raw: LogRecord, limits: IntentLimits) -> Record | Rejection:
    """The intent in `raw`, or its rejection."""
    if raw.not_read:
        return _rejection(raw, Invalid("batch-unreadable", raw.not_read))
    try:
        intent = decode_intent(raw.value, by_name(raw.headers), limits)
        table_name(intent.table)
        if raw.key is not None and raw.key != intent.table.encode():
            raise Invalid("intent-malformed", f"the record's key is {raw.key[:80]!r}, its table {intent.table[:80]!r}")
    except Invalid as error:
        return _rejection(raw, error)
    except Exception as error:  # our bug, triggered by this record: the records behind it must still be read
        library_logger().exception("record not decoded", action="dead-letter", offset=raw.position.offset)
        return _rejection(raw, Invalid("undecodable", f"the record could not be decoded: {type(error).__name__}"))
    size = _size(raw)
    headers = raw.headers
    oldest_file_ms = oldest_file_of(headers) if headers else None
    held = size + _held(intent)
    return _unchecked_record(
        raw.position, intent, size, raw.key, raw.value, raw.appended_ms, headers, held, oldest_file_ms
    )


def of_lake(raw: LogRecord, record: Record, own: Lake) -> Record:
    """`record`, with a refusal if its headers name another lake than `own`, the coordinator's lake."""
    refusal = refusal_of_lake(raw.headers, own)
    return record if refusal is None or record.refusal is not None else replace(record, refusal=refusal)


def poison_rejection(raw: LogRecord, how: str) -> Rejection:
    """The rejection of a record that crashed the child process. `how`: a verb phrase that describes the crash."""
    return _rejection(
        raw,
        Invalid(
            "undecodable",
            f"the record {how}, so it is not decoded again: have its writer check it and publish a new one",
        ),
    )


def with_recorded_rejection(
    raw: LogRecord, found: Record | Rejection, code: str, message: str, table: TableName | None = ANY_TABLE
) -> Rejection:
    """The rejection of `raw` with the `code` and `message` that an earlier owner of its partition recorded.

    `found`: the record as this version decodes it. It supplies the intent's id and table. `table`: as recorded. It
    shows that the earlier owner could read the record.
    """
    verdict, letter = _rejection(raw, Invalid(code, message))
    if not isinstance(found, Record):
        return found if found[0].code == code else (verdict, letter)
    if code in UNREAD and table in (None, ANY_TABLE):
        # an earlier version could not read it, and so identified it by its coordinates
        return verdict, letter
    named = {"intent_id": found.intent.intent_id, "table": found.intent.table}
    return verdict.model_copy(update=named), letter.model_copy(update=named)


def recorded_rejection_of(rejection: Rejection) -> RecordedRejection:
    """The record of a rejection in the log for later owners of the partition, because no root records it."""
    verdict, _ = rejection
    reason = verdict.message or ""
    if len(reason) > _HELD_CHARS_MAX:
        reason = reason[: _HELD_CHARS_MAX - 1] + "…"
    is_unread = verdict.intent_id == unread_id(verdict.log, verdict.partition, verdict.offset)
    table = None if is_unread or verdict.code == "table-parked" else TableName(verdict.table)
    position = LogPosition(LogId(verdict.log), verdict.partition, verdict.offset)
    return RecordedRejection(position, verdict.code or "", reason, table)


def _held(intent: Intent) -> int:
    """The approximate memory of a decoded intent, often much more than its bytes on the log. It bounds queues."""
    files = intent.add_data_files
    if intent.add_equality_deletes:
        files = (*files, *intent.add_equality_deletes)
    added = len(files) + len(intent.add_vectors) + len(intent.add_manifests)
    columns = sum([len(file.statistics) for file in files])
    return _INTENT_BYTES + added * _ADDED_BYTES + columns * _COLUMN_BYTES + len(intent.remove_files) * _REMOVED_BYTES


def _size(raw: LogRecord) -> int:
    size = len(raw.key or b"") + len(raw.value)
    return size + sum([len(name) + len(value or b"") for name, value in raw.headers]) if raw.headers else size


def _rejection(raw: LogRecord, error: Invalid) -> Rejection:
    log, partition, offset = raw.position
    verdict = Verdict(
        intent_id=unread_id(log, partition, offset),
        table=raw.key.decode(errors="replace")[:128] if raw.key else _UNDECODED,
        kind=VerdictKind.REJECTED,
        log=log,
        partition=partition,
        offset=offset,
        code=error.code,
        message=error.message,
    )
    return verdict, letter_of(verdict, raw.key, raw.value, raw.headers)


_START_PATIENCE_S: Final = 60.0
_COMMAND: Final = (sys.executable, "-m", "rootline.coordinator.runtime.decoding_child")


@dataclass(slots=True)
class DecodingTrial:
    """Decodes suspect records in a child process.

    `record_timeout_s`: deadline for one record. `memory_bytes`: memory that a record may take in addition to the memory
    of the idle child.
    """

    limits: IntentLimits
    record_timeout_s: float = 10.0
    memory_bytes: int = 1 << 30
    command: Sequence[str] = field(default_factory=lambda: _COMMAND)
    _child: Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def poison_among(self, records: Sequence[LogRecord]) -> dict[LogPosition, str]:
        """The records that crash the child process, or take it too long, each with a description of the crash."""
        async with self._turn:
            return await self._poison_among(records)

    async def close(self) -> None:
        """Stop the child, if there is one."""
        async with self._turn:
            await self._end()

    async def _poison_among(self, records: Sequence[LogRecord]) -> dict[LogPosition, str]:
        found: dict[LogPosition, str] = {}
        waiting = list(records)
        while waiting:
            child = await self._ready()
            if child is None:
                library_logger().error(
                    "suspect records not tried", action="trial", reason="the child process does not start"
                )
                break
            passed, how = await self._try(child, waiting)
            if how:
                await self._end()
                found[waiting[passed].position] = how
                passed += 1
            del waiting[:passed]
        return found

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()

    async def _ready(self) -> Process | None:
        """The running child, or a new one. `None` if the new one does not start."""
        if self._child is not None:
            return self._child
        child = self._child = await asyncio.create_subprocess_exec(*self.command, stdin=PIPE, stdout=PIPE)
        assert child.stdin is not None
        child.stdin.write(frame(pickle.dumps((self.limits, self.memory_bytes))))
        if await _answer(child, _START_PATIENCE_S) == READY:
            return child
        await self._end()
        return None

    async def _try(self, child: Process, records: Sequence[LogRecord]) -> tuple[int, str]:
        """The number of records that the child decoded, and how it ended. Empty if it decoded all and still runs."""
        feeding = asyncio.ensure_future(_feed(child, records))
        try:
            for passed in range(len(records)):
                answer = await _answer(child, self.record_timeout_s)
                if answer is None:
                    return passed, f"took longer than {self.record_timeout_s:g} s to decode"
                if not answer:
                    return passed, _how(await child.wait())
            return len(records), ""
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})
            if not feeding.cancelled():
                feeding.exception()  # marks the error of a broken pipe as retrieved


async def _feed(child: Process, records: Sequence[LogRecord]) -> None:
    assert child.stdin is not None
    for record in records:
        child.stdin.write(frame(pickle.dumps((record.value, by_name(record.headers)))))
        await child.stdin.drain()


async def _answer(child: Process, patience_s: float) -> bytes | None:
    """The child's next byte. Empty if the child has closed the pipe, `None` after `patience_s` without a byte."""
    assert child.stdout is not None
    try:
        async with asyncio.timeout(patience_s):
            return await child.stdout.read(1)
    except TimeoutError:
        return None


def _how(status: int) -> str:
    return f"ended the process that decoded it ({f'signal {-status}' if status < 0 else f'exit code {status}'})"


_HOUR_MS: Final = 3_600_000
_EVERY: Final = "*"
_MAINTENANCE: Final = "maintenance"
_TABLES: Final = re.compile(r"(?:[^\s*.]+\.)+(?:\*|[^\s*.]+)|\*")


@dataclass(frozen=True, slots=True)
class Principal:
    """The permissions of one key. `names`: full table names. `folders`: prefixes that end in a dot, or "" for every
    table.
    """

    names: frozenset[str]
    folders: tuple[str, ...]
    kinds: frozenset[IntentKind]

    def refusal(self, intent: Intent, key_id: str) -> str | None:
        """The reason why the intent is not allowed, or `None` if it is."""
        if intent.kind not in self.kinds:
            return f"the key {key_id} may not publish intents of the kind {intent.kind}"
        if intent.table not in self.names and not intent.table.startswith(self.folders):
            return f"the key {key_id} may not write {intent.table}"
        return None


@dataclass(frozen=True, slots=True)
class Principals:
    """The policy, by key id.

    `signed_ms_max`: the largest difference between the time of a signature and the record's append time.
    `undated_until_ms`: records appended from this time on must have a signature time. `None`: no record must.
    """

    secrets: Mapping[str, bytes] = field(repr=False)
    allowed: Mapping[str, Principal]
    signed_ms_max: int = 24 * _HOUR_MS
    undated_until_ms: int | None = None

    def judged(self, raw: LogRecord, record: Record) -> Record:
        """`record`, with a refusal added if the policy does not allow it."""
        try:
            key_id = signer_of(raw.value, raw.headers, self.secrets)
            self._check_age(raw)
        except Invalid as error:
            return replace(record, refusal=(error.code, error.message))
        why = self.allowed[key_id].refusal(record.intent, key_id)
        if why is None and (record.intent.writer_id is None or record.intent.writer_sequence is None):
            why = "a signed intent names its writer_id and writer_sequence, or its record could be published twice"
        return record if why is None else replace(record, refusal=("not-permitted", why))

    def _check_age(self, raw: LogRecord) -> None:
        signed_ms = signed_at(raw.headers)
        if signed_ms is None:
            if self.undated_until_ms is not None and raw.appended_ms >= self.undated_until_ms:
                reason = f"the record has no header {SIGNED_AT_HEADER}, which the coordinators' policy now requires"
                raise Invalid("signature-expired", f"{reason}: sign it with a client that adds this header")
            return
        apart_ms = raw.appended_ms - signed_ms
        if abs(apart_ms) > self.signed_ms_max:
            when = f"{abs(apart_ms) / _HOUR_MS:,.1f} hours {'after' if apart_ms > 0 else 'before'} it was signed"
            allowed = f"{self.signed_ms_max / _HOUR_MS:,g} are allowed (signed_hours_max of the coordinators' policy)"
            raise Invalid("signature-expired", f"the record was appended to the log {when}; {allowed}")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key_file: Path
    tables: tuple[str, ...] = Field(min_length=1)
    kinds: tuple[str, ...] = Field(min_length=1)

    @field_validator("tables")
    @classmethod
    def _are_names(cls, tables: tuple[str, ...]) -> tuple[str, ...]:
        for table in tables:
            if not _TABLES.fullmatch(table):
                raise ValueError(f"{table!r}: write namespace.table, namespace.* or *")
        return tables

    @field_validator("kinds")
    @classmethod
    def _are_kinds(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if kind not in (_EVERY, _MAINTENANCE, *IntentKind):
                raise ValueError(f"{kind!r} is no kind: write kinds of docs/intents.md, maintenance or *")
        return kinds

    def principal(self) -> Principal:
        kinds: set[IntentKind] = set()
        for kind in self.kinds:
            kinds |= (
                set(IntentKind) if kind == _EVERY else MAINTENANCE_KINDS if kind == _MAINTENANCE else {IntentKind(kind)}
            )
        folders = tuple(table.removesuffix(_EVERY) for table in self.tables if table.endswith(_EVERY))
        return Principal(frozenset(self.tables), folders, frozenset(kinds))


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: dict[str, _Entry] = Field(min_length=1)
    signed_hours_max: float = Field(default=24.0, gt=0, le=8_760)
    undated_until: AwareDatetime | None = None

    @field_validator("keys")
    @classmethod
    def _have_ids(cls, keys: dict[str, _Entry]) -> dict[str, _Entry]:
        for key_id in keys:
            if not re.fullmatch(KEY_ID, key_id):
                raise ValueError(f"{key_id!r}: a key's id has up to 64 letters, digits, dots, dashes and underscores")
        return keys


def read_principals(path: Path) -> Principals:
    """The policy in the file at `path`. Reads it and the key files once. Blocks.

    Raises:
        Invalid: `setting-invalid`, the policy file or a key file cannot be read or used.
    """
    try:
        given = _File.model_validate(tomllib.loads(_text(path, "ROOTLINE_COORDINATOR__PRINCIPALS_FILE")))
    except tomllib.TOMLDecodeError as error:
        raise _refused(path, f"it is not TOML: {error}") from None
    except ValidationError as error:
        raise _refused(path, fault_of_model(error)) from None
    secrets = {key_id: _secret(path, key_id, entry.key_file) for key_id, entry in given.keys.items()}
    until = given.undated_until
    return Principals(
        secrets,
        {key_id: entry.principal() for key_id, entry in given.keys.items()},
        int(given.signed_hours_max * _HOUR_MS),
        None if until is None else int(until.timestamp() * 1000),
    )


def _secret(path: Path, key_id: str, named: Path) -> bytes:
    secret = _text(path.parent / named, f"{path}: the key_file of {key_id}").strip().encode()
    if len(secret) < SECRET_BYTES_MIN:
        raise _refused(path, f"the key {key_id} has fewer than {SECRET_BYTES_MIN} bytes: write `openssl rand -hex 32`")
    return secret


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise Invalid("setting-invalid", f"{what}: {path} cannot be read: {reason}") from None


def _refused(path: Path, reason: str) -> Invalid:
    return Invalid("setting-invalid", f"ROOTLINE_COORDINATOR__PRINCIPALS_FILE: {path}: {reason}")
