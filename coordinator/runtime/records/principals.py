"""Who may write what: the keys that sign records, and the tables and kinds that each may write.

Owns: the policy file, and what it says of a record. Does not own: signatures (`rootline.schemas.bytes.record_headers`),
where in the order of decisions a refusal counts (`rootline.tree.commit.decide`).
Invariants: nothing is allowed that the file does not name; a file that cannot be read in full is refused at the start;
a secret is never shown; how old a signature is follows from the record alone, so every coordinator judges it alike.

Source: decisions 0089 and 0098.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

from rootline.schemas.bytes.record_headers import KEY_ID, SECRET_BYTES_MIN, SIGNED_AT_HEADER, signed_at, signer_of
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogRecord
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import MAINTENANCE_KINDS, IntentKind
from rootline.schemas.model_faults import fault_of_model
from rootline.tree.draft.batch import Record

_HOUR_MS: Final = 3_600_000
_EVERY: Final = "*"
_MAINTENANCE: Final = "maintenance"
_TABLES: Final = re.compile(r"(?:[^\s*.]+\.)+(?:\*|[^\s*.]+)|\*")


@dataclass(frozen=True, slots=True)
class Principal:
    """`names`: whole names of tables; `folders`: how names begin, up to a dot, or empty for every table."""

    names: frozenset[str]
    folders: tuple[str, ...]
    kinds: frozenset[IntentKind]

    def refusal(self, intent: Intent, key_id: str) -> str | None:
        """Why the intent is not allowed; `None`: it is."""
        if intent.kind not in self.kinds:
            return f"the key {key_id} may not publish intents of the kind {intent.kind}"
        if intent.table not in self.names and not intent.table.startswith(self.folders):
            return f"the key {key_id} may not write {intent.table}"
        return None


@dataclass(frozen=True, slots=True)
class Principals:
    """By key id. `signed_ms_max`: between a signature and the log's append time; `undated_until_ms`: append time from
    which on a record must say when it was signed, `None`: it need not.
    """

    secrets: Mapping[str, bytes] = field(repr=False)
    allowed: Mapping[str, Principal]
    signed_ms_max: int = 24 * _HOUR_MS
    undated_until_ms: int | None = None

    def judged(self, raw: LogRecord, record: Record) -> Record:
        """`record`, with why it is refused if it is."""
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
                reason = f"the record has no header {SIGNED_AT_HEADER}, which the coordinators' policy asks for by now"
                raise Invalid("signature-expired", f"{reason}: sign it with a client that says when")
            return
        apart_ms = raw.appended_ms - signed_ms
        if abs(apart_ms) > self.signed_ms_max:
            when = f"{abs(apart_ms) / _HOUR_MS:,.1f} hours {'after' if apart_ms > 0 else 'before'} it was signed"
            allowed = f"{self.signed_ms_max / _HOUR_MS:,g} are allowed (signed_hours_max of the coordinators' policy)"
            raise Invalid("signature-expired", f"the record came to the log {when}; {allowed}")


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
    """What the policy file at `path` says; it and the keys' files are read once. Blocks.

    Raises:
        Invalid: `setting-invalid`, one of them cannot be read or used.

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
