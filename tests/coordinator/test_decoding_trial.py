"""Suspect records are decoded by a child first; what ends the child is named, and nothing else is."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from subprocess import PIPE

import pytest

from rootline.coordinator.runtime.decoding_child import frame
from rootline.coordinator.runtime.records import DecodingTrial
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord
from rootline.schemas.intent_rules import IntentLimits
from tests.coordinator.running_service import append_intent

LOG = LogId("embedded/x")
DEADLY_CHILD = """
import os, signal, sys
import rootline.coordinator.runtime.decoding_child as child

decode = child.decode_intent

def deadly(value, *rest):
    match value:
        case b"crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"exit":
            os._exit(7)
        case b"hang":
            signal.pause()
        case b"memory":
            bytearray(1 << 33)
    return decode(value, *rest)

child.decode_intent = deadly
child.main(sys.stdin.buffer, sys.stdout.buffer)
"""


def record(offset: int, value: bytes) -> LogRecord:
    return LogRecord(LogPosition(LOG, 0, offset), b"a.b", value, 0)


@pytest.fixture
async def trial() -> AsyncIterator[DecodingTrial]:
    """One whose child does as the record says."""
    held = DecodingTrial(IntentLimits(), record_timeout_s=5.0, command=(sys.executable, "-c", DEADLY_CHILD))
    yield held
    await held.close()


async def test_records_that_end_their_decoder_are_named_with_how_and_no_others(trial: DecodingTrial) -> None:
    good, bad = encode_intent(append_intent("good")), b"garbage"
    values = [good, b"crash", bad, b"exit", b"memory", good, b"hang", good]
    found = await trial.poison_among([record(offset, value) for offset, value in enumerate(values)])
    assert {position.offset: how for position, how in found.items()} == {
        1: "ended the process that decoded it (signal 11)",
        3: "ended the process that decoded it (exit code 7)",
        4: "ended the process that decoded it (exit code 1)",
        6: "took longer than 5 s to decode",
    }


async def test_one_child_serves_many_calls() -> None:
    trial = DecodingTrial(IntentLimits())
    assert await trial.poison_among([record(0, b"x")]) == {}
    child = trial._child
    assert child is not None
    many = [record(offset, encode_intent(append_intent(f"f-{offset}"))) for offset in range(2_000)]
    assert await trial.poison_among(many) == {}
    assert trial._child is child
    await trial.close()
    assert child.returncode is not None


async def test_a_child_that_does_not_start_blames_nobody() -> None:
    trial = DecodingTrial(IntentLimits(), command=(sys.executable, "-c", "raise SystemExit(1)"))
    assert await trial.poison_among([record(0, b"x")]) == {}


@pytest.mark.parametrize("told", [b"", frame(pickle.dumps((IntentLimits(), 1 << 30)))])
def test_a_child_whose_coordinator_was_killed_ends_without_a_word(told: bytes) -> None:
    command = [sys.executable, "-m", "rootline.coordinator.runtime.decoding_child"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        child.stdin.write(told)
        child.stdin.close()
        assert child.stderr.read() == b""
