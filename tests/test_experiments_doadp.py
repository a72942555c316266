"""The experiments of the DO-ADP paper: noise, noiseless laws, verdicts on small data."""

import json

import numpy as np
import pytest

from benchmarks import doadp as speed
from experiments import doadp_common as common
from experiments import doadp_equal_noise, doadp_figure3, theorem1_counterexample
from jdfl.algorithms.program import planned

pytestmark = pytest.mark.optimized  # an attack of minutes, which takes more than twice as long without


@pytest.fixture(scope="module")
def small():
    """Ten examples of 40 features at every node."""
    return common.task(10, 40)


def test_the_task_is_the_papers_with_fewer_records(small):
    assert (small.problem.m, small.records, small.steps) == (20, 10, 60)
    assert float(small.problem.penalty) == pytest.approx(1 / 10)
    assert small.zero == pytest.approx(np.log(2), rel=1e-6)
    assert small.best < small.zero
    lengths = np.linalg.norm(np.asarray(small.problem.data[0]), axis=2)
    np.testing.assert_allclose(lengths, common.LONGEST, rtol=1e-5)
    W = common.network()
    assert int(np.asarray(W.graph.in_degree).max()) == 6
    np.testing.assert_allclose(W.graph.self_weight, 1 / 7, rtol=1e-5)


@pytest.mark.slow
def test_published_noise_falls_from_column_to_column_and_sound_noise_does_not(small):
    paper, sound = (
        [common.calibrated(small, *column, 0.01, how)[0] for column in common.COLUMNS] for how in ("paper", "sound")
    )
    expected = [p * np.sqrt(share) for p, share in common.COLUMNS]
    np.testing.assert_allclose(np.array(paper) / paper[0], expected, rtol=1e-6)
    assert sound[0] == sound[2]
    assert sound[1] == sound[3] < sound[0]
    assert min(np.array(paper) / sound) > 2


@pytest.mark.slow
def test_equal_noise_leaves_the_average_as_it_is(small):
    rows, curves, largest = doadp_equal_noise.collect(small, 1)
    assert largest < doadp_equal_noise.GOAL
    sent = [float(runs[0]["bytes"].iloc[-1]) for runs in curves.values()]
    assert sent[0] > 2.5 * sent[1] > 6 * sent[2]
    apart = [float(runs[0]["consensus_error"].iloc[-1]) for runs in curves.values()]
    assert apart[2] > 1.01 * apart[0]  # what is sent matters to the nodes, not to their mean
    assert len(rows) == 4 * len(doadp_equal_noise.SHARES)


def test_orders_and_verdicts_read_off_the_numbers():
    values = dict(zip(common.COLUMNS, ([3.0], [2.0], [1.0, 1.0], [0.5])))
    assert common.order(values).startswith("3, 2, 1, 0.5 (falls")
    assert "DOES NOT FALL" in common.order(values | {common.COLUMNS[1]: [3.0]})


@pytest.mark.slow
def test_every_curve_says_what_its_epsilon_protects(small):
    found = {entry.name: entry for entry in doadp_figure3.entries(small)}
    for name in ("DPDO", "CPGT"):
        told = planned(found[name].algorithm, small.problem, common.network(), small.steps).privacy(small.problem)
        assert (told.unit, told.adjacency) == ("node", "replace-one")
        assert "a node's data replaced, delta = 0" in found[name].label
    for name in ("DP-DDA, sound", "DO-ADP, sound"):
        told = found[name].algorithm.privacy(small.problem)
        assert (told.unit, told.adjacency) == ("record", "replace-one")
        assert found[name].panels == (1,)
        assert "one record replaced, delta = 1e-06" in found[name].label
    assert all("NO GUARANTEE" in entry.label for entry in found.values() if "published" in entry.name)


@pytest.mark.slow
def test_the_reduced_sensitivity_is_refuted():
    rows = {(one.case, one.column): one.mean for one in theorem1_counterexample.alone(40, 1000, 1)}
    for share in theorem1_counterexample.SHARES:
        case = f"k/d = {share:g}"
        assert rows[case, "mu by the paper's sensitivity"] == pytest.approx(3 * np.sqrt(share))
        assert rows[case, "mu shown"] < 3.3
        assert theorem1_counterexample.share_refuted(rows, case) == (share < 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_theorem1_is_refuted_and_sound_noise_is_not(tmp_path):
    rows = theorem1_counterexample.main(["--out", str(tmp_path)])
    cell = {(one.case, one.column): one.mean for one in rows}
    paper, sound = theorem1_counterexample.NOISES.values()
    assert cell[paper, "delta shown"] > cell[paper, "published delta"]
    assert cell[paper, "published epsilon"] == pytest.approx(1, rel=1e-5)
    assert not cell[paper, "accounted refuted"]
    assert not cell[sound, "accounted refuted"]
    assert cell[sound, "accounted epsilon"] < 1.1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_small_benchmark_writes_its_rows(tmp_path):
    rows = speed.main(["--quick", "--out", str(tmp_path)])
    assert len(json.loads((tmp_path / "doadp.json").read_text())["rows"]) == len(rows)
