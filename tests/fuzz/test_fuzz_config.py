"""Configurations: whatever a file or a program says, it is a run's settings or an error that tells what would be."""

from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from jdfl import config
from jdfl.config import from_yaml, yaml_text
from jdfl.engine import start
from jdfl.lab import settings as compare
from tests.fuzz.judge import fuzz, sizes, tried
from tests.fuzz.strategies import ODD, SAME, configs
from tests.robustness import inputs

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length


def test_odd_yaml():
    for text in ODD:
        tried(lambda text=text: from_yaml(text), text)


def test_other_loaders_read_the_same():
    """PyYAML, which reads YAML 1.1, and jdfl, which reads YAML 1.2, find what was written."""
    for text in SAME:
        tree = {"out": text, text: [text]}
        for loader in (yaml.SafeLoader, yaml_text._Loader):
            assert repr(yaml.load(yaml_text.dump(tree), Loader=loader)) == repr(tree)


@sizes(40, 1500)
def test_any_yaml(count):
    for number in range(count):
        text = inputs.file(inputs.COMMANDS[number % 3], Random(number)).decode("utf-8", "surrogateescape")
        for load in (from_yaml, lambda one: from_yaml(one, compare.CompareConfig)):
            tried(lambda load=load, text=text: load(text), text)


@sizes(150, 15_000)
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
