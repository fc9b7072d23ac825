"""A picture of what grows with a table, and what does not.

Owns: two curves over the number of files. Does not own: the numbers.
Invariants: both axes are labelled; every point shows its value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 820, 360, 90, 50, 60
_COLORS: Final = ("#4a7ab5", "#c0762c")


def draw(place: Path, commit_seconds: Mapping[int, float], root_bytes: Mapping[int, int]) -> None:
    """Write the picture: median commit and root's size for each number of files."""
    curves = (
        ("median commit, ms", {size: 1_000 * seconds for size, seconds in commit_seconds.items()}),
        ("root, KiB", {size: count / 1024 for size, count in root_bytes.items()}),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_WIDTH / 2}" y="22" text-anchor="middle">one file committed to a table of so many files</text>',
    ]
    sizes = sorted(commit_seconds)
    for size in sizes:
        x = _across(size, sizes)
        parts.append(f'<text x="{x:.0f}" y="{_HEIGHT - 30}" text-anchor="middle">{size:,}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">files in the table</text>')
    for number, (name, curve) in enumerate(curves):
        color, top = _COLORS[number], 1.25 * max(curve.values())
        points = [(_across(size, sizes), _up(curve[size] / top)) for size in sizes]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{_LEFT}" y="{_TOP + 16 * number}" fill="{color}">{name} (from 0)</text>')
        for size, (x, y) in zip(sizes, points, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>')
            parts.append(
                f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle" fill="{color}">{curve[size]:.3g}</text>'
            )
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join([*parts, "</svg>", ""]))


def _across(size: int, sizes: list[int]) -> float:
    low, high = math.log10(sizes[0]), math.log10(sizes[-1])
    return _LEFT + (_WIDTH - 2 * _LEFT) * ((math.log10(size) - low) / (high - low) if high > low else 0.5)


def _up(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)
