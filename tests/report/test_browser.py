"""Pages as a browser shows them: without errors or anything from elsewhere, by keyboard, on a phone, dark, printed."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from jdfl.lab import charts
from jdfl.lab.page import Code, Fold, Section, Table, page
from tests.report.test_page import contrast

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def example(path: Path) -> Path:
    """A page with everything that a page may have."""
    rounds = np.arange(1.0, 41.0)
    line = {"label": "CEPS", "x": rounds, "mean": 1 / rounds, "low": 0.9 / rounds, "high": 1.1 / rounds}
    frames = [pd.DataFrame({**line, "label": label, "mean": 1 / rounds**k}) for k, label in enumerate(("CEPS", "SGP"))]
    both = pd.concat(frames, ignore_index=True)
    views = {(x, y): both for x in ("round", "bytes") for y in ("objective", "consensus_error")}
    m, moments = 12, (2, 4, 6)
    nodes = pd.DataFrame(
        [(k, i, 1 / k + i, k * (i % 2)) for k in moments for i in range(m)],
        columns=["round", "node", "distance", "communications"],
    )
    ring = pd.DataFrame([(k, i, (i + k) % m) for k in (2, 6) for i in range(m)], columns=["round", "node", "hears"])
    events = pd.DataFrame({"time": [1.0, 2.0, 2.0, 3.5], "node": [7, 3, 3, 7], "kind": [0, 0, 1, 0]})
    axes = {"round": "rounds", "bytes": "bytes sent by all nodes, the start and all that was lost on the way included"}
    parts = [
        charts.curves(views.items(), axes, "objective against rounds", ["CEPS", "SGP"]),
        charts.network(nodes, ring, "a ring of 12 nodes"),
        charts.bars(list(range(m)), {f"class {i}": [i] * m for i in range(9)}, "node", "examples", "examples by node"),
        charts.timeline(events, ("step", "arrive"), "events of two nodes"),
        Table([f"column {i}" for i in range(20)], [list(range(20))]),
        Fold("settings", [Code("kind: ceps\n" * 30), charts.bars([0], {"a": [1]}, "x", "y", "one bar")]),
    ]
    return page(path, "A page", [Section("All", parts), Section("Last", ["Words."])], "provenance 0123")


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    return example(tmp_path_factory.mktemp("page") / "page.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture
def shown(browser, address):
    """Opens the page; at the end nothing may have gone wrong or have been asked for elsewhere."""
    wrong, asked, contexts = [], [], []

    def open_page(**how: Any) -> Any:
        context = browser.new_context(**how)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("figure .plot svg")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    assert {url for url in asked if not url.startswith("data:")} == {address}


def test_every_chart_is_drawn_named_and_reached(shown):
    page = shown(java_script_enabled=False)
    assert [one.locator(".plot:visible").count() for one in page.locator("main > section > figure").all()] == [
        4,
        2,
        1,
        1,
    ]
    for one in page.locator("figure.chart").all():
        assert one.get_attribute("aria-label")
        assert one.locator("[role=img]").first.get_attribute("aria-label")
    page.keyboard.press("Tab")
    assert page.locator(".skip:focus").count() == 1


def rgb(page: Any, selector: str, name: str) -> str:
    """The colour of an element, as #rrggbb."""
    text = page.locator(selector).first.evaluate(f"e => getComputedStyle(e)['{name}']")
    return "#" + "".join(f"{int(part):02x}" for part in text[text.index("(") + 1 : -1].split(",")[:3])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_follow_the_colours_of_the_system(shown, scheme):
    page = shown(color_scheme=scheme)
    paper = rgb(page, "body", "backgroundColor")
    assert (paper == "#ffffff") == (scheme == "light")
    assert contrast(paper, rgb(page, "p", "color")) >= 4.5


@pytest.mark.rotated(3)
@pytest.mark.parametrize("width", [320, 390, 1200])
def test_nothing_is_wider_than_the_screen_or_covers_data(shown, width):
    page = shown(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """all => all.filter(e => !e.closest('.skip, .wide, svg'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + ' ' + e.className)"""
    assert page.locator("body *").evaluate_all(beyond) == []
    if width < 400:  # every cell is on the screen, with its head
        boxes = page.locator(".wide td").evaluate_all("all => all.map(e => e.getBoundingClientRect())")
        assert len(boxes) == 20
        assert all(0 <= box["left"] < box["left"] + 200 < box["right"] <= width for box in boxes)
        head = page.locator(".wide td").last.evaluate("e => getComputedStyle(e, '::before').content")
        assert "column 19" in head


def test_print_is_dark_on_white_without_controls_and_with_what_was_folded(shown):
    page = shown(color_scheme="dark")
    assert not page.locator("pre").is_visible()
    page.emulate_media(media="print")
    assert rgb(page, "body", "backgroundColor") == "#ffffff"
    assert not page.locator("nav").is_visible()
    assert page.locator("pre").is_visible()
    assert len(page.pdf()) > 10_000
