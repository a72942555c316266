"""Configurations: whatever a file or a program says, it is a run's settings or an error that tells what would be."""

from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from jdfl import config
from jdfl.config import RunConfig, from_yaml, to_yaml, yaml_text
from jdfl.engine import start
from jdfl.lab import settings as compare
from tests.fuzz.judge import fuzz, sizes, tried
from tests.fuzz.strategies import TREES, configs, damaged

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length
COMPARED = "steps: 3\nby: bytes\nalgorithms:\n- d-psgd\n- {kind: entry, label: a, algorithm: ceps, grids: ['s=1,2']}\n"
DEEP = "[" * 1_000
NESTED = "".join(f"{'  ' * i}a:\n" for i in range(400))
LAUGHS = "- &a0 [x]\n" + "".join(f"- &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40))
LAUGHING = LAUGHS.replace("- &a0 [x]", "steps:\n- &a0 [x]")
LAUGHING_KEY = "steps: 3\n" + LAUGHS.replace("- &a0 [x]", "stepz:\n- &a0 [x]")
MERGES = "a0: &a0 {x: 1}\n"
MERGES += "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 40))
ODD = [
    *("", "null", "~", "[]", "3", "a", "- 1", "? ", ": 1", "? [1]\n: 2", "? {a: 1}\n: 2", "a: !!bool x", "@", "`", "!"),
    *("steps: !!int x", "steps: !!float x", "steps: !!timestamp x", "steps: 2001-13-45", "steps: 2001-02-03"),
    *("steps: 2001-02-30 12:00:00", "steps: 1:60:99", "steps: 0x", "steps: 0b2", "steps: 09", "steps: 1_000"),
    *("steps: !!binary x", "steps: !!set {a}", "steps: !!python/object:os.system x", "steps: !!python/tuple [1]"),
    *("steps: !!omap [a: 1]", "steps: &a [*a]", "&a [*a]", "steps: *a", "&a {steps: *a}", "%YAML 3.0\n---\nsteps: 1"),
    *("--- 1\n--- 2", "steps: 1\n...\nsteps: 2", "steps: 1\nsteps: 1", "a: {b: 1, b: 2}", "<<: {steps: 3}", "=: 3"),
    *("steps: =", "\ufeffsteps: 3", "steps: \0", "\t", "steps: .inf", "seed: .nan", "steps: " + "9" * 5000),
    *("problem: {noise: " + "9" * 400 + "}", "stop: {kind: objective, value: 1e999}", "x" * 3000 + ": 1"),
    *(DEEP, NESTED, LAUGHS, LAUGHING, LAUGHING_KEY, MERGES, "steps: 0x" + "f" * 4000, "? 0x" + "f" * 4000 + "\n: 1"),
    *("{" * 1000, "- " * 1000, "steps: '" + "x" * 30_000 + "'", "".join(f"k{i}: 1\n" for i in range(5_000))),
    *("metrics: [" + "a, " * 5_000 + "]", "network: {kind: edge-list-file, path: ''}"),
]


def test_odd_yaml():
    for text in ODD:
        tried(lambda text=text: from_yaml(text), text)


SAME = ["=", "<<", "yes", "No", "on", "~", "null", "0100", "0o10", "0b1", "0x1", "1_0", "1:30", "1e5", ".inf", ".5_5"]
SAME += ["2001-01-01", "2001-02-03 01:02:03", "=\n", " =", "", "- =", "!x", "&a", "*a", "\x85", "\ufeff=", "true"]


def test_other_loaders_read_the_same():
    """PyYAML, which reads YAML 1.1, and jdfl, which reads YAML 1.2, find what was written."""
    for text in SAME:
        tree = {"out": text, text: [text]}
        for loader in (yaml.SafeLoader, yaml_text._Loader):
            assert repr(yaml.load(yaml_text.dump(tree), Loader=loader)) == repr(tree)


def replaced(data: Any) -> st.SearchStrategy[Any]:
    """The data with one part of them, at any depth, in exchange for anything."""
    if isinstance(data, dict) and data:
        inside = [replaced(value).map(lambda new, key=key: data | {key: new}) for key, value in data.items()]
        return st.one_of(TREES, *inside, TREES.map(lambda new: data | {"more": new}))
    if isinstance(data, list) and data:
        return TREES | replaced(data[0]).map(lambda new: [new, *data[1:]])
    return TREES


def settings_of(config: Any) -> Any:
    return yaml.safe_load(to_yaml(config))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """YAML of whole configurations in which something is wrong, and of anything."""
    config = draw(configs(RunConfig))
    how = draw(st.sampled_from(["replaced", "damaged", "compared", "tree"]))
    if how == "tree":
        return yaml.safe_dump(draw(TREES))
    if how == "replaced":
        return yaml.safe_dump(draw(replaced(settings_of(config))))
    whole = COMPARED if how == "compared" else to_yaml(config)
    return draw(damaged(whole.encode())).decode("utf-8", errors="surrogateescape")


@sizes(80, 1500)
def test_any_yaml(count):
    def check(text: str) -> None:
        for load in (from_yaml, compare.from_yaml):
            tried(lambda load=load: load(text), text)

    fuzz(count, texts(), check)


@sizes(250, 15_000)
def test_settings_of_any_size_are_built_and_checked_or_refused(count):
    problem, ring = TINY.build(), config.NETWORKS("ring").build(m=4)

    def check(given: Any) -> None:
        if isinstance(given, tuple(config.NETWORKS.kinds.values())):
            tried(lambda: given.build(m=4), given)
        elif isinstance(given, tuple(config.PROBLEMS.kinds.values())):
            tried(given.build, given)
        else:
            tried(lambda: start.check_run(given.build(), problem, ring, 2, 1, None), given)

    families = [config.ALGORITHMS] * 4 + [config.NETWORKS] * 4 + [config.PROBLEMS] * (count > 1000)
    kinds = [(family, name) for family in families for name in sorted(family.sources)]
    quick = {"neural": {"model": "mlp"}}
    fuzz(
        count, st.sampled_from(kinds).flatmap(lambda one: configs(one[0].kinds[one[1]], **quick.get(one[1], {}))), check
    )


TINY = config.PROBLEMS("example1", m=4, n=6, s=2, rows=(5, 9))
