"""Golden files: the bytes that a released version wrote, kept for ever.

Owns: comparing with them, and the one switch that writes them. Does not own: what they hold (the tests that use them).
Invariants: without ROOTLINE_UPDATE_GOLDEN=1 nothing is ever written, and a golden file that is absent is a failure.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "golden"
SWITCH: Final = "ROOTLINE_UPDATE_GOLDEN"


def golden(name: str, made: bytes) -> bytes:
    """Fail unless `made` is what golden file `name` holds; return what it holds."""
    held = kept(name, made)
    assert made == held, f"{name}: the bytes changed; if that is meant, see {SWITCH} in tests/golden_files.py"
    return held


def kept(name: str, made: bytes) -> bytes:
    """What golden file `name` holds, for bytes that may differ from one library version to the next (Parquet)."""
    path = FOLDER / name
    if os.environ.get(SWITCH) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made)
    assert path.exists(), f"{name} is not in tests/golden; {SWITCH}=1 writes it"
    return path.read_bytes()
