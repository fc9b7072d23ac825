"""The driver's side of a write: one intent for all files of a batch, and its verdict.

Owns: from the tasks' messages to a commit, for appends and overwrites, batch and stream. Does not own: writing files
(`file_sink`), publishing and waiting (`rootline.client`).
Invariants: a batch is one intent; a replayed batch (same writer, same sequence) commits once; a rejected batch fails
the query unless it is asked to go to the dead letters; nothing is ever undone, because a published intent may have
been committed already.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import structlog

from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, Intent, IntentKind, RemovedFile, VectorReference
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.spark.connection import committing_lake
from rootline.spark.options import OnRejected, SourceOptions
from rootline.storage.table_loader import load_table
from rootline.tree.table_state import TableState

_REPLANS_MAX = 5
_STALE = {"stale-source", "file-not-live"}


def commit_append(
    files: Sequence[DataFile], options: SourceOptions, writer_id: str | None, sequence: int | None
) -> Verdict | None:
    """Publish one `append` and wait for its verdict; `None` when there are no files.

    Raises:
        Invalid: the intent was rejected, and `onRejected` is `fail`.
        OutcomeUnknown: no verdict came in time; Spark replays the batch, which commits once.
    """
    if not files:
        return None
    intent = _intent(options, IntentKind.APPEND, files, ())
    return _settled(_decided(intent, options, writer_id, sequence), options)


def commit_overwrite(
    files: Sequence[DataFile], options: SourceOptions, writer_id: str | None, sequence: int | None
) -> Verdict | None:
    """Replace every live file by `files` in one intent, planned anew when somebody changes the table meanwhile.

    Raises:
        Invalid, OutcomeUnknown: as `commit_append`.
    """
    for replan in range(_REPLANS_MAX + 1):
        removed = _live_files(options)
        if not files and not removed:
            return None
        kind = IntentKind.OVERWRITE if removed else IntentKind.APPEND
        verdict = _decided(_intent(options, kind, files, removed), options, writer_id, sequence)
        if verdict.code not in _STALE or replan == _REPLANS_MAX:
            return _settled(verdict, options)
    raise AssertionError("unreachable: the last attempt returns")


def _intent(
    options: SourceOptions, kind: IntentKind, files: Sequence[DataFile], removed: tuple[RemovedFile, ...]
) -> Intent:
    return Intent(
        intent_id=str(uuid.uuid4()), table=options.table, kind=kind, add_data_files=tuple(files), remove_files=removed
    )


def _decided(intent: Intent, options: SourceOptions, writer_id: str | None, sequence: int | None) -> Verdict:
    with committing_lake(options).producer(writer_id) as producer:
        receipt = producer.publish(intent, writer_sequence=sequence)
        return receipt.verdict(timeout_s=options.verdict_timeout_ms / 1000)


def _settled(verdict: Verdict, options: SourceOptions) -> Verdict:
    if verdict.kind is VerdictKind.REJECTED:
        code, message = verdict.code or "intent-malformed", verdict.message or "rejected"
        if options.on_rejected is OnRejected.FAIL:
            raise Invalid(code, f"{options.table}: the batch was rejected: {message}")
        structlog.get_logger().warning("batch rejected", action="dead-letter", table=options.table, code=code)
    return verdict


def _live_files(options: SourceOptions) -> tuple[RemovedFile, ...]:
    lake = committing_lake(options)
    state = lake.holder.run(lambda session: load_table(session.store, options.table))
    if state is None:
        raise Invalid("table-unknown", f"{options.table}: no table has this name in {options.warehouse}")
    return tuple(
        RemovedFile(location=live.entry.location, vector=_seen_vector(state, live.entry.location))
        for live in state.live.entries()
        if live.entry.content_type is ContentType.DATA
    )


def _seen_vector(state: TableState, location: str) -> VectorReference | None:
    entry = state.vector_of(location)
    if entry is None or entry.deletion_vector is None or entry.deletion_vector.offset is None:
        return None
    return VectorReference(location=entry.location, offset=entry.deletion_vector.offset)
