"""What a study tries is what was written, and what cannot be is refused with a remedy."""

import math
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl.config import ALGORITHMS, NETWORKS, RunConfig
from jdfl.lab.groups import LANES, Point, groups
from jdfl.lab.space import config_at, points


def test_a_grid_has_all_combinations_in_order():
    assert points(["a=1,2.5", "b=x,none,true"], None, 0) == [
        {"a": a, "b": b} for a in (1, 2.5) for b in ("x", None, True)
    ]


def test_fewer_random_points_are_the_first_of_more():
    lines = ["lr=log:1e-4:1", "d=int:3:5", "p=uniform:-1:2", "kind=a,b"]
    few, many = points(lines, 5, 3), points(lines, 400, 3)
    assert many[:5] == few
    assert many != points(lines, 400, 4)
    assert {one["d"] for one in many} == {3, 4, 5}
    assert {one["kind"] for one in many} == {"a", "b"}
    assert all(1e-4 <= one["lr"] <= 1 and -1 <= one["p"] <= 2 for one in many)
    below = sum(one["lr"] < 1e-2 for one in many) / len(many)
    assert abs(below - 0.5) < 4 * math.sqrt(0.25 / 400)  # half of the logarithms


@pytest.mark.parametrize(
    ("lines", "random", "words"),
    [
        (["lr"], None, "For example algorithm.lr=0.05"),
        (["lr="], None, "got 'lr='"),
        (["lr=1,1"], None, "every value of lr once"),
        (["lr=1", "lr=2"], None, "lr twice"),
        (["lr=log:1e-3:1"], None, "random = N"),
        (["lr=log:0:1"], 3, "LOW > 0"),
        (["lr=uniform:1"], 3, "uniform:LOW:HIGH"),
        (["lr=uniform:2:1"], 3, "LOW < HIGH"),
        (["lr=uniform:0:.nan"], 3, "finite ends"),
        (["d=int:1.5:3"], 3, "whole numbers"),
        (["lr=1"], 0, "random = 0"),
        (["lr=[1"], None, "single value"),
        ([f"f{i}={','.join(map(str, range(100)))}" for i in range(3)], None, "at most 100000 points, got 1000000"),
    ],
)
def test_what_makes_no_sense_is_refused(lines, random, words):
    with pytest.raises(ValueError, match=words):
        points(lines, random, 0)


def test_values_go_where_their_names_say():
    base = RunConfig(algorithm=ALGORITHMS("ceps", s=7))
    made = config_at(
        base, {"problem.m": 8, "algorithm.codec": "dense", "network": "complete", "steps": 3, "stop": None}
    )
    assert (made.problem.m, made.algorithm.codec.kind, made.network, made.steps) == (
        8,
        "dense",
        NETWORKS("complete"),
        3,
    )
    assert made.stop is None
    assert made.algorithm.s == 7
    assert config_at(base, {"algorithm": "ceps"}) == base  # the same kind keeps its settings
    assert config_at(base, {"algorithm.lr": 0.5, "algorithm": "d-psgd"}).algorithm == ALGORITHMS(
        "d-psgd", lr=0.5
    )  # kinds come first


def test_another_kind_does_not_lose_a_setting_in_silence():
    """A rate that is given for one method was not that of the others that are tried in its place."""
    base = RunConfig(algorithm=ALGORITHMS("d-psgd", lr=0.3))
    with pytest.raises(ValueError, match=r"algorithm.lr .* 0.3 .* 0.1"):
        config_at(base, {"algorithm": "dsgt"})
    assert config_at(base, {"algorithm": "dsgt", "algorithm.lr": 0.3}).algorithm == ALGORITHMS("dsgt", lr=0.3)
    assert config_at(base, {"algorithm": "d-psgd"}) == base
    assert config_at(RunConfig(algorithm=ALGORITHMS("ceps", mu=0.3)), {"algorithm": "dsgt"}).algorithm == ALGORITHMS(
        "dsgt"
    )  # which has no mu


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"nothing": 1}, "Unknown key nothing"),
        ({"algorithm.nothing": 1}, "Unknown key algorithm.nothing"),
        ({"steps.more": 1}, "steps has no settings"),
        ({"steps": "many"}, "steps"),
        ({"algorithm": "nothing"}, "nothing"),
        ({"problem.m": 1.5}, "problem.m"),
    ],
)
def test_unknown_settings_are_refused_by_name(point, words):
    with pytest.raises(ValueError, match=words):
        config_at(RunConfig(), point)


def grouped(values, base=None, seeds=(0,)):
    base = base or RunConfig(algorithm=ALGORITHMS("d-psgd"), stop=None)
    made = [Point(i, one, config_at(base, one)) for i, one in enumerate(values)]
    return [[point.index for point in group.points] for group in groups(made, seeds)], groups(made, seeds)


def test_points_that_differ_in_floats_alone_go_side_by_side():
    values = points(["algorithm.lr=0.1,0.2,0.3", "problem.m=4,8", "algorithm.batch=none,2"], None, 0)
    found, made = grouped(values)
    assert sorted(map(len, found)) == [3, 3, 3, 3]
    assert all(group.side_by_side for group in made)
    for group in made:
        assert len({(point.config.problem.m, point.config.algorithm.batch) for point in group.points}) == 1
    assert len({group.name for group in made}) == 4


def test_budgets_and_limits_go_alone():
    found, made = grouped(points(["algorithm.lr=0.1,0.2", "diverged_above=none,10.0"], None, 0))
    assert found == [[0, 2], [1], [3]]
    assert [group.side_by_side for group in made] == [True, False, False]


def test_no_group_has_more_runs_than_are_worth_losing():
    values = [{"algorithm.lr": 0.001 * (i + 1)} for i in range(100)]
    found, _ = grouped(values, seeds=range(3))
    assert max(map(len, found)) == LANES // 3
    assert sorted(chain.from_iterable(found)) == list(range(100))
    assert grouped(values[:2], seeds=range(1000))[0] == [[0], [1]]


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2]), st.sampled_from(["d-psgd", "dsgt"]), st.sampled_from([4, 6]))))
def test_every_point_is_in_one_group(drawn):
    values = [{"algorithm": kind, "algorithm.lr": lr, "problem.m": m} for lr, kind, m in drawn]
    found, made = grouped(values)
    assert sorted(chain.from_iterable(found)) == list(range(len(values)))
    for group in made:
        assert len({point.config.algorithm.kind for point in group.points} - {"d-psgd", "dsgt"}) == 0
        assert len({(point.config.algorithm.kind, point.config.problem.m) for point in group.points}) == 1
