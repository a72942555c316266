"""The experiments on push-sum and on distances between messages: what they count, on digits."""

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
