"""What may be wrong with a built site: links that lead nowhere, and what a reader's browser would fetch from elsewhere.

Owns: reading the built HTML. Does not own: building it. Invariants: reads only; each finding names its page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("object", "data"),
    ("source", "src"),
}
FETCHING_CSS = re.compile(r"@import[^;]*//|url\(\s*['\"]?(?:https?:)?//")
BY_MARKUP = {"mermaid": "a diagram, whose program is fetched", "arithmatex": "a formula, whose program is fetched"}
"""Classes at which the theme's script loads something from another host."""
NEVER = {"canonical", "sitemap"}


@dataclass
class Page:
    """The links of one page, what it loads, its anchors, and the words that show Markdown that was not understood."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    raw: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._paragraph = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._paragraph = tag == "p" or (self._paragraph and tag in ("a", "code", "em", "strong", "br"))
        self.page.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.page.classes |= set(values.get("class", "").split())
        if values.get("rel") in NEVER:
            return
        for name, value in values.items():
            if (tag, name) in FETCHED:
                self.page.loads.append(value)
            elif name == "href":
                self.page.links.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._paragraph = self._paragraph and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._paragraph and re.search(r"^\s*(?:[*-]|\d{1,2}\.) \S|^\|.*\|$|```", data, re.MULTILINE):
            self.page.raw.append(data.strip()[:60])


def read_page(path: Path) -> Page:
    """What is in one HTML file."""
    reader = _Reader()
    reader.feed(path.read_text())
    return reader.page


def findings(site: Path) -> Iterator[str]:
    """Every fault of the site in `site`, one line each."""
    pages = {path: read_page(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: there is no page"
    for path, page in pages.items():
        here = path.relative_to(site)
        for load in page.loads:
            if urlsplit(load).netloc:
                yield f"{here}: fetches {load} when it is read"
        for mark in page.classes & BY_MARKUP.keys():
            yield f"{here}: has {BY_MARKUP[mark]} from another host when it is read"
        for words in page.raw:
            yield f"{here}: a list, table or fence was not understood: {words!r}; put an empty line before it"
        if path.name != "404.html":  # served at any depth: its links are absolute
            yield from (f"{here}: {fault}" for fault in _dead_links(site, path, page, pages))
    for style in sorted(site.rglob("*.css")):
        if FETCHING_CSS.search(style.read_text()):
            yield f"{style.relative_to(site)}: fetches from another host"


def _dead_links(site: Path, path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for link in [*page.links, *page.loads]:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file() or not target.is_relative_to(site.resolve()):
            yield f"{link} leads nowhere"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            yield f"{link} names no part of that page"
