"""The child process that decodes suspect records: `python -m rootline.coordinator.runtime.decoding_child`.

Owns: the pipe's frames, the child's memory limit. Does not own: the interpretation of its exit
(`rootline.coordinator.runtime.records`).
Invariants: one reply for each record that was decoded or refused, in order. The child communicates only with its
parent, and exits with it.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from pathlib import Path
from typing import BinaryIO, Final

from rootline.schemas.bytes.intent_codec import decode_intent

READY: Final = b"!"
_PASSED: Final = b"."
_BYTES_OF_LENGTH: Final = 4
_OWN_MEMORY: Final = Path("/proc/self/statm")


def frame(body: bytes) -> bytes:
    """`body` with its length as a prefix."""
    return len(body).to_bytes(_BYTES_OF_LENGTH, "big") + body


def main(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Decode records until the pipe ends."""
    limits, memory_bytes = pickle.loads(_body(stdin))
    _limit_memory(memory_bytes)
    _say(stdout, READY)
    while body := _body(stdin):
        value, headers = pickle.loads(body)
        try:
            decode_intent(value, headers, limits)
        except MemoryError:
            raise
        except Exception:
            pass
        _say(stdout, _PASSED)


def _body(stdin: BinaryIO) -> bytes:
    return stdin.read(int.from_bytes(stdin.read(_BYTES_OF_LENGTH), "big"))


def _say(stdout: BinaryIO, answer: bytes) -> None:
    stdout.write(answer)
    stdout.flush()


def _limit_memory(more_bytes: int) -> None:
    """Limit the address space to its present size and `more_bytes`. Does nothing if the system reports no size."""
    if _OWN_MEMORY.exists():
        limit = int(_OWN_MEMORY.read_text(encoding="ascii").split()[0]) * resource.getpagesize() + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    try:
        main(sys.stdin.buffer, sys.stdout.buffer)
    except (BrokenPipeError, EOFError):  # the parent has exited: nobody reads a reply, and stderr belongs to the parent
        os._exit(1)
