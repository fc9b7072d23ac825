"""The animated picture of the demo: what a terminal would show, from a stored recording."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from tests.demo.recording import BYTES_MAX, PICTURES, Event, events_of, picture_of, recorded, screens

BAR: list[Event] = [
    (0.0, "$ demo\r\n"),
    (1.0, "\x1b[?25lloads \x1b[35m━━\x1b[0m   0%"),
    (2.0, "\r\x1b[2Kloads \x1b[32m━━\x1b[0m 100%"),
    (2.5, "\r\x1b[1A\x1b[2K\x1b[?25h"),
]


def texts_of(picture: str) -> list[str]:
    """The texts that are seen at the end, and by a reader who asks for less motion."""
    root = ElementTree.fromstring(picture)
    groups = [group for group in root.iter("{http://www.w3.org/2000/svg}g") if group.get("opacity") != "0"]
    return ["".join(group.itertext()).replace("\N{NO-BREAK SPACE}", " ") for group in groups]


def test_a_screen_has_what_a_terminal_shows() -> None:
    assert [rows[1:] for _, rows in screens(BAR[:3])] == [
        [()],
        [(("loads ", ""), ("━━", "magenta"), ("   0%", ""))],
        [(("loads ", ""), ("━━", "green"), (" 100%", ""))],
    ]
    assert screens([(0.0, "one\ntwo\rtoo"), (1.0, "\x1b[1A\x1b[2K")])[-1] == (1.0, [(), (("too", ""),)])


def test_a_control_sequence_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"x1b\[5;5H"):
        screens([(0.0, "\x1b[5;5Hthere")])


def test_a_text_is_seen_from_when_it_was_printed_until_it_changed() -> None:
    picture = picture_of(BAR[:3])
    assert "@keyframes f1{from{opacity:0} 12.50%{opacity:1} 25.00%,to{opacity:0}}" in picture
    assert "@keyframes f2{from{opacity:0} 25.00%{opacity:1}}" in picture
    assert texts_of(picture) == ["$ demo", "loads━━100%"]
    assert texts_of(picture_of([*BAR[:3], (3.0, "\r\x1b[2Kdone")])) == ["$ demo", "done"]


def test_markup_in_the_output_is_text() -> None:
    assert texts_of(picture_of([(0.0, "<script>&amp;</script>")])) == ["<script>&amp;</script>"]


def test_what_a_command_prints_on_a_terminal_is_recorded_without_the_name_of_its_folder() -> None:
    program = "import os, sys; print(sys.stdout.isatty(), os.getcwd() + '/lake', os.get_terminal_size().columns)"
    events = recorded([sys.executable, "-c", program])
    assert "".join(text for _, text in events) == "$ rootline demo\r\nTrue lake 132\r\n"
    with pytest.raises(RuntimeError, match="failed"):
        recorded([sys.executable, "-c", "raise SystemExit(1)"])


def test_the_picture_is_the_one_of_the_stored_recording_and_ends_with_the_last_lines_of_the_demo() -> None:
    events = events_of((PICTURES / "demo.cast").read_text())
    picture = (PICTURES / "demo.svg").read_text()
    assert picture == picture_of(events)
    assert len(picture.encode()) <= BYTES_MAX
    assert "<script" not in picture
    assert "prefers-reduced-motion" in picture
    shown = texts_of(picture)
    assert shown[0] == "$ rootline demo"
    assert [re.split(r" {2,}", line)[0] for line in shown[-3:]] == ["took", "files", "picture"]
    assert any("the same rows" in line for line in shown)
