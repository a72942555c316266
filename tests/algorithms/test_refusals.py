"""What the methods refuse: settings that contradict each other, and networks on which they would be wrong.

Numbers outside of their bounds are in tests/test_kinds.py, for every setting of the library.
"""

from functools import partial

import numpy as np
import pytest

import jdfl
from jdfl.engine.start import check_settings
from tests.algorithms.play import M, example, network
from tests.algorithms.pushing import uneven
from tests.later import Named
from tests.refused import refused

GAUSSIAN, LAPLACE = jdfl.Gaussian(1.0), jdfl.Laplace(1.0)
NOISY = jdfl.Gradients(clip=1.0, mechanism=LAPLACE)
WHOLE = jdfl.Gradients(clip=1.0, per="batch")
UPDATES = jdfl.Updates(clip=1.0, mechanism=GAUSSIAN)
ONE_BIT, PAIRWISE = jdfl.OneBit(d=120), jdfl.OneBit(d=120, side=True)
SCALED = jdfl.RandomK(k=2, scaled=True)
VECTOR = np.full(2, 0.5)


def sgp(**fields):
    return jdfl.SGP(dpps=jdfl.DPPS(**fields))


def of(**fields):
    return jdfl.DPSGD(gradients=jdfl.Gradients(**fields))


dpdo = partial(jdfl.DPDO, c=0.1, q=0.9, p=0.95, epsilon=30.0, gradients=WHOLE)
cpgt = partial(jdfl.CPGT, noise_x=0.02, noise_y=0.1, gradients=WHOLE)
SETTINGS = [
    (jdfl.DPSGD(lr=2**31), "lr = 2147483648", "float"),
    (jdfl.DPSGD(optimizer=0.1), "optimizer = 0.1", "optax.adam"),
    (jdfl.DPSGD(optimizer=lambda lr: lr), "optimizer(0.1)", "optax.adam"),
    (jdfl.DPSGD(optimizer=lambda lr: lr.none), "optimizer(0.1)", "AttributeError"),
    (jdfl.DPSGD(codec=None), "codec = None"),
    (jdfl.DPSGD(codec=PAIRWISE), "D-PSGD", "codec = OneBit", "side=False"),
    (jdfl.CHOCO(codec=ONE_BIT), "CHOCO-SGD", "codec = OneBit"),
    (jdfl.CHOCO(codec=SCALED), "CHOCO-SGD", "codec = RandomK"),
    (jdfl.NetworkNewton(gradients=jdfl.Gradients(clip=1.0)), "Network Newton", "clip = 1.0"),
    (jdfl.PrivSGPVR(gradients=jdfl.Gradients(batch=1, sampling="poisson")), "PrivSGP-VR", "replacement"),
    (jdfl.LTADMMVR(batch=99), "batch = 99"),
    (jdfl.GTSAGA(batch=99), "batch = 99"),
    (jdfl.GTSARAH(gradients=NOISY), "mechanism = Laplace"),
    (jdfl.BEER(codec=jdfl.QSGD(levels=1)), "BEER", "codec = QSGD"),
    (jdfl.ECD(codec=jdfl.Sparse(s=3)), "ECD-PSGD", "codec = Sparse"),
    (jdfl.DFedAvgM(quantised="yes"), "quantised = 'yes'"),
    (jdfl.DFedAvgM(codec=ONE_BIT, quantised=True), "DFedAvgM", "codec = OneBit"),
    (jdfl.DOADP(codec=jdfl.Sparse(share=1.5)), "codec.share = 1.5"),
    (jdfl.DPDDA(p=np.full(M, 0.5)), "p", "shape"),
    (jdfl.CEPS(s=4, sigma=1.0, mechanism=GAUSSIAN, sensitivity=np.full(M + 1, 0.1)), "sensitivity", "shape"),
    (jdfl.CEPS(s=4, sigma=1.0, codec=jdfl.OneBit(d=(40,) * (M + 1))), "d", "shape"),
    (dpdo(p=1.0), "q = 0.9", "p = 1.0"),
    (dpdo(gradients=jdfl.Gradients()), "epsilon = 30.0", "clip = None"),
    (dpdo(gradients=NOISY), "DPDO", "mechanism = Laplace"),
    (cpgt(noise_x=None), "noise_x = None", "noise_y = 0.1"),
    (cpgt(gradients=NOISY), "CPGT", "noise_x"),
    (jdfl.DECOR(gradients=NOISY), "Gaussian"),
    (jdfl.DECOR(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.ExactGaussian(1.0))), "Gaussian"),
    (jdfl.DECOR(gradients=jdfl.Gradients(clip=1.0, mechanism=GAUSSIAN), colluding=M), f"colluding = {M}"),
    (jdfl.MAFALDA(gradients=jdfl.Gradients(clip=1.0, mechanism=GAUSSIAN, batch=1, sampling="epochs")), "epochs"),
    (jdfl.MAFALDA(gradients=jdfl.Gradients(clip=1.0, mechanism=LAPLACE, batch=1, sampling="in order")), "Gaussian"),
    (sgp(b=VECTOR), "b", "shape"),
    (jdfl.SGP(milestones=(0,)), "milestones[0] = 0"),
    (jdfl.SGP(gradients=NOISY), "SGP", "mechanism", "dpps=DPPS(b=...)"),
    (jdfl.LocalOnly(train="local"), "train = 'local'"),
    (of(mechanism=GAUSSIAN), "clip = None", "sensitivity = None"),
    (of(mechanism=GAUSSIAN, clip=1.0, sensitivity=1.0), "clip = 1.0", "sensitivity = 1.0"),
    (of(sensitivity=1.0), "mechanism", "sensitivity = 1.0"),
    (of(sampling="poisson"), "batch = None", "sampling = 'poisson'"),
    (of(sampling="subset", batch=10_000), "batch = 10000"),
    (of(sampling="epochs", batch=15), "batch = 15"),
    (jdfl.DPSGD(updates=0.5), "updates = 0.5"),
    (jdfl.DPSGD(updates=jdfl.Updates(clip=None)), "clip = None"),
    (jdfl.DPSGD(updates=UPDATES, gradients=NOISY), "Laplace", "Gaussian"),
    (jdfl.FedAvg(updates=UPDATES.replace(mechanism=LAPLACE, trust="central")), "Laplace", "central"),
    (jdfl.FedAvg(updates=UPDATES.replace(trust="central"), weighting="examples"), "weighting = 'examples'"),
    (jdfl.FedAvg(updates=UPDATES.replace(trust="central"), codec=jdfl.Sign()), "codec = Sign()", "trust"),
]


@pytest.mark.filterwarnings("ignore:With d = ")
@pytest.mark.parametrize(
    ("algorithm", "named"), [(one, named) for one, *named in SETTINGS], ids=lambda one: getattr(one, "title", str(one))
)
def test_settings_that_cannot_be_are_refused(algorithm, named):
    net = uneven() if algorithm.kind in ("sgp", "directed-ceps") else network()
    with refused(*named):
        check_settings(algorithm, example(np.float32), net)


def turned():
    """Symmetric in its links, doubly stochastic, but not symmetric in its weights."""
    return jdfl.network.from_matrix(
        0.5 * np.eye(M) + 0.3 * np.roll(np.eye(M), 1, axis=1) + 0.2 * np.roll(np.eye(M), -1, axis=1)
    )


NETWORKS = Named(
    {
        "fixed": lambda: jdfl.network.random_links(network(), 0.5),
        "undirected": lambda: jdfl.network.k_in(M, 2, seed=1),
        "doubly stochastic": lambda: jdfl.network.from_edges([(i, 0) for i in range(1, M)], M, weights="uniform"),
        "symmetric": turned,
        "column-stochastic": lambda: jdfl.network.star(M, weights="uniform"),
        "strongly connected": lambda: jdfl.network.from_edges(
            [(0, 1), (1, 0)], M, directed=True, weights="out-degree", connected=False
        ),
    }
)
COPIES = ("fixed", "undirected", "doubly stochastic", "symmetric")
NEEDS = [
    *((made, COPIES) for made in (jdfl.CHOCO(), jdfl.DCD(), jdfl.DFedAvgM(quantised=True), jdfl.DOADP(), jdfl.CPGT())),
    *((made, COPIES) for made in (jdfl.EXTRA(lr=0.01), jdfl.NIDS(lr=0.01), jdfl.ExactDiffusion(lr=0.01))),
    *((made, ("doubly stochastic",)) for made in (jdfl.DSGT(), jdfl.MATCHA(), jdfl.DPDDA(), jdfl.DPDO(), jdfl.PEDFL())),
    *(
        (made, ("column-stochastic", "strongly connected"))
        for made in (jdfl.SGP(), jdfl.PartPSP(), jdfl.AverageConsensus())
    ),
    (jdfl.DirectedCEPS(s=4), ("fixed", "column-stochastic", "strongly connected")),
    (jdfl.DECOR(gradients=NOISY.replace(mechanism=GAUSSIAN)), ("fixed", "undirected")),
]


@pytest.mark.filterwarnings("ignore:With d = ")
@pytest.mark.parametrize(("algorithm", "needs"), NEEDS, ids=lambda one: getattr(one, "title", ""))
def test_networks_on_which_a_method_would_be_wrong_are_refused(algorithm, needs):
    problem = example(np.float32)
    for why in needs:
        with refused(why):
            check_settings(algorithm, problem, NETWORKS[why])
    if needs == ("doubly stochastic",):
        check_settings(algorithm, problem, NETWORKS["symmetric"])
    if why == "strongly connected":
        check_settings(algorithm, problem, uneven())


def test_plain_dfedavgm_takes_any_network():
    for net in ("fixed", "undirected"):
        check_settings(jdfl.DFedAvgM(), example(np.float32), NETWORKS[net])
