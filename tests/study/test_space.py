"""What a study tries is what was written, and what cannot be is refused with a remedy."""

import math
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from jdfl.config import ALGORITHMS, NETWORKS, RunConfig
from jdfl.lab.points import LANES, Point, config_at, groups, points
from tests.refused import all_refused, refused


def test_a_grid_has_all_combinations_in_order_and_fewer_random_points_are_the_first_of_more():
    assert points(["a=1,2.5", "b=x,none"], None, 0) == [{"a": a, "b": b} for a in (1, 2.5) for b in ("x", None)]
    lines = ["lr=log:1e-4:1", "d=int:3:5", "p=uniform:-1:2", "kind=a,b"]
    few, many = points(lines, 5, 3), points(lines, 400, 3)
    assert many[:5] == few
    assert many != points(lines, 400, 4)
    assert {one["d"] for one in many} == {3, 4, 5}
    assert {one["kind"] for one in many} == {"a", "b"}
    assert all(1e-4 <= one["lr"] <= 1 and -1 <= one["p"] <= 2 for one in many)
    below = sum(one["lr"] < 1e-2 for one in many) / len(many)
    assert abs(below - 0.5) < 4 * math.sqrt(0.25 / 400)  # half of the logarithms


def test_what_makes_no_sense_is_refused():
    many = [f"f{i}={','.join(map(str, range(100)))}" for i in range(3)]
    all_refused(
        *(
            (lambda lines=lines, random=random: points(lines, random, 0), words)
            for lines, random, words in (
                (["lr"], None, "algorithm.lr=0.05"),
                (["lr=1,1"], None, "lr"),
                (["lr=log:1e-3:1"], None, "random"),
                (["lr=log:0:1"], 3, "LOW > 0"),
                (["lr=log:a:1"], 3, "log:a:1"),
                (["lr=1", "lr=2"], None, "lr twice"),
                (["lr=uniform:2:1"], 3, "LOW < HIGH"),
                (["lr=uniform:0:.nan"], 3, "finite"),
                (["d=int:1.5:3"], 3, "whole numbers"),
                (["lr=1"], 0, "random = 0"),
                (["lr=[1"], None, "single value"),
                (many, None, "1000000"),
            )
        ),
        *(
            (lambda point=point: config_at(RunConfig(), point), words)
            for point, words in (
                ({"algorithm.nothing": 1}, "algorithm.nothing"),
                ({"steps.more": 1}, "steps"),
                ({"algorithm": "nothing"}, "nothing"),
                ({"problem.m": 1.5}, "problem.m"),
            )
        ),
    )


def test_values_go_where_their_names_say():
    base, sgd = RunConfig(algorithm=ALGORITHMS("ceps", s=7)), ALGORITHMS("d-psgd", lr=0.5)
    point = {"problem.m": 8, "algorithm.codec": "dense", "network": "complete", "steps": 3, "stop": None}
    made = config_at(base, point)
    assert (made.problem.m, made.algorithm.codec.kind, made.algorithm.s) == (8, "dense", 7)
    assert (made.network, made.steps, made.stop) == (NETWORKS("complete"), 3, None)
    assert config_at(base, {"algorithm": "ceps"}) == base  # the same kind keeps its settings
    assert config_at(base, {"algorithm.lr": 0.5, "algorithm": "d-psgd"}).algorithm == sgd  # kinds come first

    base = RunConfig(algorithm=ALGORITHMS("d-psgd", lr=0.3))  # no kind loses a setting in silence
    with refused("algorithm.lr", "0.3", "0.1"):
        config_at(base, {"algorithm": "dsgt"})
    assert config_at(base, {"algorithm": "dsgt", "algorithm.lr": 0.3}).algorithm == ALGORITHMS("dsgt", lr=0.3)
    without_mu = config_at(RunConfig(algorithm=ALGORITHMS("ceps", mu=0.3)), {"algorithm": "dsgt"})
    assert without_mu.algorithm == ALGORITHMS("dsgt")


def grouped(values, seeds=(0,)):
    base = RunConfig(algorithm=ALGORITHMS("d-psgd"), stop=None)
    made = [Point(i, one, config_at(base, one)) for i, one in enumerate(values)]
    return [[point.index for point in group.points] for group in groups(made, seeds)], groups(made, seeds)


def test_no_group_has_more_runs_than_are_worth_losing():
    values = [{"algorithm.lr": 0.001 * (i + 1)} for i in range(2 * (LANES // 3) + 1)]
    found, _ = grouped(values, seeds=range(3))
    assert max(map(len, found)) == LANES // 3
    assert sorted(chain.from_iterable(found)) == list(range(len(values)))
    assert grouped(values[:2], seeds=range(1000))[0] == [[0], [1]]
    found, made = grouped(points(["algorithm.lr=0.1,0.2", "diverged_above=none,10.0"], None, 0))
    assert found == [[0, 2], [1], [3]]  # limits go alone
    assert [group.side_by_side for group in made] == [True, False, False]


@settings(max_examples=12)
@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2]), st.sampled_from(["d-psgd", "dsgt"]), st.sampled_from([4, 6]))))
def test_every_point_is_in_one_group_with_those_that_differ_in_floats_alone(drawn):
    values = [{"algorithm": kind, "algorithm.lr": lr, "problem.m": m} for lr, kind, m in drawn]
    found, made = grouped(values)
    assert sorted(chain.from_iterable(found)) == list(range(len(values)))
    kinds = [{(point.config.algorithm.kind, point.config.problem.m) for point in group.points} for group in made]
    assert all(len(kind) == 1 for kind in kinds)
    assert len(kinds) == len(set.union(set(), *kinds)) == len({group.name for group in made})
