"""What `rootline dlq replay` prints for each letter, before and after.

Owns: its lines and its exit code. Does not own: which letters (`dlq`), what a replay does
(`rootline.client.trace.replay`).
Invariants: one line per letter, in the order of the log; a letter that cannot be replayed stops no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rootline.cli.failure import ExitCode, exit_code_of
from rootline.cli.open_lake import lake_to_change

if TYPE_CHECKING:
    from rootline.client.trace.replay import Replay
    from rootline.schemas.dead_letter import DeadLetter
    from rootline.schemas.errors import RootlineError


def preview(letters: Sequence[DeadLetter], as_json: bool) -> ExitCode:
    """What a replay would publish."""
    from rootline.cli import output
    from rootline.client.trace.dead_letters import place_of
    from rootline.client.trace.replay import intent_of
    from rootline.schemas.errors import Invalid

    worst = ExitCode.DONE
    for letter in letters:
        place = place_of(letter)
        try:
            intent = intent_of(letter)
        except Invalid as error:
            worst = max(worst, _told_without_intent(letter, error, as_json))
            continue
        who = {"writer_id": intent.writer_id, "writer_sequence": intent.writer_sequence}
        record = {"record": place, "kind": "replayable", "table": intent.table, "intent_kind": str(intent.kind)}
        who_text = "no writer, so only the locations of its files show a repetition"
        if intent.writer_id is not None:
            who_text = f"writer {intent.writer_id} sequence {intent.writer_sequence}"
        output.line(
            as_json,
            record | who | {"rejected_with": letter.code},
            f"{place}: would publish {intent.kind} of {intent.table}, {who_text}; it was rejected with {letter.code}",
        )
    if not letters:
        output.rows(as_json, [], (), empty="no dead letters")
    return worst


def replay_all(
    warehouse: str, log: str | None, letters: Sequence[DeadLetter], timeout_s: float, as_json: bool
) -> ExitCode:
    """Replay `letters`; the worst of what became of them."""
    from rootline.cli import output
    from rootline.client.trace.replay import replay

    worst = ExitCode.DONE
    if not letters:
        output.rows(as_json, [], (), empty="no dead letters")
        return worst
    with lake_to_change(warehouse, log) as lake:
        for one in lake.holder.iterate(lambda session: replay(session, letters, timeout_s=timeout_s)):
            worst = max(worst, _told(one, as_json))
    return worst


def _told_without_intent(letter: DeadLetter, error: RootlineError, as_json: bool) -> ExitCode:
    from rootline.cli import output
    from rootline.client.trace.dead_letters import place_of
    from rootline.client.trace.replay import LeftOut

    is_maintenance = isinstance(error, LeftOut)
    kind = "left-out" if is_maintenance else "unreplayable"
    record = {"record": place_of(letter), "kind": kind, "code": error.code, "message": error.message}
    output.line(as_json, record, f"{place_of(letter)}: {kind}: {error.message}")
    return ExitCode.DONE if is_maintenance else ExitCode.NO


def _told(one: Replay, as_json: bool) -> ExitCode:
    from rootline.cli import output
    from rootline.cli.verdict_line import told
    from rootline.client.trace.dead_letters import place_of

    place, error, verdict = place_of(one.letter), one.error, one.verdict
    record: dict[str, Any] = {"record": place}
    if error is not None and one.intent is None:
        return _told_without_intent(one.letter, error, as_json)
    if error is not None and one.intent is not None:
        code = exit_code_of(error)
        kind = "unknown" if code is ExitCode.UNREACHABLE else "unreplayable"
        record |= {"kind": kind, "code": error.code, "message": error.message, "intent_id": one.intent.intent_id}
        output.line(as_json, record, f"{place}: {kind}: {error.message}")
        return code
    assert verdict is not None
    return told(as_json, place, record, verdict, rejected="rejected again")
