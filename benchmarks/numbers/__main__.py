"""`python -m benchmarks.numbers [--only CHAPTER …]`: measure, and write `docs/numbers.md` or print some chapters."""

from __future__ import annotations

import argparse
import logging
import platform
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
    "command that produces it; `make numbers` writes this page. Sizes are the same everywhere. Times are from one "
    "machine, on one day: compare them only within their table.\n"
)


def main() -> int:
    """Exit code 0: everything was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(_CHAPTERS), action="append", help="print this chapter only")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    parts = [_OPENING]
    for name, (title, section) in _CHAPTERS.items():
        if options.only and name not in options.only:
            continue
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        text = section()
        if options.only:
            print(text)
        parts.append(f"## {title}\n\n`python -m benchmarks.numbers --only {name}`\n\n{text}\n")
    if not options.only:
        when = datetime.now(UTC).date().isoformat()
        parts.append(f"Taken {when}, Python {platform.python_version()}, load {load_average()}.\n")
        _PLACE.write_text("\n".join(parts))
        print(f"written: {_PLACE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
