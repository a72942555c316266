"""Pages are one file with everything in it, escaped, and can be read by everybody."""

import html.parser
import re
from importlib.resources import files

import pandas as pd
import pytest

from jdfl.lab import charts
from jdfl.lab.drawing import thinned
from jdfl.lab.page import Code, Fold, Image, Section, Table, page
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
    sections = [Section(evil, [*parts, Fold(evil, [])]), Section("last", [])]
    parsed = Tags(page(tmp_path / "page.html", evil, sections, evil).read_text(encoding="utf-8"))
    names = [tag for tag, _ in parsed.seen]
    assert "script" not in names
    assert names.count("p") == 2
    # title, h1, link, h2, p, th, td, code, summary, foot
    assert sum(evil in data for data in parsed.text) == 10
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
    ):
        with refused(said):
            page(path, "", [Section("a", [part])])
    with pytest.raises(FileNotFoundError):
        page(path, "", [Section("a", [Image(tmp_path / "no.png", "")])])
    assert not path.exists()


def test_names_in_charts_are_text(tmp_path):
    evil = "</svg><script>alert($\\frac{1$)</script>"  # formulas are text, too
    parts = [
        charts.bars([evil], {evil: [1.0], "b": [2.0]}, "x", evil, "bars"),
        charts.curves([(("x", evil), pd.concat([line(evil, 3), line("b", 3)]))], {"x": "x"}, evil, [evil, "b"]),
    ]
    text = page(tmp_path / "page.html", "t", [Section("a", parts)]).read_text(encoding="utf-8")
    assert Tags(text).text.count("alert") == 0
    assert [tag for tag, _ in Tags(text).seen].count("script") == 0
    ids = [attrs["id"] for _, attrs in Tags(text).seen if "id" in attrs]
    assert len(ids) == len(set(ids)) > 20  # pictures do not share theirs
    assert len(text.encode()) < 80_000


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


def line(label: str, rows: int) -> pd.DataFrame:
    x = pd.Series(range(rows), dtype=float)
    return pd.DataFrame({"label": label, "x": x, "mean": x**2, "low": x**2 - 1, "high": x**2 + 1})


def test_a_chart_has_a_picture_for_every_pair_and_all_extremes_of_long_lines():
    frame = pd.concat([line("a", 20_000), line("b", 4)], ignore_index=True)
    frame.loc[2, "mean"] = float("inf")
    views = {(x, "consensus_error"): frame for x in ("round", "bytes")}
    chart = charts.curves(views.items(), {"round": "rounds", "bytes": "bytes sent"}, "curves", ["a", "b"])
    assert list(chart.pictures) == [("rounds", "consensus error"), ("bytes sent", "consensus error")]
    for picture in chart.pictures.values():
        assert set(re.findall(r'id="\w+-((?:line|band)-\d)"', picture)) == {"line-0", "band-0", "line-1", "band-1"}
        assert len(picture) < 100_000
    long = line("a", 20_000).assign(low=0.0, high=1.0)
    long.loc[12_345, ["low", "high"]] = -3.0, 5.0
    shown = thinned(long)
    assert (len(shown) < 1000, shown["low"].min(), shown["high"].max()) == (True, -3.0, 5.0)
    assert shown["x"].iloc[[0, -1]].tolist() == [0, 19_999]
