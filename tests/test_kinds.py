"""Kinds are derived from the library: nothing is left out, all is documented, bounded, and comes back from YAML."""

import dataclasses
import itertools
import sys
import textwrap
from pathlib import Path
from typing import Any, Literal

import jax
import pytest
from numpy.typing import ArrayLike
from typing_extensions import TypeAliasType

import jdfl
from jdfl import config
from jdfl.base.arguments import marks, options_of
from jdfl.base.settings import Bound, documentation
from jdfl.cli import load_schema, main
from jdfl.cli import runs as run_command
from jdfl.config import RunConfig, families, from_yaml
from jdfl.config.kinds import Kind, _arguments, _installed, shown
from tests.refused import refused

FAMILIES = {
    "algorithm": config.ALGORITHMS,
    "network": config.NETWORKS,
    "problem": config.PROBLEMS,
    "stop": config.STOPS,
    "algorithm.codec": families.CODECS,
    "algorithm.mechanism": families.MECHANISMS,
    "algorithm.updates": families.UPDATES,
    "network.compute": families.TIMES,
}
KINDS = [(place, kind) for place, family in FAMILIES.items() for kind in family.sources]
PYTHON_ONLY = {("ceps", "period"), ("one-bit", "matrix")}  # arrays


def test_annotations_may_have_names_and_words_of_several_types():
    """As NumPy's `ArrayLike` has from 2.5."""
    assert options_of(TypeAliasType("some", ArrayLike) | None) == (*options_of(ArrayLike), type(None))
    assert options_of(Literal["a", "b"] | Literal["c"] | None) == (Literal["a", "b", "c"], type(None))


def derived(place: str, kind: str) -> type[Kind]:
    return FAMILIES[place].kinds[kind]


def fields_of(source: Any) -> dict[str, Any]:
    """The annotations of the fields of a class or the arguments of a function."""
    return {name: annotation for name, (annotation, _) in _arguments(source).items()}


def test_every_setting_of_the_library_is_written_with_a_sentence_or_only_for_python():
    for place, kind in KINDS:
        family, fields = FAMILIES[place], dataclasses.fields(derived(place, kind))
        there = {name: one for name, one in fields_of(family.sources[kind]).items() if name not in family.given}
        flat = any(one is jdfl.Gradients for annotation in there.values() for one in options_of(annotation))
        here = {field.name for field in fields}
        written = {name for name in there if (kind, name) not in PYTHON_ONLY and name != "gradients"}
        assert written <= here, kind
        assert here <= set(there) | ({field.name for field in dataclasses.fields(jdfl.Gradients)} if flat else set())
        assert derived(place, kind).__doc__, kind
        nodes = load_schema()["families"][family.name][kind]["nodes"]
        assert [node["name"] for node in nodes] == [field.name for field in fields]
        assert all("nodes" in node or node["about"].endswith(".") for node in nodes), kind
    for options in (RunConfig, config.Privacy, run_command.Options):
        about = documentation(options)
        assert all(about[field.name].endswith(".") for field in dataclasses.fields(options))


NUMBERS = dict.fromkeys(("lr", "p", "radius", "rate", "budget", "down", "up", "to_bad", "to_good"), 0.5)
NUMBERS |= {"clip": 1.0, "multiplier": 1.0, "value": 1.0, "tolerance": 1.0, "degree": 2, "links": 1, "bound": 2}


def outside(bound: Bound, whole: bool) -> float | None:
    """A number next to the lower end of an interval that is not in it, or above its upper end."""
    low, high = bound.ends
    if low == float("-inf"):
        return float("inf")
    return low - 1 if whole or bound.interval[0] == "[" else low if low > float("-inf") else high + 1


def test_every_bound_is_refused_by_name_in_python():
    for source in (FAMILIES[place].sources[kind] for place, kind in KINDS):
        if not isinstance(source, type):
            continue  # the functions of networks and problems check their numbers themselves
        needed = [one.name for one in dataclasses.fields(source) if one.default is dataclasses.MISSING]
        for name, annotation in fields_of(source).items():
            for bound in (mark for mark in marks(annotation) if isinstance(mark, Bound)):
                value = outside(bound, float not in options_of(annotation))
                with refused(documentation(source)[name], **{name: value}):
                    jdfl.base.arguments.settings(source(**{one: NUMBERS[one] for one in needed} | {name: value}))


def test_settings_are_shown_as_the_kinds_that_build_them():
    for codec in (jdfl.Sparse(share=0.3), jdfl.OneBit(d=7), jdfl.Dense("float16")):
        assert shown(codec, families.CODECS).build() == codec
    for kind, source in jdfl.algorithms.REGISTRY.items():
        assert config.ALGORITHMS(kind).build() == (source() if kind != "ceps" else source(codec=jdfl.OneBit()))


ALGORITHM = '''
    from typing import ClassVar

    import jdfl
    from jdfl.base.settings import Positive

    @jdfl.base.struct.dataclass
    class Lazy(jdfl.DPSGD):
        """Nobody hurries."""

        kind: ClassVar[str] = "lazy"
        pause: Positive = 2.0
        """How long a node rests."""
'''


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with an algorithm, installed; gives what writes its entry points."""
    (tmp_path / "lazy_package.py").write_text(textwrap.dedent(ALGORITHM).lstrip())
    about = tmp_path / "lazy_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lazy-package\nVersion: 1.0\n")

    def write(*lines: str) -> None:
        (about / "entry_points.txt").write_text("\n".join(["[jdfl.algorithms]", *lines, ""]))
        _installed.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield write
    _installed.cache_clear()
    sys.modules.pop("lazy_package", None)


@pytest.mark.usefixtures("undrawn")
def test_an_algorithm_of_another_package_joins(installed, capsys):
    installed("lazy = lazy_package:Lazy")
    assert main(["list"]) == 0
    assert "Nobody hurries." in capsys.readouterr().out
    small = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--quiet"]
    assert main(["run", *small, "--algorithm", "lazy", "--algorithm.pause=3", "--steps", "2", "--stop", "none"]) == 0
    (file,) = Path("runs").glob("*lazy*/config.yaml")
    run = from_yaml(file.read_text())
    assert type(run.algorithm.build()).__name__ == "Lazy"
    assert run.algorithm.build().pause == 3.0
    assert main(["run", *small, "--algorithm", "lazy", "--algorithm.pause=-3"]) == 2
    assert "pause > 0 and finite, got pause = -3.0. pause: How long a node rests." in capsys.readouterr().err


def test_kinds_that_come_twice_or_cannot_be_imported_are_left_out_with_a_warning(installed):
    own = {*jdfl.algorithms.REGISTRY, *jdfl.events.REGISTRY, "ceps-paper"}
    installed("ceps = lazy_package:Lazy")
    with pytest.warns(RuntimeWarning, match="lazy-package adds the kind 'ceps'"):
        assert set(config.ALGORITHMS.sources) == own
    assert config.ALGORITHMS.sources["ceps"] is jdfl.CEPS
    installed("lazy = lazy_package:Missing")
    with pytest.warns(RuntimeWarning, match="lazy_package:Missing"):
        assert set(config.ALGORITHMS.kinds) == own
    with refused("'erdos-renyi'", kind="moon"):
        config.NETWORKS("moon")


def test_classes_with_equal_fields_have_different_structures():
    for one, other in itertools.combinations([kind() for kind in jdfl.algorithms.REGISTRY.values()], 2):
        assert jax.tree.structure(one) != jax.tree.structure(other), (one, other)


def test_leaves_static_fields_and_paths():
    @jdfl.base.struct.dataclass
    class Point:
        x: float
        name: str = jdfl.base.struct.field(pytree_node=False, default="p")

    point = Point(2.0)
    assert jax.tree.leaves(point) == [2.0]
    assert jax.tree.map(lambda x: 2 * x, point) == Point(4.0)
    assert point.replace(name="q") == Point(2.0, "q")  # pyright: ignore
    assert jax.tree.structure(point) != jax.tree.structure(Point(2.0, "q"))
    with pytest.raises(AttributeError):
        point.x = 3.0  # pyright: ignore
