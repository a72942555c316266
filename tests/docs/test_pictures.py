"""The pictures of the documentation are there, are described in words, and can be drawn again."""

import re
import runpy
from typing import Any
from xml.etree import ElementTree

import jax
import matplotlib as mpl
import pytest

from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
PAGES = ("concepts.md", "first-figure.md", "index.md", "../README.md")
USED = {
    words: name
    for page in PAGES
    for words, name in re.findall(
        r"!\[(.*?)\]\((?:docs/)?pictures/([\w-]+\.svg)\)", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL
    )
}
SMALL = 200_000  # bytes of a picture


def test_every_picture_is_used_and_told_in_words():
    assert sorted(USED.values()) == sorted(path.name for path in (DOCS / "pictures").iterdir())
    assert all((DOCS / "pictures" / name).stat().st_size <= SMALL for name in USED.values())
    assert all(len(words.split()) > 15 for words in USED)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore:gamma = ")  # of CHOCO-SGD, as tuned in README
def test_all_pictures_are_drawn(tmp_path):
    script: dict[str, Any] = runpy.run_path(str(DOCS / "_pictures.py"), run_name="pictures")
    assert sorted(f"{name}.svg" for name in script["PICTURES"]) == sorted(USED.values())
    with mpl.rc_context(), jax.numpy_rank_promotion("allow"):  # as users have it
        script["main"](tmp_path)
    for name in USED.values():
        tags = [one.tag for one in ElementTree.parse(tmp_path / name).iter()]
        assert len(tags) > 20, name
