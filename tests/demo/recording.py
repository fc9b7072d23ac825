"""`make recording`: records `rootline demo` in a terminal, as a cast and as an animated picture in docs/pictures.

Owns: the recording, the few control sequences that a terminal needs for it, the picture. Does not own: the demo.
Invariants: what is shown is what the command printed, when it printed it, but for the name of the working folder, which
is left out; a control sequence that is not known here is an error; the same cast gives the same picture, without a
script; who asks for less motion sees the last screen.
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from itertools import pairwise
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
BYTES_MAX: Final = 60_000
COLUMNS, ROWS = 132, 15
_TYPED: Final = "$ rootline demo\r\n"
_TOGETHER_S, _BEFORE_S, _AFTER_S = 0.05, 1.0, 6.0
_WIDTH, _HEIGHT, _EDGE = 7.2, 17, 14
_SPACE: Final = "\N{NO-BREAK SPACE}"  # browsers disagree about what keeps several spaces apart
_SEQUENCE: Final = re.compile(r"\x1b\[(\?25[hl]|\d*A|2K|[\d;]*m)|\x1b|\r|\n|[^\x1b\r\n]+")
_COLORS: Final = {
    "grey": ("90", "#6e7681"),
    "red": ("91", "#ff7b72"),
    "green": ("32", "#56d364"),
    "yellow": ("33", "#e3b341"),
    "magenta": ("35", "#d2a8ff"),
    "cyan": ("36", "#76e3ea"),
}
"""Name → the code of a terminal, and the color on the picture's dark ground."""
_STYLES: Final = {code: name for name, (code, _) in _COLORS.items()}
_LOOKS: Final = (
    "text{fill:#e6edf3}"
    + "".join(f".{name}{{fill:{color}}}" for name, (_, color) in _COLORS.items())
    + "@media(prefers-reduced-motion:reduce){g{animation:none!important}}"
)
Event = tuple[float, str]
Row = tuple[tuple[str, str], ...]
"""Pieces of text, each with the names of its styles."""


def recorded(command: list[str]) -> list[Event]:
    """What the command prints on a terminal, with seconds since its start. It runs in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
        environment = {**kept, "HOME": folder, "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        began_s, decoder = time.monotonic(), codecs.getincrementaldecoder("utf-8")()
        events: list[Event] = [(-_TOGETHER_S, "")]
        while text := _read(ours):
            at_s = time.monotonic() - began_s
            if at_s - events[-1][0] >= _TOGETHER_S:
                events.append((round(at_s, 2), ""))
            events[-1] = (events[-1][0], events[-1][1] + decoder.decode(text))
        os.close(ours)
        if process.wait() != 0:
            raise RuntimeError(f"{command} failed: {events}")
    changes = [
        after for before, after in pairwise(events) if after[1] != before[1]
    ]  # a bar is drawn ten times a second
    return [(0.0, _TYPED), *((_BEFORE_S + at_s, text.replace(f"{folder}/", "")) for at_s, text in changes)]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # what Linux answers when the other end is closed
        return b""


def cast_of(events: list[Event]) -> str:
    """The events in asciicast's second format."""
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "command": "rootline demo"}
    return "".join(
        json.dumps(line, ensure_ascii=False) + "\n" for line in [head, *([at_s, "o", text] for at_s, text in events)]
    )


def events_of(cast: str) -> list[Event]:
    """The events of a cast."""
    return [(at_s, text) for at_s, _, text in map(json.loads, cast.splitlines()[1:])]


def screens(events: list[Event]) -> list[tuple[float, list[Row]]]:
    """The rows of the screen after each event. None scrolls out. Text behind a `\\r` replaces the row."""
    rows: list[Row] = [()]
    at, style, returned, found = 0, "", False, []
    for at_s, text in events:
        for match in _SEQUENCE.finditer(text):
            word, control = match[0], match[1] or ""
            if word == "\n":
                at += 1
                rows += [()] * (at + 1 - len(rows))
            elif word == "\x1b":
                raise ValueError(f"an unknown control sequence: {text[match.start() : match.start() + 12]!r}")
            elif control.endswith("A"):
                at = max(0, at - int(control[:-1] or 1))
            elif control == "2K":
                rows[at] = ()
            elif control.endswith("m"):
                style = " ".join(_STYLES[code] for code in control[:-1].split(";") if code in _STYLES)
            elif not control and word != "\r":
                rows[at] = (*(() if returned else rows[at]), (word, style))
            returned = word == "\r" or (returned and bool(control))
        found.append((at_s, list(rows)))
    return found


def picture_of(events: list[Event]) -> str:
    """The animated SVG, which starts again some seconds after its end."""
    shown = screens(events)
    whole_s = shown[-1][0] + _AFTER_S
    height = 1 + max(number for _, rows in shown for number, row in enumerate(rows) if row)
    parts: list[str] = []
    frames: list[str] = []
    for number in range(height):
        states = [(at_s, rows[number] if number < len(rows) else ()) for at_s, rows in shown]
        changes = [states[0], *(after for before, after in pairwise(states) if before[1] != after[1])]
        for (from_s, row), (to_s, _) in pairwise([*changes, (whole_s, ())]):
            if not row:
                continue
            name = f"f{len(frames)}"
            starts, ends = (f"{100 * at_s / whole_s:.2f}%" for at_s in (from_s, to_s))
            hidden = "" if to_s == whole_s else f" {ends},to{{opacity:0}}"
            frames.append(f"@keyframes {name}{{from{{opacity:0}} {starts}{{opacity:1}}{hidden}}}")
            last = "" if to_s == whole_s else ' opacity="0"'
            parts.append(f'<g{last} style="animation:{name} {whole_s:.2f}s step-end infinite">{_row(row, number)}</g>')
    width, tall = COLUMNS * _WIDTH + 2 * _EDGE, (height + 1) * _HEIGHT + 2 * _EDGE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {tall}" role="img" '
        'aria-label="rootline demo in a terminal" font-size="12" '
        'font-family="ui-monospace,Menlo,Consolas,monospace">'
    )
    back = '<rect width="100%" height="100%" rx="8" fill="#161b22"/>'
    return "\n".join([head, f"<style>{_LOOKS}", *frames, "</style>", back, *parts, "</svg>", ""])


def _row(row: Row, number: int) -> str:
    pieces, column = [], 0
    for text, style in row:
        shown = text.strip()
        if shown:
            x = _EDGE + (column + len(text) - len(text.lstrip())) * _WIDTH
            place = f'x="{x:g}" y="{_EDGE + (number + 1) * _HEIGHT}" textLength="{len(shown) * _WIDTH:g}"'
            looks = f' class="{style}"' if style else ""
            pieces.append(f"<text {place}{looks}>{escape(shown.replace(' ', _SPACE))}</text>")
        column += len(text)
    return "".join(pieces)


def main() -> int:
    """Record; the exit code."""
    events = recorded([str(Path(sys.executable).with_name("rootline")), "demo"])
    picture = picture_of(events)
    if len(picture.encode()) > BYTES_MAX:
        sys.stderr.write(f"error: the picture has {len(picture.encode()):,} bytes, more than {BYTES_MAX:,}\n")
        return 1
    (PICTURES / "demo.cast").write_text(cast_of(events))
    (PICTURES / "demo.svg").write_text(picture)
    print(f"{PICTURES / 'demo.svg'}  {len(picture.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
