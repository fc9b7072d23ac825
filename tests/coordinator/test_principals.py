"""Who may write what: signatures, the policy file, and records that are refused for either."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rootline.adapters.kafka.writer_log import KafkaIntentSink
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.settings import KafkaSettings
from rootline.connect import connect
from rootline.coordinator.runtime.records import Principals, decoded, read_principals
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.record_headers import (
    SIGNATURE_HEADER,
    SIGNED_AT_HEADER,
    signature_header,
    signed_at_header,
    signer_of,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Headers, LogId, LogPosition, LogRecord
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import VerdictKind
from rootline.tree.draft.batch import Record
from tests.coordinator.running_service import TABLE, append_intent, create_intent, running

SECRET = "0123456789abcdef0123456789abcdef"
SECRETS = {"ingest": SECRET.encode(), "upkeep": SECRET[::-1].encode()}
POLICY = """
[keys.ingest]
key_file = "ingest.key"
tables = ["a.b", "sales.*"]
kinds = ["create", "append", "overwrite"]

[keys.upkeep]
key_file = "upkeep.key"
tables = ["*"]
kinds = ["maintenance"]
"""
VALUE = b"\xc3\x01 the intent"
NOW_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
OURS: Headers = (("rootline.content", b"c0ffee"), ("rootline-oldest-file-ms", b"12"))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "ingest.key").write_text(f"{SECRET}\n")
    (tmp_path / "upkeep.key").write_text(SECRET[::-1])
    path = tmp_path / "principals.toml"
    path.write_text(POLICY)
    return path


def stamped(intent: Intent, sequence: int = 0) -> Intent:
    return intent.model_copy(update={"writer_id": "w", "writer_sequence": sequence})


def refusal(principals: Principals, intent: Intent, key_id: str = "ingest") -> tuple[str, str] | None:
    value = encode_intent(intent)
    headers = signature_header(key_id, principals.secrets[key_id], value, ())
    raw = LogRecord(LogPosition(LogId("log"), 0, 0), None, value, 1, headers)
    found = decoded(raw, IntentLimits())
    assert isinstance(found, Record)
    return principals.judged(raw, found).refusal


def test_a_signature_names_its_key_whatever_headers_of_others_are_beside_it() -> None:
    signed = (*OURS, *signature_header("ingest", SECRETS["ingest"], VALUE, OURS))
    assert signer_of(VALUE, signed, SECRETS) == "ingest"
    beside = (("content-type", b"application/json"), *signed, ("traceparent", None))
    assert signer_of(VALUE, beside, SECRETS) == "ingest"


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        (VALUE + b" ", OURS),
        (VALUE, ()),
        (VALUE, OURS[::-1]),
        (VALUE, OURS[:1]),
        (VALUE, (OURS[0], ("rootline-oldest-file-ms", b"13"))),
        (VALUE, (OURS[0], ("rootline-oldest-file-ms", None))),
        (VALUE, (*OURS, OURS[1])),
        (b"", (*OURS, ("rootline", VALUE))),
    ],
)
def test_a_changed_value_or_header_of_ours_is_not_what_was_signed(value: bytes, ours: Headers) -> None:
    header = signature_header("ingest", SECRETS["ingest"], VALUE, OURS)
    with pytest.raises(Invalid) as refused:
        signer_of(value, (*ours, *header), SECRETS)
    assert refused.value.code == "signature-wrong"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ((), "signature-missing"),
        (((SIGNATURE_HEADER, None),), "signature-wrong"),
        (((SIGNATURE_HEADER, b"hmac-sha256 ingest"),), "signature-wrong"),
        (((SIGNATURE_HEADER, b"\xff" * 90),), "signature-wrong"),
        (signature_header("ingest", SECRETS["upkeep"], VALUE, ()), "signature-wrong"),
        (signature_header("other", SECRETS["ingest"], VALUE, ()), "signature-wrong"),
        (2 * signature_header("ingest", SECRETS["ingest"], VALUE, ()), "signature-wrong"),
    ],
)
def test_no_signature_and_signatures_of_no_known_form_or_key_are_refused(headers: Headers, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        signer_of(VALUE, headers, SECRETS)
    assert refused.value.code == code
    assert SECRET not in str(refused.value)


def test_a_key_writes_the_tables_and_kinds_that_the_policy_names_and_nothing_else(policy: Path) -> None:
    principals = read_principals(policy)
    append = stamped(append_intent("one"))
    assert refusal(principals, append) is None
    for table, is_allowed in {"sales.x": True, "sales.eu.x": True, "salesman.x": False, "a.bb": False}.items():
        found = refusal(principals, append.model_copy(update={"table": table}))
        assert (found is None) is is_allowed, table
    assert refusal(principals, append, "upkeep") == (
        "not-permitted",
        "the key upkeep may not publish intents of the kind append",
    )
    assert SECRET not in repr(principals)


def test_a_signed_intent_without_a_writer_is_refused_because_its_record_could_be_published_twice(policy: Path) -> None:
    bare = append_intent("one").model_copy(update={"writer_id": None, "writer_sequence": None})
    found = refusal(read_principals(policy), bare)
    assert found is not None
    assert (found[0], "writer_id" in found[1]) == ("not-permitted", True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("keys = 3", "keys must map names to values"),
        ("[keys", "not TOML"),
        ("", "keys is missing"),
        (POLICY.replace("upkeep.key", "absent.key"), "absent.key cannot be read"),
        (POLICY.replace("upkeep.key", "short.key"), "fewer than 32 bytes"),
        (POLICY.replace('"maintenance"', '"appendd"'), "'appendd' is no kind"),
        (POLICY.replace('"a.b"', '"a*"'), "write namespace.table"),
        (POLICY.replace("keys.upkeep", 'keys."up keep"'), "a key's id"),
        (POLICY.replace('tables = ["*"]', "tables = []"), "1 items or more"),
        (POLICY + "typo = 1", "typo is no field"),
    ],
)
def test_a_policy_that_cannot_be_used_in_full_is_refused_with_its_reason(policy: Path, text: str, said: str) -> None:
    (policy.parent / "short.key").write_text("short")
    policy.write_text(text)
    with pytest.raises(Invalid, match=r"principals\.toml") as refused:
        read_principals(policy)
    assert (refused.value.code, said in refused.value.message) == ("setting-invalid", True), refused.value


@pytest.mark.parametrize(
    ("hours", "limit", "is_refused"),
    [(0, 24, False), (23, 24, False), (25, 24, True), (-23, 24, False), (-25, 24, True), (2, 1, True), (40, 48, False)],
)
def test_a_record_is_refused_when_it_comes_to_the_log_long_after_or_before_it_was_signed(
    policy: Path, hours: int, limit: int, is_refused: bool
) -> None:
    policy.write_text(f"signed_hours_max = {limit}\n{POLICY}" if limit != 24 else POLICY)
    found = judged(read_principals(policy), signed_at_header(NOW_MS - hours * HOUR_MS))
    assert (found is not None) is is_refused, found
    if found is not None:
        assert found[0] == "signature-expired"
        assert f"{abs(hours)}.0 hours {'after' if hours > 0 else 'before'} it was signed; {limit} are" in found[1]


def test_a_record_that_does_not_say_when_it_was_signed_is_accepted_until_the_policy_asks_for_it(policy: Path) -> None:
    assert judged(read_principals(policy), ()) is None
    for undated_until, code in (("2100-01-01T00:00:00Z", None), ("2001-01-01T00:00:00+02:00", "signature-expired")):
        policy.write_text(f"undated_until = {undated_until}\n{POLICY}")
        found = judged(read_principals(policy), ())
        assert (None if found is None else found[0]) == code
        assert judged(read_principals(policy), signed_at_header(NOW_MS)) is None


@pytest.mark.parametrize("said", [(b"soon",), (b"-1",), (None,), (b"9" * 16,), (b"1", b"2"), ("\u0661".encode(),)])
def test_a_time_that_is_none_is_no_signature(policy: Path, said: tuple[bytes | None, ...]) -> None:
    found = judged(read_principals(policy), tuple((SIGNED_AT_HEADER, at) for at in said))
    assert found is not None
    assert found[0] == "signature-wrong"


def judged(principals: Principals, said: Headers) -> tuple[str, str] | None:
    """Of a record that came to the log at `NOW_MS`, signed with these headers."""
    value = encode_intent(stamped(append_intent("one")))
    headers = (*said, *signature_header("ingest", principals.secrets["ingest"], value, said))
    raw = LogRecord(LogPosition(LogId("log"), 0, 0), None, value, NOW_MS, headers)
    found = decoded(raw, IntentLimits())
    assert isinstance(found, Record)
    return principals.judged(raw, found).refusal


class SignedLog(MemoryIntentLog):
    """A log that signs what is published while `key` is set; `again`: headers of an old record that is sent again."""

    key: str | None = None
    again: Headers | None = None

    async def publish_many(self, records: object, **said: object) -> list[LogPosition]:  # type: ignore[override]
        positions = await super().publish_many(records, **said)  # type: ignore[arg-type]
        for at in positions if self.key else ():
            raw = self._records[at.offset]
            said = (*raw.headers, *signed_at_header(raw.appended_ms))
            said = (*said, *signature_header(str(self.key), SECRETS[str(self.key)], raw.value, said))
            self._records[at.offset] = raw._replace(headers=said if self.again is None else self.again)
        return positions


async def test_unsigned_records_leave_nothing_behind_and_a_record_that_was_committed_stays_so(policy: Path) -> None:
    log = SignedLog()
    create, intent = stamped(create_intent(TABLE)), stamped(append_intent("one"), 1)
    async with running(log=log, principals_file=policy) as service:
        [refused] = await service.commit(create)
        assert (refused.kind, refused.code) == (VerdictKind.REJECTED, "signature-missing")
        log.key = "ingest"
        [created] = await service.commit(create)
        log.key = None
        [refused] = await service.commit(intent)  # someone uses the writer's name, number and even the intent's id
        log.key = "ingest"
        [kept] = await service.commit(intent)
        log.key = "upkeep"
        [not_permitted] = await service.commit(stamped(append_intent("two"), 2))
        log.key = None
        [again] = await service.commit(intent)
        store = service.store
    assert created.kind is VerdictKind.COMMITTED
    assert (refused.code, kept.kind, not_permitted.code) == (
        "signature-missing",
        VerdictKind.COMMITTED,
        "not-permitted",
    )
    assert (again.kind, again.version) == (VerdictKind.DUPLICATE, kept.version)
    letters = await log.dead_letters()
    assert [letter.code for letter in letters] == ["signature-missing", "signature-missing", "not-permitted"]
    log.key = "ingest"
    async with running(store=store, log=log) as unguarded:  # without a policy a signature is only a header
        [verdict] = await unguarded.commit(stamped(append_intent("three", table=TABLE), 3))
        assert verdict.kind is VerdictKind.COMMITTED


async def test_a_rejected_record_that_is_sent_again_days_later_is_refused_although_the_ledger_forgot_it(
    policy: Path,
) -> None:
    now_ms = [NOW_MS]
    log = SignedLog(clock_ms=lambda: now_ms[0])
    log.key = "ingest"
    gone = (RemovedFile(location="data/one.parquet"),)
    async with running(log=log, principals_file=policy) as service:
        await service.commit(stamped(create_intent(TABLE)), stamped(append_intent("one"), 1))
        rejected = stamped(append_intent("again", location="data/one.parquet"), 2)
        [told] = await service.commit(rejected)
        assert told.code == "file-already-live"
        old = log._records[-1].headers
        others = await service.commit(
            *(stamped(append_intent(f"o-{number}", schema_id=9), 3 + number) for number in range(40))
        )
        assert {other.kind for other in others} == {VerdictKind.REJECTED}
        change = append_intent("two").model_copy(update={"kind": IntentKind.OVERWRITE, "remove_files": gone})
        [changed] = await service.commit(stamped(change, 50))
        assert changed.kind is VerdictKind.COMMITTED
        now_ms[0] += 25 * HOUR_MS
        log.again = old
        [refused] = await service.commit(rejected)
        log.again = None
        assert refused.code == "signature-expired"
        [signed_anew] = await service.commit(rejected)
    assert signed_anew.kind is VerdictKind.COMMITTED, "nothing but its age was against it"


def test_an_embedded_log_has_no_signatures_and_refuses_a_policy(tmp_path: Path, policy: Path) -> None:
    settings = CoordinatorSettings(principals_file=policy)
    with pytest.raises(Invalid, match="the log is embedded"), connect(tmp_path / "lake", settings=settings) as lake:
        lake.create_table("a.b", {"id": "long"})


def test_the_documented_signature_is_ours() -> None:
    page = (Path(__file__).parents[2] / "docs" / "foreign-clients.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def signature" in block)
    documented: dict[str, Any] = {}
    exec(code, documented)
    for headers in (OURS, (), (("content-type", b"application/json"), ("rootline-empty", None), *OURS)):
        assert (
            documented["signature"]("ingest", SECRETS["ingest"], VALUE, headers)
            == (signature_header("ingest", SECRETS["ingest"], VALUE, headers)[0])
        )


def test_a_writers_key_is_whole_long_enough_and_never_shown(policy: Path) -> None:
    with pytest.raises(ValueError, match="signing_key_id and signing_key_file together"):
        KafkaSettings(signing_key_id="ingest")
    settings = KafkaSettings(signing_key_id="ingest", signing_key_file=policy.parent / "ingest.key")
    assert settings.signing_key() == ("ingest", SECRET.encode())
    short = settings.model_copy(update={"signing_key_file": policy})
    policy.write_text("short")
    with pytest.raises(Invalid, match="fewer than 32 bytes"):
        KafkaIntentSink(short)


def test_every_kind_of_maintenance_is_one_that_a_key_for_maintenance_may_publish(policy: Path) -> None:
    allowed = read_principals(policy).allowed["upkeep"].kinds
    assert {IntentKind.FLUSH, IntentKind.EXPIRE, IntentKind.SWEEP, IntentKind.COMPACT_LEAVES} <= allowed
    assert IntentKind.APPEND not in allowed
