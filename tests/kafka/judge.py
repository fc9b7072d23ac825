"""The judgement, when everything has drained: nothing lost, nothing doubled, nothing decided twice or out of order.

Owns: what must hold at the end. Does not own: what must hold at any moment (`topic_watch`).
Invariants: judges by the topics and the stored tables alone, and by what writers say they were told; a broken rule is
an `AssertionError` that names the record or the table.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from tests.kafka.topic_watch import Place, Watch
from tests.simulation.reference import Reference
from tests.support.loaded_tables import load_table

Written = tuple[str, int, str]
_OF_ANOTHER_TABLE = ("table-uuid-mismatch", "table-uuid-missing", "table-dropped", "table-exists")
"""What an intent may hear that was committed to a table which was dropped since."""
_WHOLE_BYTES = 1_000_000
"""Of a record up to this size the dead letter has every byte, unless its batch could not be read."""


@dataclass(frozen=True)
class Judged:
    """What there was to judge."""

    records: int
    kinds: Counter[VerdictKind]
    repeated: int
    """Verdicts that were published more than once."""


@dataclass(frozen=True)
class Told:
    """What writers know: where the log has acknowledged their records, and the verdicts that they were given."""

    acknowledged: Mapping[Place, str] = field(default_factory=dict)
    verdicts: Mapping[Place, Verdict] = field(default_factory=dict)


def judge_topics(watch: Watch, log: str, told: Told | None = None) -> Judged:
    """Verdicts and dead letters against the records, the writers' knowledge and the group's offsets."""
    told = told or Told()
    written, ends = watch.written, watch.read_to
    missing = {place: name for place, name in told.acknowledged.items() if place not in written}
    assert not missing, f"acknowledged, and not on the log: {missing}"
    undecided = [place for place in written if not watch.verdicts.get(place)]
    assert not undecided, f"{len(undecided)} records have no verdict: {undecided[:5]}"
    strange = [place for place in watch.verdicts if place not in written]
    assert not strange, f"verdicts on records that do not exist: {strange[:5]}"
    for place, verdicts in watch.verdicts.items():
        assert len({_said(verdict) for verdict in verdicts}) == 1, f"verdicts on {place} contradict: {verdicts}"
        assert verdicts[0].log == log, f"a verdict on {place} is about another log: {verdicts[0]}"
        is_rejected = verdicts[0].kind is VerdictKind.REJECTED
        assert is_rejected == (place in watch.letters), f"{place} is {verdicts[0]}, letters: {watch.letters.get(place)}"
    for place, verdict in told.verdicts.items():
        assert _said(verdict) == _said(watch.verdicts[place][0]), f"a writer was told {verdict} about {place}"
    _judge_letters(watch)
    held = {partition: watch.committed.get(partition, 0) for partition in ends}
    assert held == ends, f"the group's offsets {held} have not reached the ends {ends}"
    kinds = Counter(verdicts[0].kind for verdicts in watch.verdicts.values())
    repeated = sum(len(verdicts) - 1 for verdicts in watch.verdicts.values())
    return Judged(len(written), kinds, repeated)


async def judge_table(watch: Watch, store: ObjectStore, table: str) -> int:
    """The table is what replaying its committed intents in order gives; how many files live."""
    verdicts, intents = _of_table(watch, table)
    _judge_order(table, verdicts)
    expected = _replayed(table, verdicts, intents)
    state = await load_table(store, TableName(table))
    assert state is not None, f"{table} is gone"
    found = Counter(live.entry.location for live in state.live.entries() if live.entry.content_type is ContentType.DATA)
    twice = [location for location, times in found.items() if times > 1]
    assert not twice, f"{table}: live more than once: {twice}"
    lost, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    assert not lost, f"{table}: committed and lost: {lost}"
    assert not extra, f"{table}: there, and never committed: {extra}"
    return len(found)


async def assert_whole(store: ObjectStore, *tables: str) -> None:
    """What `rootline check` looks for is not there."""
    for table in tables:
        findings = [str(finding) async for finding in check_table(store, TableName(table))]
        assert not findings, f"{table}: {findings}"


def _of_table(watch: Watch, table: str) -> tuple[list[Verdict], list[Intent | None]]:
    """The verdicts on intents that were decided by the table's head, in the log's order, with the intents."""
    verdicts: list[Verdict] = []
    intents: list[Intent | None] = []
    for place in sorted(watch.written):
        verdict = watch.verdicts[place][0]
        if verdict.table != table:
            continue
        verdicts.append(verdict)
        intents.append(_decoded(watch, place))
    return verdicts, intents


def _decoded(watch: Watch, place: Place) -> Intent | None:
    record = watch.written[place]
    try:
        return decode_intent(record.value, {name: value or b"" for name, value in record.headers})
    except RootlineError:
        return None


def _replayed(table: str, verdicts: list[Verdict], intents: list[Intent | None]) -> Mapping[str, object]:
    """A table's records may be in several partitions; the roots order them, and in each partition its offsets do."""
    creates = (intent.definition for intent in intents if intent is not None and intent.kind is IntentKind.CREATE)
    first = next((json.loads(text)["table-uuid"] for text in creates if text is not None), "")
    known = [
        (verdict, intent, _written_by(intent, first))
        for verdict, intent in zip(verdicts, intents, strict=True)
        if intent is not None
    ]
    commits = [found for found in known if found[0].kind is VerdictKind.COMMITTED]
    times = Counter(written for _, _, written in commits if written is not None)
    twice = [written for written, count in times.items() if count > 1]
    assert not twice, f"{table}: committed twice: {twice}"
    earlier: dict[int, tuple[set[Written], set[str]]] = defaultdict(lambda: (set(), set()))
    for verdict, intent, written in known:
        committed, rejected = earlier[verdict.partition]
        if verdict.kind is VerdictKind.REJECTED:
            is_about_another = verdict.code in _OF_ANOTHER_TABLE
            is_right = written not in committed or intent.intent_id in rejected or is_about_another
            assert is_right, f"{table}: {written} was committed before, and now: {verdict}"
            rejected.add(intent.intent_id)
        elif written is not None:
            is_known = verdict.kind is VerdictKind.COMMITTED or written in times
            assert is_known, f"{table}: {written} is {verdict}, and never committed"
            is_first = verdict.kind is VerdictKind.DUPLICATE or written not in committed
            assert is_first, f"{table}: {written} is {verdict}, committed before: {committed}"
            committed.add(written)
    reference = Reference()
    for _, intent, _ in sorted(commits, key=lambda found: found[0].sequence_number or 0):
        reference.apply(intent, {})
    return reference.files


def _written_by(intent: Intent, first: str) -> Written | None:
    """The writer, its sequence, and the table that they are of, `first` if the intent says none; `None`: no writer."""
    table_uuid = first if intent.table_uuid is None else str(intent.table_uuid)
    return (intent.writer_id, intent.writer_sequence or 0, table_uuid) if intent.writer_id is not None else None


def _judge_order(table: str, verdicts: list[Verdict]) -> None:
    last: dict[int, tuple[int, int]] = {}
    used: set[int] = set()
    for verdict in verdicts:
        if verdict.kind is not VerdictKind.COMMITTED:
            continue
        assert verdict.sequence_number is not None
        assert verdict.version is not None
        now = verdict.version, verdict.sequence_number
        before = last.get(verdict.partition, (-1, -1))
        assert before[0] <= now[0], f"{table}: {verdict} came after version {before[0]}"
        assert before[1] < now[1], f"{table}: {verdict} came after sequence number {before[1]}"
        assert verdict.sequence_number not in used, f"{table}: sequence number {verdict.sequence_number} twice"
        used.add(verdict.sequence_number)
        last[verdict.partition] = now


def _judge_letters(watch: Watch) -> None:
    for place, letters in watch.letters.items():
        record, verdict = watch.written[place], watch.verdicts[place][0]
        for letter in letters:
            said = dict(letter.headers)
            if b"sha256 " in (said["__connect.errors.exception.message"] or b"") and not letter.value:
                was_read = said["rootline.code"] != b"batch-unreadable"
                assert not was_read or len(record.value) > _WHOLE_BYTES, f"the dead letter of {place} has no bytes"
                continue
            assert letter.key == record.key, f"the dead letter of {place} has another key"
            assert letter.value == record.value, f"the dead letter of {place} has other bytes"
            assert letter.headers[: len(record.headers)] == record.headers, f"the dead letter of {place} lost headers"
            assert said["rootline.code"] == (verdict.code or "").encode(), f"the dead letter of {place} says {said}"


def _said(verdict: Verdict) -> tuple[Any, ...]:
    """All of a verdict: who repeats it must repeat all of it."""
    return tuple(verdict.model_dump().values())
