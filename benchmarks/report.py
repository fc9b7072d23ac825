"""What a benchmark run leaves behind: a table, a JSON file, a picture; and what the JSON says of the machine.

Owns: their form. Does not own: the measurements.
Invariants: the command, the load and the spread of both sides are beside every ratio.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result, Spread

HOUSE: Final = Path(__file__).parents[1]
_LONGEST: Final = 3.0


def print_table(results: list[Result]) -> None:
    """Print the results as a table."""
    table = Table(title="Rootline against its yardsticks")
    for heading in ("goal", "what", "min / median / p99", "yardstick", "min / median / p99", "ratio", "target", "load"):
        table.add_column(heading)
    for item in results:
        table.add_row(
            item.goal,
            item.what,
            _shown(item.subject),
            item.yardstick_name,
            _shown(item.yardstick),
            f"{item.ratio:.3g}",
            item.target,
            f"{item.load:.2f}",
        )
    Console(width=180).print(table)
    for item in results:
        if item.notes:
            print(f"  {item.what}: {item.notes}")


def write_results(results: list[Result], folder: Path) -> None:
    """Write `latest.json`, `latest.md` and `latest.svg` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = "python -m benchmarks " + " ".join(sys.argv[1:])
    write_json(results, folder / "latest.json", command)
    (folder / "latest.md").write_text(_markdown(results, command))
    (folder / "latest.svg").write_text(picture(results))
    print(f"written: {folder}/latest.json, latest.md, latest.svg")


def write_json(results: list[Result], place: Path, command: str) -> None:
    """Write the results, with the command and the time, to `place`."""
    body = {
        "command": command,
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "results": [item.as_json() for item in results],
    }
    place.write_text(json.dumps(body, indent=1) + "\n")


def earlier_results(place: Path, key: str, empty: dict[str, Any]) -> dict[str, Any]:
    """The JSON at `place`, or `empty` with this machine if it has no `key` or was measured on another machine."""
    memory_gb = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "memory_gb": memory_gb}
    found: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    return found if found.get("machine") == machine and key in found else {"machine": machine, **empty}


def commit_of_the_code() -> str:
    """The commit that is checked out, in eight digits, or `unknown`."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    found = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """A table; all columns are texts if `texts` is 0, else the columns after so many are numbers."""
    rules = ["---" if not texts or number < texts else "---:" for number in range(len(headings))]
    lines = [headings, rules, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _shown(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return " / ".join(f"{1000 * value:.3g}" for value in (spread.minimum, spread.median, spread.p99)) + " ms"


def _markdown(results: list[Result], command: str) -> str:
    rows = [f"| {r.goal} | {r.what} | {_shown(r.subject)} | {r.yardstick_name} | {_shown(r.yardstick)} "
            f"| {r.ratio:.3g} | {r.target} | {r.load:.2f} | {r.notes} |" for r in results]  # fmt: skip
    head = "| goal | what | min / median / p99 | yardstick | min / median / p99 | ratio | target | load | notes |"
    return "\n".join([f"`{command}`", "", head, "|---" * 9 + "|", *rows, ""])


def picture(results: list[Result]) -> str:
    """Horizontal bars: each ratio, with 1 (as fast as the yardstick) marked; those over `_LONGEST` are cut off."""
    width, bar, left = 1_100, 24, 600
    scale = (width - left - 80) / min(_LONGEST, max(2.0, *(item.ratio for item in results)))
    height = bar * len(results) + 50
    one = left + scale
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<line x1="{one:.1f}" y1="20" x2="{one:.1f}" y2="{height - 20}" stroke="#b00" stroke-dasharray="4 3"/>',
        f'<text x="{one:.1f}" y="14" text-anchor="middle" fill="#b00">1 × the yardstick</text>',
    ]
    for number, item in enumerate(results):
        y = 26 + number * bar
        label = escape(f"{item.goal}: {item.what}")
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{label}</text>')
        length = max(1.0, min(item.ratio, _LONGEST) * scale)
        parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="18" fill="#4a7ab5"/>')
        cut = " …" if item.ratio > _LONGEST else ""
        parts.append(f'<text x="{left + length + 6:.1f}" y="{y + 14}">{cut}{item.ratio:.3g}</text>')
    return "\n".join([*parts, "</svg>", ""])
