"""The experiments on push-sum and on distances between messages: what they count, on digits."""

import numpy as np
import pytest

import jdfl
from experiments import dpps_consensus, partpsp_common, partpsp_figure2, partpsp_figure3, partpsp_figure4
from experiments.common import Options


@pytest.fixture
def digits(monkeypatch):
    """No files are looked for."""
    monkeypatch.setattr(partpsp_common, "images", lambda *_: "digits")
    return partpsp_common.mlp_task()


@pytest.fixture(scope="module")
def few():
    """Ten vectors of 20 entries."""
    return jdfl.problems.averaging(dpps_consensus.vectors(10, 20, 0))


def test_consensus_is_reached_where_out_degrees_differ(few):
    net = dpps_consensus.networks(10)["random directed"]
    error, mass = dpps_consensus.exact(few, net, 60)
    assert error[0] > 0.1
    assert error[-1] < dpps_consensus.NEAR
    assert mass.max() > 1.5 * mass.min()
    assert mass.sum() == pytest.approx(10, rel=1e-5)


def test_noise_of_consensus_is_certified_and_costs_what_its_rates_say(few):
    net = dpps_consensus.networks(10)["random directed"]
    weak, weaker = (dpps_consensus.noisy(few, net, b, 0) for b in (1.0, 3.0))
    for b, one in ((1.0, weak), (3.0, weaker)):
        assert (one.seen[:, 0] <= one.seen[:, 1]).all()
        each = b / dpps_consensus.NOISE_RATE  # of a round
        assert one.epsilon[0] == pytest.approx(each, rel=1e-3)
        assert 0.9 * each * dpps_consensus.NOISY < one.epsilon[1] <= each * dpps_consensus.NOISY
    assert 0 < weaker.error[-1] < weak.error[-1]
    rows = {one.column: one.mean for one in dpps_consensus.lines("case", [weak, weaker])}
    assert rows["rounds with S too small"] == 0
    assert rows["error, least"] <= rows["error, last"]


def test_consensus_under_noise_without_end_is_refused(few):
    with pytest.raises(ValueError, match="drives the nodes apart"):
        dpps_consensus.noisy(few, dpps_consensus.networks(10)["2-Out"], 0.01, 0)


@pytest.mark.slow
def test_distances_of_a_clipped_run_are_certified(digits, tmp_path):
    net, part = partpsp_common.networks(every=partpsp_figure2.EVERY)["2-Out"], "1 layer"
    sources = ("Eq. 22, clipped", "certified")
    cells = {(part, "2-Out", source): [partpsp_figure2.seen(digits, part, net, source, 0)] for source in sources}
    (certified,), (estimated,) = cells[part, "2-Out", "certified"], cells[part, "2-Out", "Eq. 22, clipped"]
    first = 2 * partpsp_common.RATE * partpsp_figure2.SMALL_CLIP
    assert first < certified.distances[0, 1] < (1 + 1e-4) * first  # nodes begin alike, but for rounding
    assert certified.violations == 0
    assert certified.ratio > 1
    assert certified.distances[0, 0] == pytest.approx(estimated.distances[0, 0], rel=1e-5)  # before there is noise
    assert estimated.distances[0, 1] != pytest.approx(first, rel=1e-3)
    assert 0 < certified.clipped < 1
    rows = {(one.case, one.column): one for one in partpsp_figure2.rows_of(cells)}
    assert rows["1 layer, 2-Out, certified", "S / real, median"].paper == 1.7
    assert rows["1 layer, 2-Out, certified", "rounds with S too small"].mean == 0
    said = partpsp_figure2.claims(cells)
    assert said[0].startswith("true ")
    below = certified._replace(distances=certified.distances * np.array([1.0, 0.01]))
    assert partpsp_figure2.claims(cells | {(part, "2-Out", "certified"): [below]})[0].startswith("FALSE")


@pytest.mark.slow
def test_distances_fall_with_the_degree_and_hardly_with_the_nodes(digits):
    nets = partpsp_common.networks()
    settings = (digits, "partpsp-1")
    cells = {
        ("1 layer", d): partpsp_figure3.measured(*settings, nets[d], "eq22", 1, whole=True) for d in ("2-Out", "8-Out")
    }
    assert cells["1 layer", "8-Out"].ras[0] < 0.5 * cells["1 layer", "2-Out"].ras[0]
    assert all(found.overflows == 0 for found in cells.values())
    rows = {(one.case, one.column): one for one in partpsp_figure3.rows_of(cells, compared=True)}
    assert rows["1 layer, 8-Out", "RAS / RAS of 2-Out, all rounds"].paper == 0.29
    assert cells["1 layer", "2-Out"].whole < cells["1 layer", "2-Out"].ras  # rates fall
    assert rows["1 layer, 2-Out", "RAS / RAS of 2-Out"].mean == 1
    said = partpsp_figure3.claims(cells, compared=False)
    assert [line.split()[0] for line in said] == ["true", "true"]
    few, more = (partpsp_figure4.mean_distances(m, 2, 0, quick=True) for m in (10, 20))
    for which in (partpsp_figure4.WHOLE, partpsp_figure4.BEGUN):
        assert 1 / partpsp_figure4.MOST < few[which] / more[which] < partpsp_figure4.MOST
    assert few[partpsp_figure4.BEGUN] > few[partpsp_figure4.WHOLE] > few[partpsp_figure4.ALIKE]


def test_what_figure3_says_depends_on_its_numbers():
    found = partpsp_figure3.Found([8.0], [8.0], [90.0], [0.0], 0)
    ratios = {"2-Out": 1.0} | partpsp_figure3.PAPER
    cells = {("1 layer", name): found._replace(ras=[8 * ratio], whole=[8 * ratio]) for name, ratio in ratios.items()}
    larger = {("2 layers", name): found._replace(ras=[20 * ratio], whole=[]) for name, ratio in ratios.items()}
    said = partpsp_figure3.claims(cells | larger, compared=True)
    assert [line.split()[0] for line in said] == ["true", "true", "true"]
    cells["1 layer", "8-Out"] = found._replace(ras=[8 * 0.5], whole=[8 * 0.5])  # above 6-Out's
    said = partpsp_figure3.claims(cells | larger, compared=True)
    assert [line.split()[0] for line in said] == ["true", "FALSE", "FALSE"]
    said = partpsp_figure3.claims(cells | {("2 layers", name): found for name in ratios}, compared=False)
    assert said[0].startswith("FALSE RAS falls as less is shared: not for 2 layers on 2-Out")
    over = partpsp_figure3.rows_of({("1 layer", "2-Out"): found._replace(overflows=1)}, compared=False)
    assert [one.mean for one in over if one.column == "runs that overflow"] == [1]


def test_spread_over_sizes_leaves_out_what_is_near(tmp_path):
    cells = {(2, 10): [4.0, 6.0], (2, 20): [5.5], (8, 10): [1.0], (8, 20): [3.0]}
    assert partpsp_figure4.spread(cells, 2, far=True) == pytest.approx(1.1)
    assert partpsp_figure4.spread(cells, 8, far=False) == pytest.approx(3)
    assert partpsp_figure4.spread(cells, 8, far=True) == 1  # neither 10 nor 20 is far above 8
    assert partpsp_figure4.claim(cells).startswith("true ")
    assert partpsp_figure4.claim(cells | {(2, 20): [7.0]}, partpsp_figure4.ALIKE).startswith("FALSE RAS, after a mean")
    partpsp_figure4.draw(cells, Options(True, 1, tmp_path), "title")
    assert (tmp_path / "partpsp_figure4.png").stat().st_size > 10_000
