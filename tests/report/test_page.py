"""Pages are one file with everything in it, escaped, and can be read by everybody."""

import base64
import html.parser
import io
import json
import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture

from jdfl.lab import charts
from jdfl.lab.page import Chart, Code, Fold, Gallery, Image, Section, Table, Tiles, page
from tests.refused import refused


class Tags(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_a_page_is_one_file_with_all_text_escaped(tmp_path):
    evil = '<script>alert("&")</script>'
    image = tmp_path / "a.png"
    image.write_bytes(b"\x89PNG...")
    parts = [f"{evil}\n\nsecond", Table([evil, "n"], [[evil, 1.5]]), Image(image, f'"{evil}'), Code(evil)]
    sections = [Section(evil, [*parts, Fold(evil, [Tiles([(evil, evil, evil)])])]), Section("last", [])]
    parsed = Tags(page(tmp_path / "page.html", evil, sections, evil).read_text(encoding="utf-8"))
    names = [tag for tag, _ in parsed.seen]
    assert "script" not in names
    assert names.count("p") == 2
    # title, h1, link, h2, p, th, td, code, summary, three of a tile, foot
    assert sum(evil in data for data in parsed.text) == 13
    (attributes,) = [attrs for tag, attrs in parsed.seen if tag == "img"]
    assert attributes["src"].startswith("data:image/png;base64,")
    assert attributes["alt"] == f'"{evil}'
    assert all(attrs.get("href", "#")[0] == "#" or attrs["href"] == "data:," for _, attrs in parsed.seen)
    assert all(attrs.get("src", "data:").startswith("data:") for _, attrs in parsed.seen)
    assert ("td", {"role": "cell", "class": "number", "data-label": "n"}) in parsed.seen


def test_a_page_refuses_what_it_cannot_show(tmp_path):
    path = tmp_path / "page.html"
    for said, part in (
        ("no.txt", Image(tmp_path / "no.txt", "")),
        ("2 cells", Fold("b", [Table(["x", "y"], [[1]])])),
        ("kind = 'cake'", Chart("cake", {}, "")),
    ):
        with refused(said):
            page(path, "", [Section("a", [part])])
    with pytest.raises(FileNotFoundError):
        page(path, "", [Section("a", [Image(tmp_path / "no.png", "")])])
    assert not path.exists()


def test_data_of_charts_cannot_end_its_script(tmp_path):
    evil = "</script><script>alert(1)</script>"
    chart = charts.bars([evil], {evil: [1.0]}, "x", "y", "bars")
    text = page(tmp_path / "page.html", "t", [Section("a", [chart])]).read_text(encoding="utf-8")
    assert evil not in text
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(data)["x"] == [evil]
    assert len(text.encode()) < 60_000


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def themes() -> dict[str, dict[str, str]]:
    style = files("jdfl.lab").joinpath("style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    found = [dict(re.findall(r"--(\w+): ([^;]+);", block)) for block in blocks]
    return dict(zip(("light", "dark", "print"), [found[0], *({**found[0], **one} for one in found[1:])]))


def test_everything_can_be_told_from_what_is_behind_it():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for colours in themes().values():
        for text in ("ink", "faint", "mark"):
            assert min(contrast(colours[text], colours[behind]) for behind in ("paper", "soft")) >= 4.5, text
        lines = [colours[f"c{i}"] for i in range(7)]
        assert len(lines) == len(set(lines)) == 7
        assert min(contrast(line, colours["paper"]) for line in lines) >= 3


def line(label: str, rows: int) -> pd.DataFrame:
    x = pd.Series(range(rows), dtype=float)
    return pd.DataFrame({"label": label, "x": x, "mean": x**2, "low": x**2 - 1, "high": x**2 + 1})


def lists(chart: Chart, view: str) -> list[dict]:
    """The lines of a view, with their numbers in place of the places in the pool."""
    numbers = ("x", "mean", "low", "high")
    pool = chart.data["lists"]
    return [{k: pool[v] if k in numbers else v for k, v in one.items()} for one in chart.data["views"][view]]


def test_long_curves_keep_their_ends_and_short_ones_everything():
    frame = pd.concat([line("long", 100_000), line("short", 3)], ignore_index=True)
    chart = charts.curves({("round", "objective"): frame}, {"round": "rounds"}, "curves")
    long, short = lists(chart, "round|objective")
    assert (long["x"][0], long["x"][-1]) == (0, 99_999)
    assert long["x"][:20] == list(range(20))  # for logarithmic axes
    assert short == {"label": "short", "x": [0, 1, 2], "mean": [0, 1, 4], "low": [-1, 0, 3], "high": [1, 2, 5]}


@given(st.integers(2_000, 30_000), st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 2**32))
def test_thinning_loses_no_extreme(size, places, seed):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=size)
    for k, place in enumerate(places):
        mean[int(place * (size - 1))] = (100 + k) * (-1) ** k
    frame = pd.DataFrame({"label": "a", "x": np.arange(size), "mean": mean, "low": mean, "high": mean})
    spread = frame.assign(low=mean - 300 * rng.random(size), high=mean + 300 * rng.random(size))
    (one,) = lists(charts.curves({("x", "y"): spread}, {"x": "x"}, ""), "x|y")
    assert len(one["x"]) <= 6 * 300
    assert min(one["mean"]) == pytest.approx(mean.min(), rel=1e-4)
    assert max(one["mean"]) == pytest.approx(mean.max(), rel=1e-4)
    assert min(one["low"]) == pytest.approx(spread["low"].min(), rel=1e-4)
    assert max(one["high"]) == pytest.approx(spread["high"].max(), rel=1e-4)
    assert one["x"] == sorted(one["x"])


def test_lines_share_numbers_and_what_is_not_finite_is_left_out():
    frame = line("a", 50)
    chart = charts.curves({(x, "y"): frame for x in "abc"}, dict.fromkeys("abc", ""), "")
    assert len(chart.data["lists"]) == 4
    frame = line("a", 4)
    frame.loc[2, "mean"] = float("inf")
    frame["low"] = frame["high"] = frame["mean"]  # one run has no band
    (one,) = lists(charts.curves({("x", "y"): frame}, {"x": "x"}, ""), "x|y")
    assert one == {"label": "a", "x": [0, 1, 3], "mean": [0, 1, 9]}


def test_a_network_is_drawn_as_it_was_in_every_moment():
    nodes = pd.DataFrame({"round": [2, 2, 2, 4, 4, 4], "node": [0, 5, 7] * 2, "value": [1, 2, 3, 4, float("nan"), 6]})
    links = pd.DataFrame({"round": [2, 2, 2, 4], "node": [0, 5, 7, -1], "hears": [5, 0, 5, -1]})
    data = charts.network(nodes, links, "").data
    assert data["rounds"] == [2, 4]
    assert data["nodes"] == [0, 5, 7]
    assert data["fields"] == {"value": [[1, 2, 3], [4, None, 6]]}
    assert data["links"] == [{"moment": 0, "pairs": [[0, 1], [1, 2]]}, {"moment": 1, "pairs": []}]
    assert len({*zip(data["x"], data["y"])}) == 3


def test_a_gallery_leads_to_sections_that_the_head_does_not_list(tmp_path):
    Picture.effect_noise((1600, 1200), 50).save(tmp_path / "big.png")
    tiles = [("first", "Table <1>", tmp_path / "big.png"), ("second", "Not made", None)]
    named = [Section("One", ["text"], "first"), Section("Two", [], "second")]
    path = page(tmp_path / "page.html", "t", [Section("All", [Gallery(tiles)]), *named])
    parsed = Tags(path.read_text(encoding="utf-8"))
    links = [attrs["href"] for tag, attrs in parsed.seen if tag == "a"]
    assert links == ["#part-0", "#part-0", "#first", "#second"]  # to skip, the head's, the gallery's
    (image,) = [attrs for tag, attrs in parsed.seen if tag == "img"]
    shown = Picture.open(io.BytesIO(base64.b64decode(image["src"].partition(",")[2])))
    assert shown.size == (480, 360)
