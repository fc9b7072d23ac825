"""`make screenshots`: pictures of the console for the documentation, taken of a lake that is made for it.

Owns: what is on them and how large they are. Does not own: the lake (`scene`), the browser.
Invariants: all or none of the pictures are replaced; none is larger than `BYTES_MAX`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.services.console.browser import Page, running_chromium
from tests.services.console.scene import ORDERS, broken, busy, served_scene

BYTES_MAX: Final = 150_000
PICTURES: Final = Path(__file__).parents[3] / "docs" / "pictures"
_SIZES: Final = {"overview": (1060, 860), "table": (1080, 760)}


def main() -> int:
    """Take them; the exit code."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with served_scene(folder) as scene, running_chromium(folder) as browser:
            busy(scene)
            page = browser.new_page()
            page.open(scene.url)
            broken(scene)
            scene.commit("web.clicks")
            _settle(page)
            taken = [_taken(page, folder, "overview", scheme) for scheme in ("light", "dark")]
            page.value(f"location.hash = '#/table/{ORDERS}'")
            page.until("document.querySelector('svg.tree') !== null")
            taken += [_taken(page, folder, "table", scheme) for scheme in ("light", "dark")]
            assert page.faults == [], page.faults
        too_large = {path.name: path.stat().st_size for path in taken if path.stat().st_size > BYTES_MAX}
        if too_large:
            sys.stderr.write(f"error: larger than {BYTES_MAX} bytes: {too_large}; make the pictures smaller\n")
            return 1
        PICTURES.mkdir(exist_ok=True)
        for path in taken:
            (PICTURES / path.name).write_bytes(path.read_bytes())
            print(f"{PICTURES / path.name}  {path.stat().st_size:,} bytes")
    return 0


def _settle(page: Page) -> None:
    page.until("document.querySelector('#findings')?.innerText.includes('is quarantined')")
    page.until("document.querySelector('#tables').innerText.includes('paused')")
    page.until("document.querySelectorAll('#codes button').length >= 3")
    page.until("document.querySelectorAll('#charts path.curve').length >= 3")
    page.until("document.querySelector('#explained').innerText.includes('Do not')")


def _taken(page: Page, folder: Path, what: str, scheme: str) -> Path:
    page.resize(*_SIZES[what])
    page.prefer(scheme)
    page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    path = folder / f"console-{what}-{scheme}.png"
    page.picture(path)
    return path


if __name__ == "__main__":
    sys.exit(main())
