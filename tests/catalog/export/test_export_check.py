"""`check` reads the exports that are still needed, and names what an engine would miss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rootline.storage.check.findings import CheckSummary
from tests.catalog.exported_lake import V2, ExportedLake, rows


def codes(exported: ExportedLake) -> tuple[int, list[str]]:
    summary = CheckSummary()
    return_found = [finding.code for finding in exported.table.check(summary=summary)]
    assert summary.findings == len(return_found)
    return summary.exports, return_found


def drop(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("kind", "damage", "code"),
    [
        ("metadata", cut, "export-corrupt"),
        ("lists", cut, "export-corrupt"),
        ("lists", drop, "export-corrupt"),
        ("manifests", cut, "export-corrupt"),
        ("manifests", drop, "object-missing"),
    ],
)
def test_a_damaged_export_is_a_finding(
    exported: ExportedLake, kind: str, damage: Callable[[Path], None], code: str
) -> None:
    exported.table.append(rows(*range(40)))
    exported.table.delete_where("id = 3")
    exported.export(V2)
    assert codes(exported) == (1, [])
    newest = min((exported.folder / "demo/flights/export").rglob(f"{kind}/*"))
    for path in (exported.folder / "demo/flights/export").rglob(f"{kind}/*"):
        damage(path)
    assert newest.exists() is (damage is cut)
    assert code in codes(exported)[1]


def test_an_export_that_is_deleted_whole_is_no_finding(exported: ExportedLake) -> None:
    exported.table.append(rows(1, 2, 3))
    exported.export()
    for path in (exported.folder / "demo/flights/export").rglob("*.metadata.json"):
        path.unlink()
    assert codes(exported) == (0, [])
