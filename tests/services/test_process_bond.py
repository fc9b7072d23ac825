"""What the harness starts ends with it, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.services.process_bond import ProcessBond

HOUSE = Path(__file__).parents[2]
PROGRAM = """
import subprocess, sys
from tests.services.process_bond import ProcessBond

command = ["sh", "-c", "sleep 600 & echo $$; wait"]
service = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
bond = ProcessBond(service.pid)
if "release" in sys.argv:
    bond.release()
print("bound", flush=True)
sys.stdin.read(1)
"""


def started(*words: str) -> subprocess.Popen[bytes]:
    """A process that starts a service, which itself starts another; the service's stdout is its own."""
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.Popen(command, cwd=HOUSE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def service_of(harness: subprocess.Popen[bytes]) -> int:
    """The service's process id, once the bond is there: before that nothing ends it."""
    assert harness.stdout is not None
    [service] = {harness.stdout.readline().strip(), harness.stdout.readline().strip()} - {b"bound"}
    return int(service)


def test_a_service_and_what_it_started_end_when_the_harness_is_killed() -> None:
    with started() as harness:
        assert harness.stdout is not None
        assert service_of(harness) > 0
        harness.kill()
        # all that inherited the pipe have ended when it ends
        assert harness.stdout.read() == b""


def test_a_bond_that_is_released_harms_nobody() -> None:
    with started("release") as harness:
        assert harness.stdout is not None
        service = service_of(harness)
        assert harness.stdin is not None
        harness.stdin.close()
        assert harness.wait() == 0
        os.killpg(service, 9)  # it was there
        assert harness.stdout.read() == b""


def test_a_bond_may_be_released_twice_and_after_its_process_has_ended() -> None:
    ended = subprocess.Popen(["true"], start_new_session=True)
    bond = ProcessBond(ended.pid)
    assert ended.wait() == 0
    bond.release()
    bond.release()
