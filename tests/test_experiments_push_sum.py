"""The experiments on push-sum and on distances between messages: what they count, on digits."""

import numpy as np
import pytest

import jdfl
from experiments import dpps_consensus, partpsp_common


def test_consensus_is_reached_where_out_degrees_differ():
    net = dpps_consensus.networks(10)["random directed"]
    error, mass = dpps_consensus.exact(jdfl.problems.averaging(dpps_consensus.vectors(10, 20, 0)), net, 60)
    assert error[0] > 0.1
    assert error[-1] < dpps_consensus.NEAR
    assert mass.max() > 1.5 * mass.min()
    assert mass.sum() == pytest.approx(10, rel=1e-5)


def test_images_are_dealt_as_by_pytorchs_sampler():
    """The beginning is known: torch.randperm(10) after torch.manual_seed(0)."""
    assert partpsp_common.dealt(10).tolist() == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    assert sorted(partpsp_common.dealt(500)) == list(range(500))


def test_the_published_task_deals_its_images_and_leaves_pixels_as_they_are(monkeypatch):
    draw, labels = np.random.default_rng(0), np.arange(40, dtype=np.int32) % 10
    images = draw.uniform(size=(40, 8, 8)).astype(np.float32)
    data = jdfl.problems.Dataset("digits", images, labels, images[:10], labels[:10])
    monkeypatch.setattr(partpsp_common, "unscaled", lambda _: data)
    monkeypatch.setattr(partpsp_common, "images", lambda *_: "digits")  # no files are looked for
    task = partpsp_common.published_task("residual-10", short=True)
    first, other = (partpsp_common.problem_of(task, "partpsp-1", m=4, seed=100 + seed) for seed in (0, 1))
    for i in range(4):
        np.testing.assert_array_equal(first.data[0][i, ..., 0], images[partpsp_common.dealt(40)[i::4]])
    np.testing.assert_array_equal(first.data[0], other.data[0])  # the split does not depend on the seed
    assert (np.asarray(first.start) != np.asarray(other.start)).any()
    assert first.mean is None
