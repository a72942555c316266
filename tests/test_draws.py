"""What a seed draws is what it drew: networks, data, samples, noise and links of rounds.

Numbers that change need a new minor version and a line in CHANGELOG.md (docs/stability.md).
"""

import numpy as np

import jdfl
from jdfl import network as nw


def test_networks_are_those_of_their_seeds():
    edges = sorted((int(i), int(j)) for i, j in nw.to_networkx(nw.erdos_renyi(6, 0.4, seed=3)).edges)
    assert edges == [(0, 1), (0, 2), (0, 5), (1, 4), (2, 3), (2, 4), (2, 5), (3, 5)]


def test_a_private_run_is_that_of_its_seed():
    problem = jdfl.problems.example1(m=4, n=12, s=2, rows=(8, 12), seed=5)
    gradients = jdfl.Gradients(batch=3, clip=1.0, mechanism=jdfl.Gaussian(0.5))
    algorithm = jdfl.DPSGD(lr=0.05, gradients=gradients)
    result = jdfl.run(algorithm, problem, nw.erdos_renyi_rounds(4, 0.5), key=7, steps=5)
    assert result.history["messages"].tolist() == [0, 6, 14, 24, 28, 32]
    drawn = [[-0.1277789, -0.0715747, -0.0430620], [-0.1770761, -0.0589854, 0.0566376]]
    np.testing.assert_allclose(result.params[:2, :3], drawn, rtol=1e-4)
