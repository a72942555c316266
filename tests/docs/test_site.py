"""The documentation: pages of algorithms are complete, their examples run, their numbers are fresh; the site builds."""

import html.parser
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import chex
import pytest

import jdfl
from jdfl.algorithms import REGISTRY
from jdfl.cli import parse
from jdfl.config import build
from tests.refused import refused

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_site"))  # as mkdocs does for its hooks

import costs  # noqa: E402
import examples  # noqa: E402
import pages  # noqa: E402
import robustness  # noqa: E402

pytestmark = [pytest.mark.optimized, pytest.mark.timeout(1200)]


def test_pages_have_what_every_page_has():
    known = pages.known_costs()
    assert list(known) == list(REGISTRY)
    for name, kind in REGISTRY.items():
        text = pages.page(name)
        assert [field.name for field, said in pages.options(kind) if not said] == [], name
        heads = [line for line in text.splitlines() if line.startswith("## ")]
        wanted = ["Update", "Missing neighbours", "Options", "Example", "Privacy", "In the library", "See also"]
        assert [head for head in heads if head != "## As computed here"] == [f"## {head}" for head in wanted]
        above = text.partition("## Update")[0]
        assert all(f"\n- **{part}.** " in above for part in ("Provenance", "Cost")), name
        assert f"::: jdfl.algorithms.{kind.__module__.rpartition('.')[2]}.{kind.__name__}\n" in text
        assert f"jdfl run --algorithm {name}" in text
        assert f"](algorithms/{name}.md) | `{kind.__name__}` |" in pages.table()


def test_every_name_is_documented_on_one_page():
    """Where it is on two, a link to it is ambiguous and a strict build of the site ends with an error."""
    texts = [pages.page(name) for name in REGISTRY]
    for file in sorted((ROOT / "docs").rglob("*.md")):
        texts.append(file.read_text(encoding="utf-8"))
        filled = re.findall(r"(?m)^<!-- names: ([\w.]+) -->$", texts[-1])
        texts += [f"::: {module}.{name}" for module in filled for name in pages.listed(module)]
    places = Counter(place for text in texts for place in re.findall(r"(?m)^::: (\S+)", text))
    assert [place for place, times in places.items() if times > 1] == []


def test_attacks_and_crashes_are_counted_and_nothing_wrong_came_of_them():
    for part, told in robustness.known().items():
        assert told["attacks"] == sum(told["outcomes"].values()) >= {"calls": 8000}.get(part, 2000)
        assert [told[name] for name in robustness._BAD] == [0, 0, 0]
        assert f"{told['attacks']:,} | " in robustness.table()
    known = json.loads(robustness.CRASHES.read_text(encoding="utf-8"))
    for harness, least in {"crash points": 1000, "SIGKILL": 100}.items():
        assert sum(told["tried"] for told in known[harness].values()) >= least
    assert all(told["wrong"] == 0 for works in known.values() for told in works.values())
    assert "| SIGKILL | all | " in robustness.crashes()


def test_fields_are_read_with_their_comments_and_defaults():
    found = {field.name: field for field, _ in pages.options(REGISTRY["dcd-psgd"])}
    assert (found["lr"].default, found["lr"].comment[:9], found["codec"].annotation) == ("0.1", "Step size", "Codec")
    with refused("docstring"):
        pages.parts_of("Title.\n\nMissing neighbours: none.\n\nAxes: m nodes.")


@pytest.mark.rotated(11)
@pytest.mark.parametrize("name", REGISTRY)
def test_the_example_of_a_page_runs_and_costs_what_the_page_says(name):
    """The Python lines as they stand there, with all their rounds."""
    assert examples.python(name, REGISTRY[name].__name__) in pages.page(name)
    assert costs.measured(name) == pages.known_costs()[name]


def test_the_command_of_a_page_makes_the_run_of_its_python_lines():
    data = jdfl.problems.example1(m=8, n=20, s=3)
    for name, kind in REGISTRY.items():
        words = " ".join(examples.command(name)).split()
        assert words[:2] == ["jdfl", "run"]
        config = parse("run", words[2:])[1]["config"]
        algorithm, problem, network, stop = build(config)
        written = examples.example(name).algorithm(kind.__name__)
        assert repr(algorithm) == repr(eval(written, {"jdfl": jdfl}))
        chex.assert_trees_all_equal(network, eval(f"jdfl.network.{examples.example(name).network}", {"jdfl": jdfl}))
        chex.assert_trees_all_equal(problem, data)
        assert (config.seed, config.steps, stop) == (0, examples.ROUNDS, None)


class _Page(html.parser.HTMLParser):
    """Ids, links and loaded addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.update(value for key in ("id", "name") if (value := given.get(key)))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.loaded.append(given["href"])
        self.loaded += [given["src"]] if given.get("src") else []


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "WARNING" not in made.stderr
    return folder


@pytest.fixture(scope="module")
def parsed(site) -> dict[Path, _Page]:
    found = {}
    for file in site.rglob("*.html"):
        found[file] = _Page()
        found[file].feed(file.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_pages_of_the_navigation_are_there(site, parsed):
    assert {site / "algorithms" / name / "index.html" for name in REGISTRY} <= set(parsed)
    linked = {
        (file.parent / unquote(urlsplit(link).path)).resolve() / "index.html"
        for file, page in parsed.items()
        for link in page.links
        if file.name != "404.html" and not urlsplit(link).scheme and urlsplit(link).path.endswith("/")
    }
    assert linked - {file.resolve() for file in parsed} == set()
    assert len(json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]) > 500


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site, parsed):
    outside = {address for page in parsed.values() for address in page.loaded if urlsplit(address).netloc}
    assert outside == set()
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text(encoding="utf-8").replace("'", "").replace('"', "")


@pytest.mark.slow
def test_links_and_anchors_lead_somewhere(site, parsed):
    broken = defaultdict(list)
    for file, page in parsed.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if urlsplit(link).scheme or file.name == "404.html":
                continue
            target = (file.parent / unquote(address)).resolve() if address else file
            target = target / "index.html" if target.is_dir() else target
            other = parsed.get(target)
            if not target.exists() or (anchor and other and unquote(anchor) not in other.ids):
                broken[str(file.relative_to(site))].append(link)
    assert dict(broken) == {}


@pytest.mark.slow
def test_all_that_is_public_is_on_some_page(parsed):
    ids = {one for page in parsed.values() for one in page.ids if one.startswith("jdfl.")}
    shown = {id(_object(one)) for one in ids}
    modules = (jdfl, jdfl.models, jdfl.network, jdfl.privacy, jdfl.problems)
    public = {f"{one.__name__}.{name}": getattr(one, name) for one in modules for name in one.__all__}
    wanting = [name for name, value in public.items() if not inspect.ismodule(value) and id(value) not in shown]
    assert wanting == []


def _object(path: str) -> object:
    """What a dotted path names; None where it is nothing at run time, such as a field."""
    try:
        return pydoc.locate(path)
    except pydoc.ErrorDuringImport:
        return None
