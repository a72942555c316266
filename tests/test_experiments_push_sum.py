"""The experiments on push-sum and on distances between messages: what they count, on digits."""

from dataclasses import replace

import numpy as np
import pytest

import jdfl
from experiments import (
    dpps_consensus,
    partpsp_common,
)


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


@pytest.mark.slow
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


# ---------------------------------------------------------------- the published scale


def test_images_are_dealt_as_by_pytorchs_sampler():
    """The beginning is known: torch.randperm(10) after torch.manual_seed(0)."""
    assert partpsp_common.dealt(10).tolist() == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    assert sorted(partpsp_common.dealt(500)) == list(range(500))


def test_the_published_task_deals_its_images_and_leaves_pixels_as_they_are(digits, monkeypatch):
    draw, labels = np.random.default_rng(0), np.arange(40, dtype=np.int32) % 10
    images = draw.uniform(size=(40, 8, 8)).astype(np.float32)
    data = jdfl.problems.Dataset("digits", images, labels, images[:10], labels[:10])
    monkeypatch.setattr(partpsp_common, "unscaled", lambda _: data)
    task = partpsp_common.published_task("residual-10", short=True)
    first, other = (partpsp_common.problem_of(task, "partpsp-1", m=4, seed=100 + seed) for seed in (0, 1))
    for i in range(4):
        np.testing.assert_array_equal(first.data[0][i, ..., 0], images[partpsp_common.dealt(40)[i::4]])
    np.testing.assert_array_equal(first.data[0], other.data[0])  # the split does not depend on the seed
    assert (np.asarray(first.start) != np.asarray(other.start)).any()
    assert first.mean is None
    assert partpsp_common.rounds_of(task, first)[1] == ()
    assert partpsp_common.rounds_of(partpsp_common.published_task(), first)[1] == partpsp_common.EARLIER
    assert partpsp_common.problem_of(digits, "partpsp-1").mean == (0.5,)
    few = replace(task, examples=20)
    found = partpsp_common.problem_of(few, "partpsp-1", m=4)
    assert np.asarray(found.sizes).sum() == 20
