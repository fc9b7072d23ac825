"""Every object store that the contract runs over.

Owns: how each is made for a test. Does not own: the contract.
Invariants: each test has an empty warehouse.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.object_store import ObjectStore
from rootline.testing.object_stores import FaultyObjectStore, scripted

StoreMaker = Callable[[pytest.FixtureRequest, Path], ObjectStore]


def _dated_memory(_: pytest.FixtureRequest, __: Path) -> ObjectStore:
    ticks = itertools.count(1_700_000_000_000, 1_000)
    return MemoryObjectStore(lambda: next(ticks))


def _s3(request: pytest.FixtureRequest, _: Path) -> ObjectStore:
    store: ObjectStore = request.getfixturevalue("s3_service").store()
    return store


STORES: Final[dict[str, StoreMaker]] = {
    "memory": lambda _, __: MemoryObjectStore(),
    "memory with dates": _dated_memory,
    "memory behind no faults": lambda _, __: FaultyObjectStore(MemoryObjectStore(), scripted([])),
    "local folder": lambda _, folder: LocalObjectStore(folder / "lake"),
    "s3": _s3,
}
