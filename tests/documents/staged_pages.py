"""The pages of the site: the documents in the folders that they have in the repository, so that their links hold.

Owns: which files are pages, the notebook as a page, the navigation. Does not own: building the site, checking what was
built. Invariants: a page's text is the document's, but for links to folders and to notebooks;
a file that a page links to is in the site; a document that the navigation does not reach is an error.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

LINK = re.compile(r"(\]\()(?!https?://|#|mailto:)([^)#\s]+)((?:#[^)]*)?\))")
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
TOP_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
BY_LINKS = ("docs/codes", "docs/decisions")
"""Their pages are reached from the index of the folder."""


class NotInNavigation(Exception):
    """A document that mkdocs.yml does not name."""


def documents(house: Path) -> list[Path]:
    """The pages for people, without the notebooks."""
    return [house / name for name in TOP_PAGES if (house / name).exists()] + sorted((house / "docs").rglob("*.md"))


def stage(house: Path, folder: Path) -> None:
    """Write the configuration into `folder`, and the pages below `folder`/site-pages."""
    pages = folder / "site-pages"
    pages.mkdir(parents=True)
    for document in documents(house):
        _write(pages / document.relative_to(house), document.read_text(), document, house, pages)
    for notebook in sorted((house / "docs").rglob("*.ipynb")):
        page = pages / notebook.relative_to(house).with_suffix(".md")
        page.parent.mkdir(parents=True, exist_ok=True)
        _write(page, notebook_page(json.loads(notebook.read_text()), page), notebook, house, pages)
        shutil.copy(notebook, page.parent)
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(configuration(house, pages), sort_keys=False))


def _write(page: Path, text: str, document: Path, house: Path, pages: Path) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_with_links_of_the_site(text, document, house, pages))


def _with_links_of_the_site(text: str, document: Path, house: Path, pages: Path) -> str:
    def link(match: re.Match[str]) -> str:
        opening, target, closing = match.groups()
        there = (document.parent / target).resolve()
        if there.is_dir():
            return f"{opening}{target.rstrip('/')}/README.md{closing}"
        if there.suffix == ".ipynb" and document.suffix != ".ipynb":
            return f"{opening}{target.removesuffix('.ipynb')}.md{closing}"
        if there.is_file() and there.suffix not in (".md", ".ipynb") and there.is_relative_to(house):
            copy = pages / there.relative_to(house)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(there, copy)
        return match[0]

    parts = CODE.split(text)  # every second one is code
    return "".join(part if number % 2 else LINK.sub(link, part) for number, part in enumerate(parts))


def notebook_page(notebook: dict[str, Any], page: Path) -> str:
    """A notebook as Markdown; its pictures become files beside `page`."""
    parts: list[str] = []
    pictures = 0
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            picture = next((kind for kind in ("image/svg+xml", "image/png") if kind in data), None)
            if picture is not None:
                pictures += 1
                name = f"{page.stem}-{pictures}.{'svg' if picture == 'image/svg+xml' else 'png'}"
                content = "".join(data[picture])
                (page.parent / name).write_bytes(
                    content.encode() if name.endswith(".svg") else base64.b64decode(content)
                )
                parts.append(f"![{data.get('text/plain', ['picture'])[0].strip()}]({name})")
            else:
                text = "".join(output.get("text") or data.get("text/plain", []))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def configuration(house: Path, pages: Path) -> dict[str, Any]:
    """mkdocs.yml, where the pages are, and where the site goes."""
    settings: dict[str, Any] = yaml.safe_load((house / "mkdocs.yml").read_text())
    reached = set(_pages_in(settings["nav"]))
    staged = {str(page.relative_to(pages)) for page in pages.rglob("*.md")}
    unreached = {page for page in staged - reached if not page.startswith(tuple(f"{folder}/" for folder in BY_LINKS))}
    if unreached or reached - staged:
        raise NotInNavigation(
            f"nav in mkdocs.yml does not name {sorted(unreached)}; it names {sorted(reached - staged)}, which are not "
            "there. Add the pages to it, or take them out"
        )
    return settings | {"docs_dir": "site-pages", "site_dir": "site"}


def _pages_in(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for value in entry.values():
            yield from _pages_in(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from _pages_in(value)
