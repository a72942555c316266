"""The pictures of docs/concepts.md are there, are told in words, and can be drawn again."""

import re
import runpy
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
USED = dict(re.findall(r"!\[(.*?)\]\(pictures/(\w+\.svg)\)", (DOCS / "concepts.md").read_text(encoding="utf-8")))


def test_every_picture_is_used_and_told_in_words():
    assert sorted(USED.values()) == sorted(path.name for path in (DOCS / "pictures").iterdir())
    assert all(len(words.split()) > 15 for words in USED)


@pytest.mark.slow
def test_all_pictures_are_drawn(tmp_path):
    script: dict[str, Any] = runpy.run_path(str(DOCS / "_pictures.py"), run_name="pictures")
    assert sorted(f"{name}.svg" for name in script["PICTURES"]) == sorted(USED.values())
    with mpl.rc_context():
        script["main"](tmp_path)
    for name in USED.values():
        tags = [one.tag for one in ElementTree.parse(tmp_path / name).iter()]
        assert len(tags) > 20, name
