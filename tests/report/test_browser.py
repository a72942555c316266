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
from jdfl.lab.page import Code, Fold, Section, Table, Tiles, page
from jdfl.lab.watch import Lanes
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
    events = pd.DataFrame(
        {"time": [1.0, 2.0, 2.0, 3.5], "node": [7, 3, 3, 7], "kind": [0, 0, 1, 0], "every": [2, 4, 4, 9]}
    )
    messages = pd.DataFrame({"sent": [1.0, 2.0], "node": [7, 3], "arrives": [2.0, 2.0], "to": [3, 7]})
    axes = {"round": "rounds", "bytes": "bytes sent by all nodes, the start and all that was lost on the way included"}
    parts = [
        Tiles([("rounds", "40", "stop rule"), ("objective", "0.025", "")]),
        charts.curves(views, axes, "objective against rounds"),
        charts.network(nodes, ring, "a ring of 12 nodes"),
        charts.bars(list(range(m)), {f"class {i}": [i] * m for i in range(9)}, "node", "examples", "examples by node"),
        charts.timeline(Lanes("Pairs", ("step", "arrive"), m, events, messages)),
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
        page.wait_for_selector("figure[data-kind=curves] .plot svg")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    assert {url for url in asked if not url.startswith("data:")} == {address}


def lines(page: Any) -> int:
    return page.locator("figure[data-kind=curves] path.trace").count()


def test_every_chart_is_drawn_named_and_reached(shown):
    page = shown()
    assert page.locator("figure.chart .plot svg").count() == 5  # one of them folded
    assert lines(page) == page.locator("figure[data-kind=curves] path.band").count() == 2
    assert page.locator("figure[data-kind=network] circle.node").count() == 12
    assert page.locator("figure[data-kind=bars] >> nth=0").locator("g.series").count() == 9
    kinds, at = "e.className.baseVal", "e.getAttribute('transform')"
    marks = page.locator("figure[data-kind=curves] .plot .mark").evaluate_all(f"all => all.map(e => [{kinds}, {at}])")
    assert len({kind for kind, _ in marks}) == 2
    assert len({place for _, place in marks}) == len(marks) >= 4  # also of lines that coincide
    for one in page.locator(".controls :is(select, input, button)").all():
        assert one.evaluate("e => e.labels?.length ? e.labels[0].textContent : e.textContent").strip()
    for one in page.locator("figure.chart").all():
        assert one.get_attribute("aria-label")
        assert one.locator("[role=img]").get_attribute("aria-label")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_events_stand_at_their_times_on_the_lanes_of_their_nodes(shown):
    page = shown()
    figure = page.locator("figure[data-kind=timeline]")
    assert [figure.locator(f".plot .{name}").count() for name in ("event", "sent", "partner")] == [4, 2, 1]
    places = "all => all.map(e => e.getAttribute('transform').match(/[\\d.]+/g).slice(0, 2).map(Number))"
    (a, b, both, c) = figure.locator(".plot .event").evaluate_all(places)
    assert b == both
    assert a[1] == c[1] != b[1]
    for text, (x, _) in zip(("1", "2", "3.5"), (a, b, c)):
        tick = figure.locator(f".plot text:text-is('{text}')").get_attribute("x")
        assert float(tick) == pytest.approx(x, abs=0.1)
    shapes = "all => all.map(e => e.getAttribute('d'))"
    assert len(set(figure.locator(".plot .event").evaluate_all(shapes))) == 2  # kinds differ without their colours
    figure.locator(".plot svg").focus()
    told = {"Home": "1 s: node 7, step, used by node 3 at 2 s", "ArrowRight": "2 s: node 3, step, with node 7"}
    for key, said in told.items():
        page.keyboard.press(key)
        assert figure.locator("> output").text_content() == said


def test_lines_are_hidden_and_values_are_read_by_pointer_and_by_keys(shown):
    page = shown()
    figure = page.locator("figure[data-kind=curves]")
    figure.locator(".plot svg").focus()
    page.keyboard.press("End")
    assert figure.locator("> output").text_content() == "rounds 40: CEPS 1, SGP 0.025"
    page.keyboard.press("ArrowLeft")
    assert figure.locator("> output").text_content().startswith("rounds 39: ")
    page.locator("figure[data-kind=network] circle.node").nth(3).hover()
    assert page.locator("figure[data-kind=network] > output").text_content().startswith("node 3, distance ")
    button = figure.locator(".legend button").first
    button.focus()
    page.keyboard.press("Enter")
    assert (button.get_attribute("aria-pressed"), lines(page)) == ("false", 1)
    page.keyboard.press("Enter")
    assert lines(page) == 2
    figure.locator("select").nth(0).select_option("consensus_error")
    figure.locator("select").nth(1).select_option("bytes")
    assert "consensus error" in figure.locator(".ytitle").text_content()
    assert "bytes sent" in figure.locator(".xtitle").text_content()
    ticks = "all => all.map(e => e.textContent)"
    before = figure.locator(".plot text").evaluate_all(ticks)
    figure.get_by_label("log x").check()
    assert "10" in figure.locator(".plot text").evaluate_all(ticks) != before


def test_the_slider_goes_by_keyboard(shown):
    page = shown()
    slider, output = page.locator("input[type=range]"), page.locator(".controls output")
    links = page.locator("figure[data-kind=network] path.links")
    assert output.text_content() == "6"
    last = links.get_attribute("d")
    slider.focus()
    page.keyboard.press("Home")
    assert output.text_content() == "2"
    assert slider.get_attribute("aria-valuetext") == "round 2"
    assert links.get_attribute("d") != last
    page.keyboard.press("ArrowRight")
    assert output.text_content() == "4"
    page.get_by_role("button", name="play").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.controls output').textContent === '6'")
    assert page.get_by_role("button", name="play").is_visible()


def rgb(page: Any, selector: str, name: str) -> str:
    """The colour of an element, as #rrggbb."""
    text = page.locator(selector).first.evaluate(f"e => getComputedStyle(e)['{name}']")
    return "#" + "".join(f"{int(part):02x}" for part in text[text.index("(") + 1 : -1].split(",")[:3])


def becomes_readable(page: Any) -> bool:
    """Whether a chart's words stand out from the paper; it is drawn anew a moment after colours have changed."""
    for _ in range(200):
        if contrast(rgb(page, "body", "backgroundColor"), rgb(page, "figure[data-kind=curves] .xtitle", "fill")) >= 4.5:
            return True
        page.wait_for_timeout(50)
    return False


@pytest.mark.rotated(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_lines_follow_the_colours_of_the_system(shown, scheme):
    page = shown(color_scheme=scheme)
    paper = rgb(page, "body", "backgroundColor")
    assert (paper == "#ffffff") == (scheme == "light")
    assert contrast(paper, rgb(page, "p", "color")) >= 4.5
    assert contrast(paper, rgb(page, "figure[data-kind=curves] .xtitle", "fill")) >= 4.5
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    assert rgb(page, "body", "backgroundColor") != paper  # so that what was readable is not, before it is drawn anew
    assert becomes_readable(page)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("width", [320, 390, 1200])
def test_nothing_is_wider_than_the_screen_or_covers_data(shown, width):
    page = shown(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """all => all.filter(e => !e.closest('.skip, .wide, defs, clipPath'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + ' ' + e.className)"""
    assert page.locator("body *").evaluate_all(beyond) == []
    apart = """all => all.every(e => {
        const plot = e.querySelector('.plot').getBoundingClientRect();
        const others = [...e.querySelectorAll('.controls, .legend, .key')];
        return others.every(c => c.getBoundingClientRect().bottom <= plot.top + 1);
    })"""
    assert page.locator("figure.chart").evaluate_all(apart)
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
    assert becomes_readable(page)
    assert not page.locator(".controls").first.is_visible()
    assert page.locator("pre").is_visible()
    assert len(page.pdf()) > 10_000
