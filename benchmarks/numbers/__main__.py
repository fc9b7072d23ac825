"""`python -m benchmarks.numbers [--only CHAPTER … [--write]]`: measure, and write `docs/numbers.md`, or some chapters.

Each chapter says when and of which commit it was taken, because chapters are measured again one at a time.
"""

from __future__ import annotations

import argparse
import logging
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from benchmarks.measure import load_average
from benchmarks.numbers import embedded_floor, flush_thresholds, inline_vectors, rewrite_starvation, vector_sizes

_CHAPTERS: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "vector-sizes": ("How large bit vectors are", vector_sizes.section),
    "inline-vectors": ("Whether inline vectors should be compressed", inline_vectors.section),
    "flush": ("When to flush", flush_thresholds.section),
    "rewrite-starvation": ("How often a rewrite is refused under steady deletes", rewrite_starvation.section),
    "embedded-floor": ("What a commit through another process costs at least", embedded_floor.section),
}
_PLACE: Final = Path("docs/numbers.md")
_OPENING: Final = (
    "# Numbers\n\n"
    "Figures that the proposal of single file commits asks for and that no one has published. Each chapter names the "
    "command that produces it and ends with when, and of which commit, it was taken; `make numbers` writes this page, "
    "`make numbers ARGS='--only CHAPTER --write'` one chapter. Sizes are the same everywhere. Times are from one "
    "machine: compare them only within their table.\n"
)


def main() -> int:
    """Exit code 0: everything was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(_CHAPTERS), action="append", help="measure this chapter only")
    parser.add_argument("--write", action="store_true", help="with --only: put it into the page, beside the others")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    page = {} if not options.only else _chapters_of(_PLACE.read_text())
    for name, (title, section) in _CHAPTERS.items():
        if options.only and name not in options.only:
            continue
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        text = f"{section()}\n\n{_taken()}"
        if options.only:
            print(text)
        page[title] = f"`python -m benchmarks.numbers --only {name}`\n\n{text}\n"
    if options.write or not options.only:
        parts = [f"## {title}\n\n{page[title]}" for title, _ in _CHAPTERS.values()]
        _PLACE.write_text("\n".join([_OPENING, *parts]))
        print(f"written: {_PLACE}")
    return 0


def _chapters_of(page: str) -> dict[str, str]:
    """Title → text, of the page as it is."""
    return {title: f"{text.strip()}\n" for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.M | re.S)}


def _taken() -> str:
    """When, and of what."""
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    when = datetime.now(UTC).date().isoformat()
    commit = described.stdout.strip() or "unknown"
    return f"Taken {when} of commit {commit}, Python {platform.python_version()}, load {load_average()}."


if __name__ == "__main__":
    sys.exit(main())
