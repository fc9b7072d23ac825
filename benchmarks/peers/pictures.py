"""Pictures of a run: bars on a logarithmic scale, one group for each load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH, _LEFT, _RIGHT, _BAR = 1_000, 240, 110, 20
_COLORS: Final = {"Rootline": "#4a7ab5", "bare PUT": "#888"}
_OTHERS: Final = "#c0762c"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `note` is printed behind its value."""

    name: str
    value: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Bars under one heading, in the order given."""

    heading: str
    bars: Sequence[Bar]


def bars(title: str, groups: Sequence[Group]) -> str:
    """An SVG of all groups, on one scale. Values of zero have no length."""
    values = [bar.value for group in groups for bar in group.bars if bar.value > 0]
    low = math.floor(math.log10(min(values, default=1)) - 0.2)
    high = math.log10(max(values, default=10))
    scale = (_WIDTH - _LEFT - _RIGHT) / max(1.0, high - low)
    parts, y = [f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle" font-weight="bold">{escape(title)}</text>'], 34
    for group in groups:
        y += 14
        parts.append(f'<text x="8" y="{y}" font-style="italic">{escape(group.heading)}</text>')
        y += 6
        for bar in group.bars:
            length = max(1.0, (math.log10(bar.value) - low) * scale) if bar.value > 0 else 0.0
            color = next((color for name, color in _COLORS.items() if bar.name.startswith(name)), _OTHERS)
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(bar.name)}</text>')
            parts.append(f'<rect x="{_LEFT}" y="{y + 2}" width="{length:.1f}" height="{_BAR - 4}" fill="{color}"/>')
            label = escape(" ".join(filter(None, (f"{bar.value:,.3g}", bar.note))))
            parts.append(f'<text x="{_LEFT + length + 6:.1f}" y="{y + 14}">{label}</text>')
            y += _BAR
    y += 18
    parts.append(f'<text x="{_WIDTH / 2}" y="{y}" text-anchor="middle" fill="#666">logarithmic scale</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 10}" font-family="sans-serif"'
        ' font-size="13">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{y + 10}" fill="#fff"/>', *parts, "</svg>", ""])
