"""The comparison with decent-bench's own methods: its table, and that differences are seen, without decent-bench."""

import inspect
from dataclasses import replace
from types import SimpleNamespace

import pytest

import jdfl
from benchmarks import common, originals, page, peers
from tests.later import Later
from tests.refused import refused
from tests.test_peers import by_formula

SMALL = Later(originals.small)
BY_NAME = {pair.name: pair for pair in originals.PAIRS}
THEIRS = (
    "ADMM ATC ATC_Tracking ATG AugDGM DGD DLM DiNNO ED EXTRA GT_SAGA GT_SARAH GT_VR KGT LED LT_ADMM LT_ADMM_VR NIDS "
    "ProxSkip SimpleGT WangElia"
)


def formula(pair, work, copied):
    """D-PSGD by its formula, with an error unless messages are copied."""
    return by_formula(replace(work, lr=originals.LR), "combine-then-adapt", originals.ROUNDS) + (0 if copied else 1e-8)


def test_every_method_was_compared_and_timed_and_differs_where_the_table_says_so():
    assert sorted(BY_NAME) == sorted(THEIRS.split()) == sorted(pair.name for pair in originals.PAIRS)
    table = common.read(page.RESULTS / "originals.json").rows
    for name, pair in BY_NAME.items():
        assert bool(pair.why) == (pair.mended is not None or pair.copied)
        rows = [one for one in table if one.case.startswith(f"{name}, ")]
        differences = [one for one in rows if one.unit == "relative"]
        assert [one.met for one in differences] == ([None, True] if pair.why else [True]), name
        assert all(pair.why in one.measure and one.value > 1e-4 for one in differences[:-1]), name
        assert [one.unit for one in rows if one not in differences] == ["ms", "ms", "x"], name


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
def test_the_table_has_the_methods_of_the_package_that_is_installed():
    p2p = pytest.importorskip("decent_bench.algorithms.p2p", exc_type=ImportError)
    classes = {one.__name__ for _, one in inspect.getmembers(p2p, inspect.isclass)}
    assert classes - {"P2PAlgorithm"} == set(BY_NAME)


def test_what_agrees_is_within_the_tolerance_and_a_wrong_pair_is_seen():
    right = replace(BY_NAME["DGD"], copied=True)
    alike = originals.compared(replace(right, why="other"), SMALL(), formula)
    assert [one.met for one in alike] == [None, True]
    (far,) = originals.compared(right, SMALL(), formula)  # 1e-8 apart
    assert (far.met, far.goal) == (False, "<= 1e-09")
    (wrong,) = originals.compared(BY_NAME["ATC"], SMALL(), lambda *given: formula(*given[:2], copied=True))
    assert (wrong.met, wrong.value > 1e-3) == (False, True)


def test_times_are_compared_and_a_method_that_differs_there_is_an_error():
    work = peers.work_of(m=8, q=12, n=5, degree=4)
    problem = jdfl.problems.linear_regression(work.A, work.b)
    done = []

    def parameters():
        return by_formula(replace(work, lr=originals.LR), "combine-then-adapt", done[0])

    theirs = SimpleNamespace(advance=done.append, parameters=parameters)
    rows = originals.timed(BY_NAME["DGD"], work, problem, theirs, 2, 1)
    assert [one.unit for one in rows] == ["ms", "ms", "x"]
    assert (rows[-1].goal, done) == (originals.GOAL, [2] * 5)
    theirs.parameters = lambda: parameters() + 1e-3
    with refused("DGD"):
        originals.timed(BY_NAME["DGD"], work, problem, theirs, 2, 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["NIDS", "DLM", "GT_SARAH"])
def test_the_originals_agree(name):
    module = pytest.importorskip("benchmarks.peer_decent_bench", exc_type=ImportError)
    rows = originals.compared(BY_NAME[name], SMALL(), lambda *given: originals.found_by(module, *given))
    assert rows[-1].met
    assert all(one.value > 1e-3 for one in rows[:-1])
