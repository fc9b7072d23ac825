"""What `make site` stages, and what it finds wrong with what was built. CI runs `make site` itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.documents.blocks import HOUSE
from tests.documents.built_site import findings
from tests.documents.staged_pages import NotInNavigation, configuration, notebook_page, stage


def test_every_page_is_staged_where_the_repository_has_it_and_the_navigation_names_it(tmp_path: Path) -> None:
    stage(HOUSE, tmp_path)
    pages = tmp_path / "site-pages"
    assert (pages / "docs/format.md").read_text() == (HOUSE / "docs/format.md").read_text()
    assert "docs/decisions/README.md" in (pages / "README.md").read_text()
    assert "(0051-" in (pages / "docs/decisions/README.md").read_text()
    assert "five-minutes-1.svg" in (pages / "docs/notebooks/five-minutes.md").read_text()
    assert (pages / "schemas/avro/intent.avsc").exists(), "a page links to it"
    settings = yaml.safe_load((tmp_path / "mkdocs.yml").read_text())
    assert (settings["docs_dir"], settings["theme"]["font"]) == ("site-pages", False)


def test_a_page_that_the_navigation_does_not_name_is_refused(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    (pages / "docs").mkdir(parents=True)
    (pages / "docs" / "lost.md").write_text("# Lost\n")
    with pytest.raises(NotInNavigation, match=r"docs/lost\.md.*Add the pages"):
        configuration(HOUSE, pages)


def test_a_notebook_is_a_page_with_its_outputs_and_pictures(tmp_path: Path) -> None:
    picture = {"data": {"image/svg+xml": ["<svg/>"], "text/plain": ["a tree"]}}
    cells = [
        {"cell_type": "markdown", "source": ["# A lake\n", "\n", "words"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\n"]}, picture]},
    ]
    page = notebook_page({"cells": cells}, tmp_path / "a.md")
    expected = ["# A lake", "", "words", "", "```python", "print(1)", "```", "", "```text", "1", "```", ""]
    assert page.splitlines() == [*expected, "![a tree](a-1.svg)"]
    assert (tmp_path / "a-1.svg").read_text() == "<svg/>"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="none.html">x</a>', "none.html leads nowhere"),
        ('<a href="other.html#none">x</a>', "#none names no part"),
        ('<a href="../outside.html">x</a>', "leads nowhere"),
        ('<img src="none.png">', "none.png leads nowhere"),
        ('<script src="https://example.com/x.js"></script>', "fetches https://example.com/x.js"),
        ('<link rel="stylesheet" href="//example.com/x.css">', "fetches //example.com/x.css"),
        ('<pre class="mermaid">graph</pre>', "a diagram"),
        ("<p>words:\n* one\n* two</p>", "was not understood"),
    ],
)
def test_a_fault_of_a_built_page_is_found(body: str, fault: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").write_text("")
    (site / "other.html").write_text('<h1 id="here">x</h1>')
    (site / "index.html").write_text(f"<html>{body}</html>")
    [found] = findings(site)
    assert fault in found
    assert found.startswith("index.html: ")


def test_what_a_page_may_have_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="here">x</h1>')
    links = '<a href="other.html#here">x</a><a href="#top" id="top">y</a><a href="https://example.com/">z</a>'
    (tmp_path / "index.html").write_text(f"<p>10000. It offers - and * more</p>{links}")
    assert list(findings(tmp_path)) == []
    (tmp_path / "main.css").write_text("@import url(//example.com/font.css);")
    assert list(findings(tmp_path)) == ["main.css: fetches from another host"]


def test_an_empty_site_is_a_fault(tmp_path: Path) -> None:
    [found] = findings(tmp_path)
    assert "no page" in found
