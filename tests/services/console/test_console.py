"""An operator looks at a running `rootline up` with a real Chromium.

Owns: what is looked for on the page. Does not own: the data behind it (`tests/coordinator/test_console.py`), the lake
(`scene`).
Invariants: one browser and two services for all tests; nothing may be logged as an error in the page's console.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinator.running_service import append_intent
from tests.services.console.browser import Browser, Page, running_chromium
from tests.services.console.scene import DAMAGED, HOSTILE, ORDERS, PAUSED, Scene, broken, served_scene

pytestmark = pytest.mark.services
TOKEN = "a-secret-token"
CONTRASTS = """
(() => {
  const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const numbers = (c) => c.match(/[\\d.]+/g).map(Number);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const low = [];
  for (const e of document.querySelectorAll("main *, header *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest("svg") || e.disabled) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color).slice(0, 3)), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push(`${e.tagName} ${e.className}: ${e.textContent.slice(0, 40)}`);
  }
  return low;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with served_scene(tmp_path_factory.mktemp("scene")) as found:
        broken(found)
        found.commit(ORDERS)
        yield found


@pytest.fixture
def page(browser: Browser, scene: Scene) -> Page:
    """The console, once it shows the tables of the lake."""
    page = browser.new_page()
    page.resize(1280, 1000)
    page.open(scene.url)
    page.until(f"document.querySelector('#tables')?.innerText.includes({json.dumps(ORDERS)})")
    return page


def test_what_is_wrong_comes_first_and_says_what_to_do(page: Page) -> None:
    page.until("document.querySelector('#findings').innerText.includes('is quarantined')")
    page.until("document.querySelector('#tables').innerText.includes('paused')")
    [first, *_] = page.value("[...document.querySelectorAll('#findings strong')].map((e) => e.textContent)")
    assert first == f"{DAMAGED} is quarantined"
    assert f"rootline quarantine lift {DAMAGED}" in page.text()
    assert "problem" in page.value("document.querySelector('#state').textContent")
    names = page.value("[...document.querySelectorAll('#tables a')].map((e) => e.textContent)")
    assert names[:2] == [DAMAGED, PAUSED], "the worst first"
    assert "ask Dana before you resume" in page.text()
    assert page.faults == []


def test_a_commit_and_its_verdict_arrive_on_the_open_page(page: Page, scene: Scene) -> None:
    version = scene.commit(ORDERS)
    page.until(
        f"[...document.querySelectorAll('#feed .commit')].some((e) => e.innerText.includes('{ORDERS} v{version} '))"
    )
    page.until("document.querySelector('#feed .verdicts').innerText.includes('1 committed')")
    page.until("document.querySelectorAll('#charts path.curve').length >= 2")
    assert page.faults == []


def test_a_rejection_arrives_with_its_cause_what_to_do_and_what_not(page: Page, scene: Scene) -> None:
    scene.publish(append_intent("late-one", table=ORDERS, location="../late.parquet"))
    page.until("document.querySelector('#feed .rejection')?.innerText.includes('late.parquet')")
    page.until("[...document.querySelectorAll('#codes button')].some((e) => e.innerText.includes('location-invalid'))")
    page.value(
        "[...document.querySelectorAll('#codes button')].find((e) => e.innerText.includes('location-invalid')).click()"
    )
    page.until("document.querySelector('#explained').innerText.includes('late-one')")
    told = page.value("document.querySelector('#explained').innerText")
    for word in ("Cause", "Do", "Do not", "The page of location-invalid"):
        assert word in told
    link = page.value("document.querySelector('#explained a').href")
    assert page.value(f"fetch({json.dumps(link)}).then((said) => said.text())").startswith("# `location-invalid`")
    assert page.faults == []


def test_a_name_that_is_markup_is_shown_as_text(page: Page) -> None:
    page.until(f"document.querySelector('#lake').innerText.includes({json.dumps(HOSTILE)})")
    assert page.value("document.querySelectorAll('main script, main [onerror], #lake img').length") == 0
    assert "owned" not in page.value("document.title")
    page.value(f"location.hash = '#/table/' + encodeURIComponent({json.dumps(HOSTILE)})")
    page.until(f"document.querySelector('#one-title').textContent === {json.dumps(HOSTILE)}")
    page.until("document.querySelector('#one-rejections').innerText.includes('partition')")
    assert page.value("document.querySelectorAll('main script, #one img').length") == 0
    assert page.faults == []


def test_a_table_opens_from_the_keyboard_and_its_tree_is_drawn(page: Page, scene: Scene) -> None:
    scene.flush(ORDERS)
    page.value(f"[...document.querySelectorAll('#tables a')].find((e) => e.textContent === '{ORDERS}').focus()")
    page.press("Enter")
    page.until("document.querySelector('svg.tree') !== null")
    said = page.until("document.querySelector('svg.tree').getAttribute('aria-label')")
    assert "leaf" in said or "leaves" in said
    page.until("document.querySelector('#tree').textContent.includes('data leaf')")
    assert page.value("document.activeElement.id") == "one-title", "the keyboard is where the eye is"
    assert page.value("document.title").startswith("(")
    page.press("Tab")
    page.value("history.back()")
    page.until("!document.querySelector('#lake').hidden")
    assert page.faults == []


def test_tables_can_be_searched_and_filtered(page: Page) -> None:
    page.value("document.querySelector('#search').value = 'WEB.'")
    page.value("document.querySelector('#search').dispatchEvent(new Event('input'))")
    page.until("document.querySelectorAll('#tables tr').length === 2")
    page.value("[...document.querySelectorAll('#states button')].find((e) => e.innerText.startsWith('paused')).click()")
    page.until("document.querySelectorAll('#tables tr').length === 1")
    assert page.value("document.querySelector('#tables a').textContent") == PAUSED
    assert page.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_its_ground(page: Page, scheme: str) -> None:
    page.prefer(scheme)
    page.until("document.querySelectorAll('#findings .finding').length > 1")
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in ground.removeprefix("rgb(").removesuffix(")").split(","))
    assert (brightness > 600) is (scheme == "light"), ground
    assert page.value(CONTRASTS) == []
    assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.faults == []


def test_a_token_is_asked_for_kept_in_the_tab_and_refused_if_it_is_wrong(browser: Browser, tmp_path: Path) -> None:
    with served_scene(tmp_path, {"ROOTLINE_HTTP__TOKEN": TOKEN}) as scene:
        page = browser.new_page()
        page.open(scene.url)
        page.until("document.querySelector('#ask-token')?.hidden === false")
        assert ORDERS not in page.text()

        def enter(token: str) -> None:
            page.value(f"document.querySelector('#token').value = {json.dumps(token)}")
            page.click("#token-form button")

        enter("wrong")
        page.until("document.querySelector('#token-said').textContent.includes('not one of those')")
        enter(TOKEN)
        page.until(f"document.querySelector('#tables').innerText.includes({json.dumps(ORDERS)})")
        kept = page.value("[JSON.stringify(localStorage), document.cookie, Object.values(sessionStorage)]")
        assert kept == ["{}", "", [TOKEN]]
        assert TOKEN not in page.value("document.documentElement.outerHTML")
        unlike = [said for said in page.faults if "401" not in said]
        assert unlike == [], "a browser logs each answer of 401, and nothing else"
