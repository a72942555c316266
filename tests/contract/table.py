"""One row per registered algorithm: how to build it small, and its messages, gradients and releases by hand."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import jdfl
from jdfl.algorithms import ceps
from tests.contract.row import ROUNDS, Row, counted, row
from tests.field import ROWS
from tests.toy import Gossip


def _ceps_consensus(program: Any, problem: Any) -> ceps.State:
    """All nodes at the truth, with what they keep of their neighbours."""
    count = jnp.full((problem.m,), 2.0, problem.dtype)
    every = jnp.broadcast_to(problem.truth, (problem.m, problem.n))
    return ceps.State(every, (program.ready.sigma * count)[:, None] * every, count)


def _ceps_count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, np.ndarray]:
    """Every node asks all its neighbours when its period comes round (rate = 1)."""
    m = len(adjacency)
    sent, communications = np.zeros(m, int), np.zeros(m, int)
    for k in range(1, rounds):
        for i in range(m):
            if k % int(program.ready.period[i]) == 0:
                communications[i] += 1
                sent += adjacency[i] != 0
    noisy = program.algorithm.mechanism is not None
    releases = communications * noisy + noisy * (program.algorithm.noise == "kept")
    return {
        "sent": {"model": sent},
        "communications": communications,
        "grads": communications + 1,
        "releases": releases,
    }


_SIGNS = (40, 44, 48, 40, 44, 41)  # of every node
_SIZES = {f"model of {d + 64} bits": d + 64 for d in sorted(set(_SIGNS))}


def _ceps_sizes_count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """The same, by the sizes of the senders' messages."""
    found = _ceps_count(program, adjacency, rounds)
    sent, signs = found["sent"]["model"], np.array(_SIGNS) + 64
    return found | {"sent": {name: np.where(signs == bits, sent, 0) for name, bits in _SIZES.items()}}


def _ceps(label: str, bits: int | dict[str, int], count: Any = _ceps_count, **fields: Any) -> Row:
    algorithm = jdfl.CEPS(**({"s": 3, "rate": 1.0, "periods": (2, 4)} | fields))
    quiet = {"mechanism": None, "sensitivity": None, "clip": None}
    given = {"count": count, "consensus_state": _ceps_consensus, "nonzeros": 3, "swept": "mu"}
    return row(algorithm, label, bits=bits, exact=quiet, **given)


def _pushing(label: str, algorithm: Any, *, looks: int = ROUNDS, eq22: bool = False, **given: Any) -> Row:
    """A noisy message of the shared parameters and a weight to every neighbour in every round."""
    sent = {"shared": 32 * (given.get("shared", 20) + 1)}
    quiet = {"dpps": jdfl.DPPS()} | ({} if hasattr(algorithm, "gradients") else {"clip": None})
    count = counted(sent, looks, releases=ROUNDS * (algorithm.dpps.b is not None), others=eq22)
    return row(algorithm, label, bits=sent | ({"sensitivity": 32} if eq22 else {}), exact=quiet, count=count, **given)


def _cpgt(label: str, bits: int = 640, **fields: Any) -> Row:
    algorithm = jdfl.CPGT(**{"lr": 0.01, "codec": jdfl.Dense()} | fields)
    quiet = {"noise_x": None, "noise_y": None}
    noisy = ROUNDS * (algorithm.noise_x is not None)
    return row(algorithm, label, bits={"model": bits, "tracker": bits}, grads=14, releases=noisy, exact=quiet)


_PRIVATE = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.5))
_CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
_WHOLE = jdfl.Gradients(clip=1.0, per="batch")
_NOISY = jdfl.DPPS(b=1.0, noise_rate=1e-3)
_TOP = 3 * (32 + 5)  # bits of three numbers and their places
_BYTES = jdfl.Sparse(s=20, value="int8")

TABLE = (
    _ceps("CEPS-Perf", 640),
    _ceps("CEPS-Perf, self always in", 640, own="always", sigma_rule="safe"),
    _ceps("CEPS-sparse", _TOP, codec=jdfl.Sparse()),
    _ceps("CEPS-1BCS", 40 + 64, codec=jdfl.OneBit(d=40)),
    _ceps("CEPS-int8", 3 * 8 + 32 + 11, codec=jdfl.Sparse(value="int8", index="enumerative")),
    _ceps("CEPS-1BCS, shared Phi", 40 + 64, codec=jdfl.OneBit(d=40, shared=True)),
    _ceps("CEPS-1BCS, Hadamard", 40 + 64, codec=jdfl.OneBit(d=40, ensemble="hadamard")),
    _ceps("CEPS-1BCS, side information", 40 + 64, codec=jdfl.OneBit(d=40, side=True)),
    _ceps("CEPS-1BCS, receiver's Phi", 40 + 64, codec=jdfl.OneBit(d=40), phi="receiver"),
    _ceps("CEPS-1BCS, d per node", _SIZES, _ceps_sizes_count, codec=jdfl.OneBit(d=_SIGNS)),
    _ceps("DP-CEPS, kept", 640, mechanism=jdfl.Gaussian(0.5), sensitivity=0.1),
    _ceps("DP-CEPS, clipped", 640, mechanism=jdfl.Laplace(0.01), clip=5.0, sigma=1.0, adjacency="add-remove"),
    _ceps(
        "DP-CEPS-1BCS, literal",
        40 + 64,
        codec=jdfl.OneBit(d=40, inverse="paper"),
        mechanism=jdfl.Gaussian(0.5),
        sensitivity=0.1,
        noise="literal",
    ),
    row(jdfl.DSGT(lr=0.01), "DSGT", bits={"model": 640, "tracker": 640}, grads=14),
    row(
        jdfl.DSGT(lr=0.01, codec=jdfl.Dense("float16"), gradients=_PRIVATE),
        "DP-DSGT, float16",
        bits={"model": 320, "tracker": 320},
        grads=14,
    ),
    row(jdfl.EXTRA(lr=0.01), "EXTRA"),
    row(jdfl.DECOR(lr=0.01, gradients=_PRIVATE, pairs=0.5), "DECOR", exact={"gradients": jdfl.Gradients()}),
    row(
        jdfl.MAFALDA(lr=0.01, gradients=replace(_PRIVATE, batch=1, sampling="in order"), horizon=50, band=3),
        "MAFALDA-SGD, in passes",
    ),
    row(jdfl.Muffliato(lr=0.01, gossips=3, accelerated=True), "Muffliato", grads=5),
    row(jdfl.Muffliato(lr=0.01, gossips=2, gradients=_PRIVATE), "Muffliato, private", grads=7),
    row(jdfl.NIDS(lr=0.01), "NIDS", grads=14),
    row(jdfl.ExactDiffusion(lr=0.01), "exact diffusion"),
    row(jdfl.CHOCO(lr=0.01, codec=jdfl.Dense()), "CHOCO-SGD, exact", swept="gamma"),
    row(jdfl.CHOCO(lr=0.01, gamma=0.2, codec=jdfl.Sparse(s=3)), "CHOCO-SGD, top 3", bits=_TOP),
    row(
        jdfl.CHOCO(
            lr=0.01,
            codec=jdfl.RandomK(k=3),
            order="combine-then-adapt",
            local_steps=2,
            optimizer=partial(optax.sgd, momentum=0.5),
            gradients=_PRIVATE,
        ),
        "DP-CHOCO-SGD, combine-then-adapt, random 3",
        bits=3 * 32,
        grads=26,
    ),
    row(jdfl.DCD(lr=0.01, codec=jdfl.Dense()), "DCD-PSGD, exact"),
    row(jdfl.DCD(lr=0.01, codec=jdfl.Sparse(s=3)), "DCD-PSGD, top 3", bits=_TOP),
    row(  # always awake, which can be counted by hand
        jdfl.DOADP(lr=0.01, gamma=0.1, p=1.0, codec=jdfl.Sparse(s=3), gradients=replace(_PRIVATE, batch=1)),
        "DO-ADP, top 3",
        bits=_TOP,
    ),
    row(
        jdfl.DirectedCEPS(s=3, lr=0.02, codec=jdfl.OneBit(d=40), gamma=0.5),
        "directed CEPS",
        bits=40 + 64 + 32,
        nonzeros=3,
    ),
    row(
        jdfl.DirectedCEPS(s=3, lr=0.02, codec=jdfl.Sparse(), gamma=0.5, local_steps=2, gradients=_PRIVATE),
        "DP-directed CEPS, top 3",
        bits=_TOP + 32,
        grads=26,
        nonzeros=3,
    ),
    row(jdfl.DFedAvgM(lr=0.002), "DFedAvgM", grads=65),
    row(
        jdfl.DFedAvgM(lr=0.002, local_steps=3, quantised=True, codec=_BYTES),
        "DFedAvgM, quantised",
        bits=20 * (8 + 5) + 32,
        grads=39,
    ),
    row(jdfl.DPSGD(lr=0.02), "D-PSGD"),
    row(
        jdfl.DPSGD(
            lr=0.02,
            period=3,
            order="adapt-then-combine",
            optimizer=optax.adam,
            gradients=replace(_PRIVATE, batch=4, noisy="communicating"),
        ),
        "DP-D-PSGD, every third round, minibatches, Adam",
        talks=5,
        releases=5,
        exact={"optimizer": None},  # Adam makes something of a gradient's rounding, however small it is
    ),
    row(jdfl.DPSGD(lr=0.02, codec=_BYTES), "D-PSGD, int8", bits=20 * (8 + 5) + 32),
    row(jdfl.LocalOnly(lr=0.02), "LocalOnly", bits={}, talks=0),
    row(jdfl.IHT(s=3, lr=0.02), "IHT-D-PSGD", bits=_TOP, nonzeros=3),
    row(
        jdfl.IHT(s=3, lr=0.02, period=2, gradients=_PRIVATE),
        "DP-IHT-D-PSGD, every second round",
        bits=_TOP,
        talks=7,
        nonzeros=3,
    ),
    row(jdfl.MATCHA(lr=0.02, local_steps=2), "MATCHA", grads=26),
    row(jdfl.DFedSAM(lr=0.02, local_steps=3), "DFedSAM", grads=78, exact={"rho": 0.0}),
    row(
        jdfl.DFedSAM(lr=0.02, local_steps=2, gossip_steps=3, gradients=replace(_PRIVATE, noisy="communicating")),
        "DP-DFedSAM-MGS",
        grads=52,
        talks=39,
        releases=26,
        exact={"rho": 0.0},
    ),
    row(
        jdfl.DPSGD(
            lr=0.02,
            gradients=jdfl.Gradients(batch=3, sampling="subset"),
            updates=jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(0.1)),
        ),
        "D-PSGD, noisy updates of subsets",
        releases=13,
        exact={"updates": None},
    ),
    row(
        jdfl.DFedSAM(lr=0.02, local_steps=2, gradients=replace(_PRIVATE, batch=3, sampling="poisson", norm="l1")),
        "DP-DFedSAM, Poisson samples",
        grads=52,
        exact={"rho": 0.0},
    ),
    row(
        jdfl.FedAvg(lr=0.02),
        "FedAvg",
        bits={"down": 640, "up": 640},
        count=lambda program, adjacency, rounds: {
            "sent": dict.fromkeys(("down", "up"), np.full(len(adjacency), rounds)),
            "communications": np.full(len(adjacency), rounds),
            "grads": np.full(len(adjacency), 5 * rounds),
            "releases": np.zeros(len(adjacency)),
        },
    ),
    _pushing("SGP", jdfl.SGP(lr=0.02)),
    _pushing("SGPDP", jdfl.SGP(lr=0.02, gradients=_CLIPPED, dpps=_NOISY)),
    _pushing(
        "SGPDP, Eq. 22", jdfl.SGP(lr=0.02, gradients=_CLIPPED, dpps=replace(_NOISY, sensitivity="eq22")), eq22=True
    ),
    _pushing("SGPDP, Lemma 2", jdfl.SGP(lr=0.02, gradients=_CLIPPED, dpps=replace(_NOISY, sensitivity="lemma2"))),
    _pushing(
        "PartPSP, minibatches in turn",
        jdfl.PartPSP(
            lr_shared=0.02,
            lr_local=0.05,
            gradients=replace(_CLIPPED, batch=3, sampling="epochs"),
            dpps=_NOISY,
            milestones=(4, 7),
        ),
        looks=26,
        shared=6,
        swept="lr_shared",
    ),
    _pushing("PartPSP, true distances", jdfl.PartPSP(dpps=replace(_NOISY, sensitivity="real")), swept="lr_shared"),
    _pushing("PEDFL", jdfl.PEDFL(lr=0.02, gradients=_CLIPPED, dpps=_NOISY)),
    row(jdfl.DPDDA(lr=0.02, p=1.0, gradients=jdfl.Gradients()), "DDA"),  # always awake
    row(
        jdfl.DPDDA(lr=0.02, p=1.0, mu=0.1, block=2, order="adapt-then-combine", gradients=_PRIVATE),
        "DP-DDA, strongly convex, two nodes at a time",
    ),
    row(
        jdfl.DPDDA(
            lr=0.02, p=1.0, codec=jdfl.Dense("float16"), gradients=replace(_PRIVATE, batch=2, sampling="subset")
        ),
        "DP-DDA, samples, float16",
        bits=320,
    ),
    row(jdfl.DPDO(c=0.02), "DPDO", releases=0, swept="c"),
    row(
        jdfl.DPDO(c=0.02, epsilon=100.0, radius=3.0, gradients=_WHOLE),
        "DPDO, noisy, in a ball",
        releases=13,
        exact={"epsilon": None},
        swept="c",
    ),
    _cpgt("CPGT, exact"),
    _cpgt(
        "CPGT, noisy, top 3",
        _TOP,
        gamma=0.2,
        codec=jdfl.Sparse(s=3),
        noise_x=0.01,
        noise_y=0.1,
        decay=0.99,
        gradients=_WHOLE,
    ),
    _pushing("average consensus", jdfl.AverageConsensus(clip=1.0, dpps=_NOISY), looks=1, swept="dpps.b"),
    *ROWS,
)


def _gossip_count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    every = np.full(len(adjacency), rounds)
    return {"sent": {"model": every}, "communications": every, "grads": every + 1, "releases": 0 * every}


def _everywhere(program: Any, problem: Any) -> Any:
    return jnp.broadcast_to(problem.truth, (problem.m, problem.n))


# Not registered: an algorithm as a newcomer writes it, dense and without a codec, keeps the same laws.
GOSSIP = Row("gossip", Gossip(), Gossip(), {"model": 640}, _gossip_count, swept="rate", consensus_state=_everywhere)
