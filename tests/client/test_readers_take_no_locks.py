"""Reading leaves a lake's folder as it is, and locks nothing in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rootline.connect import connect

LOCKS: list[tuple[str, tuple[Any, ...]]] = []


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith("fcntl."):
        LOCKS.append((event, arguments))


sys.addaudithook(_heard)  # which can never be taken off again


def state_of(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of change of each file."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_scans_history_changes_and_checks_lock_nothing_and_write_nothing(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        table = lake.create_table("demo.flights", {"id": "long"}, properties={"rootline.flush.data-files": "2"})
        for number in range(5):
            table.append({"id": [number, number + 10]})
        table.delete_where("id = 13")
    assert LOCKS, "a host locks, and it is heard"
    before = state_of(tmp_path)
    LOCKS.clear()
    with connect(tmp_path, coordinator="elsewhere") as lake:
        table = lake.table("demo.flights")
        assert len(table.scan().to_arrow()) == 9
        assert len(table.scan(version=2).to_arrow()) == 4
        assert len(list(table.history())) == table.head().version + 1
        assert len(table.changes(from_version=0).added_files) == 5
        assert list(table.check()) == []
    assert LOCKS == []
    assert state_of(tmp_path) == before
