"""One row per registered algorithm: how to build it small, its state at a consensus, and its message counts by hand."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import jdfl
from jdfl.algorithms import (
    ceps,
    choco,
    consensus,
    cpgt,
    descent,
    dfedavgm,
    directed_ceps,
    doadp,
    dp_dda,
    dpdo,
    dpsgd,
    dsgt,
    exact_diffusion,
    extra,
    local_only,
    mafalda,
    matcha,
    muffliato,
    nids,
    partpsp,
    pedfl,
)
from jdfl.algorithms.dpps import PushSum
from tests.contract.row import Row
from tests.field import ROWS
from tests.toy import Gossip


def _ceps_consensus(program: Any, problem: Any, w: Any) -> ceps.State:
    count = jnp.full((problem.m,), 2.0, problem.dtype)
    every = jnp.broadcast_to(w, (problem.m, problem.n))
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


def _ceps_sizes_count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """The same, by the sizes of the senders' messages."""
    found = _ceps_count(program, adjacency, rounds)
    sent, signs = found["sent"]["model"], np.array(_SIGNS)
    return found | {"sent": {f"model of {d + 64} bits": np.where(signs == d, sent, 0) for d in sorted(set(_SIGNS))}}


def _ceps(label: str, bits: int, **fields: Any) -> Row:
    algorithm = jdfl.CEPS(**({"s": 3, "rate": 1.0, "periods": (2, 4)} | fields))
    exact = replace(algorithm, mechanism=None, sensitivity=None, clip=None, codec=jdfl.Dense())
    return Row("ceps", algorithm, exact, {"model": bits}, 3, _ceps_consensus, _ceps_count, "mu", label)


def _gossip_count(algorithm: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    every = np.full(len(adjacency), rounds)
    return {"sent": {"model": every}, "communications": every, "grads": every + 1, "releases": 0 * every}


def _everywhere(algorithm: Any, problem: Any, w: Any) -> Any:
    return jnp.broadcast_to(w, (problem.m, problem.n))


def _with_hidden(program: Any, problem: Any, w: Any) -> mafalda.State:
    x = _everywhere(program, problem, w)
    return mafalda.State(x, jnp.zeros((problem.m, program.plan.shape[1] - 1, problem.n), problem.dtype))


def _tracking_consensus(algorithm: Any, problem: Any, w: Any) -> dsgt.State:
    x = _everywhere(algorithm, problem, w)
    return dsgt.State(x, jnp.zeros_like(x), problem.gradients(x))


def _corrected(kind: Any) -> Callable[[Any, Any, Any], Any]:
    """All nodes at w, with nothing to correct."""
    return lambda algorithm, problem, w: kind(
        _everywhere(algorithm, problem, w), jnp.zeros((problem.m, problem.n), problem.dtype)
    )


def _exact_count(channels: tuple[str, ...], first: int) -> Callable[[Any, np.ndarray, int], dict[str, Any]]:
    """A message to every neighbour and a gradient in every round, after `first` gradients at the start."""

    def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
        sent = rounds * (adjacency != 0).sum(axis=0)
        every = np.full(len(adjacency), rounds)
        noisy = program.algorithm.gradients.mechanism is not None
        return {
            "sent": dict.fromkeys(channels, sent),
            "communications": every,
            "grads": every + first,
            "releases": noisy * (every + first),
        }

    return count


def _exact(name: str, kind: Any, consensus: Any, first: int, label: str, bits: int = 32 * 20, **fields: Any) -> Row:
    channels: tuple[str, ...] = ("model", "tracker") if kind is jdfl.DSGT else ("model",)
    algorithm = kind(lr=0.01, **fields)
    exact = replace(algorithm, gradients=jdfl.Gradients(), codec=jdfl.Dense())
    sizes = {channel: bits for channel in channels}  # noqa: C420
    return Row(name, algorithm, exact, sizes, 20, consensus, _exact_count(channels, first), "lr", label)


def _compressed_count(local_steps: int) -> Callable[[Any, np.ndarray, int], dict[str, Any]]:
    """A message to every neighbour in every round, after `local_steps` gradients."""

    def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
        every = np.full(len(adjacency), rounds)
        return {
            "sent": {"model": rounds * (adjacency != 0).sum(axis=0)},
            "communications": every,
            "grads": local_steps * every,
            "releases": local_steps * every * (program.algorithm.gradients.mechanism is not None),
        }

    return count


def _choco_consensus(program: Any, problem: Any, w: Any) -> choco.State:
    x = _everywhere(program, problem, w)
    return choco.State(x, x + 0, descent.begin(program.algorithm.optimizer, program.algorithm.lr, x))


def _doadp_consensus(algorithm: Any, problem: Any, w: Any) -> doadp.State:
    x = _everywhere(algorithm, problem, w)
    return doadp.State(x, x + 0, jnp.zeros_like(x))


def _directed_ceps_consensus(program: Any, problem: Any, w: Any) -> directed_ceps.State:
    x = _everywhere(program, problem, w)
    return directed_ceps.State(x, jnp.ones((problem.m,), problem.dtype), x + 0)


def _dfedavgm_consensus(program: Any, problem: Any, w: Any) -> dfedavgm.State:
    x = _everywhere(program, problem, w)
    return dfedavgm.State(x, x + 0 if program.algorithm.quantised else None)


def _muffliato(label: str, **fields: Any) -> Row:
    algorithm = jdfl.Muffliato(lr=0.01, **fields)
    exact = replace(algorithm, gradients=jdfl.Gradients())

    def consensus(program: Any, problem: Any, w: Any) -> muffliato.State:
        x = _everywhere(program, problem, w)
        return muffliato.State(x, x + 0)

    return Row("muffliato", algorithm, exact, {"model": 640}, 20, consensus, _muffliato_count, "lr", label)


def _compressed(label: str, algorithm: Any, bits: int, swept: str = "lr") -> Row:
    name, consensus = {
        jdfl.CHOCO: ("choco-sgd", _choco_consensus),
        jdfl.DCD: ("dcd-psgd", _everywhere),
        jdfl.DOADP: ("do-adp", _doadp_consensus),
        jdfl.DFedAvgM: ("dfedavgm", _dfedavgm_consensus),
    }[type(algorithm)]
    exact = replace(algorithm, gradients=jdfl.Gradients(), codec=jdfl.Dense())
    count = _compressed_count(getattr(algorithm, "local_steps", 1))
    return Row(name, algorithm, exact, {"model": bits}, 20, consensus, count, swept, label)


def _directed_ceps(label: str, bits: int, **fields: Any) -> Row:
    algorithm = jdfl.DirectedCEPS(s=3, lr=0.02, **fields)
    exact = replace(algorithm, gradients=jdfl.Gradients(), codec=jdfl.Dense())
    count = _compressed_count(algorithm.local_steps)
    return Row("directed-ceps", algorithm, exact, {"model": bits}, 3, _directed_ceps_consensus, count, "lr", label)


def _plain_count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """Messages every `period` rounds, `gossip_steps` times; gradients twice per local step for DFedSAM."""
    m = len(adjacency)
    period, gossip = getattr(program.algorithm, "period", 1), getattr(program.algorithm, "gossip_steps", 1)
    looks = 2 if hasattr(program.algorithm, "rho") else 1
    talks = len(range(0, rounds, period))
    grads = np.full(m, looks * getattr(program.algorithm, "local_steps", 1) * rounds)
    noisy = program.algorithm.gradients.mechanism is not None
    always = program.algorithm.gradients.noisy == "always"
    releases = noisy * (grads if always else np.full(m, looks * talks))
    if getattr(program.algorithm, "updates", None) is not None:
        releases = np.full(m, rounds)
    return {
        "sent": {"model": gossip * talks * (adjacency != 0).sum(axis=0)},
        "communications": np.full(m, gossip * talks),
        "grads": grads,
        "releases": releases,
    }


def _muffliato_count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """A message to every neighbour in every round, a gradient in every `gossips`-th."""
    every = np.full(len(adjacency), rounds)
    grads = -(-every // program.algorithm.gossips)
    return {
        "sent": {"model": rounds * (adjacency != 0).sum(axis=0)},
        "communications": every,
        "grads": grads,
        "releases": grads * (program.algorithm.gradients.mechanism is not None),
    }


def _alone_count(algorithm: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    every = np.full(len(adjacency), rounds)
    return {"sent": {}, "communications": 0 * every, "grads": every, "releases": 0 * every}


def _server_count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    every = np.full(len(adjacency), rounds)
    return {
        "sent": {"down": every, "up": every},
        "communications": every,
        "grads": program.algorithm.local_steps * every,
        "releases": 0 * every,
    }


def _descending(kind: Any) -> Callable[[Any, Any, Any], Any]:
    """All nodes at w, with an optimizer that starts there."""

    def consensus(program: Any, problem: Any, w: Any) -> Any:
        x = _everywhere(program, problem, w)
        return kind(x, descent.begin(program.algorithm.optimizer, program.algorithm.lr, x))

    return consensus


def _plain(
    name: str,
    label: str,
    algorithm: Any,
    consensus: Any,
    sizes: dict[str, int] | None = None,
    count: Any = _plain_count,
    nonzeros: int = 20,
) -> Row:
    fields: dict[str, Any] = {"codec": jdfl.Dense()} if hasattr(algorithm, "codec") else {}
    # Adam, and SAM's step up, make something of a gradient's rounding, however small it is.
    fields |= {"optimizer": None} if hasattr(algorithm, "optimizer") else {}
    fields |= {"rho": 0.0} if hasattr(algorithm, "rho") else {}
    fields |= {"updates": None} if hasattr(algorithm, "updates") else {}
    exact = replace(algorithm, gradients=jdfl.Gradients(), **fields)
    return Row(
        name, algorithm, exact, {"model": 640} if sizes is None else sizes, nonzeros, consensus, count, "lr", label
    )


def _sums(problem: Any, x: Any) -> PushSum:
    none = jnp.zeros((problem.m,), problem.dtype)
    return PushSum(x, none + 1, none, none)


def _sgp_consensus(algorithm: Any, problem: Any, w: Any) -> PushSum:
    return _sums(problem, _everywhere(algorithm, problem, w))


def _partpsp_consensus(algorithm: Any, problem: Any, w: Any) -> partpsp.State:
    x, d = _everywhere(algorithm, problem, w), problem.n_shared
    return partpsp.State(_sums(problem, x[:, :d]), x[:, d:])


def _waiting(kind: Any) -> Callable[[Any, Any, Any], Any]:
    """All nodes at w, with nothing to add before they send."""
    return lambda algorithm, problem, w: kind(
        _sgp_consensus(algorithm, problem, w), jnp.zeros((problem.m, problem.n), problem.dtype)
    )


def _pushing_count(looks: int, first: int) -> Callable[[Any, np.ndarray, int], dict[str, Any]]:
    """A noisy message to every neighbour in every round, `looks` gradients, and `first` at the start."""

    def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
        every = np.full(len(adjacency), rounds)
        sent = {"shared": rounds * (adjacency != 0).sum(axis=0)}
        noisy = program.algorithm.dpps.b is not None
        if noisy and program.algorithm.dpps.sensitivity == "eq22":
            sent["sensitivity"] = (len(adjacency) - 1) * every
        return {
            "sent": sent,
            "communications": every,
            "grads": looks * every + first,
            "releases": noisy * every,
        }

    return count


def _pushing(
    label: str, algorithm: Any, *, shared: int | None = None, swept: str = "lr", bits: dict[str, int] | None = None
) -> Row:
    name, state, looks, first = {
        jdfl.SGP: ("sgp", _sgp_consensus, 1, 0),
        jdfl.PartPSP: ("partpsp", _partpsp_consensus, 1 if shared is None else 2, 0),
        jdfl.PEDFL: ("pedfl", _waiting(pedfl.State), 1, 0),
        jdfl.AverageConsensus: ("average-consensus", _waiting(consensus.State), 0, 1),
    }[type(algorithm)]
    fields: dict[str, Any] = {"dpps": jdfl.DPPS()}
    fields |= {"gradients": jdfl.Gradients()} if hasattr(algorithm, "gradients") else {"clip": None}
    sizes = {"shared": 32 * ((20 if shared is None else shared) + 1)} | (bits or {})
    count = _pushing_count(looks, first)
    return Row(name, algorithm, replace(algorithm, **fields), sizes, 20, state, count, swept, label, shared)


def _dpdo_consensus(algorithm: Any, problem: Any, w: Any) -> dpdo.State:
    x = _everywhere(algorithm, problem, w)
    return dpdo.State(x, x + 0)


def _cpgt_consensus(algorithm: Any, problem: Any, w: Any) -> cpgt.State:
    x = _everywhere(algorithm, problem, w)
    return cpgt.State(x, jnp.zeros_like(x), problem.gradients(x), x + 0, jnp.zeros_like(x))


def _laplace_count(
    channels: tuple[str, ...], first: int, noise: str
) -> Callable[[Any, np.ndarray, int], dict[str, Any]]:
    """Messages to every neighbour and a gradient in every round, after `first` gradients at the start."""

    def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
        every = np.full(len(adjacency), rounds)
        return {
            "sent": dict.fromkeys(channels, rounds * (adjacency != 0).sum(axis=0)),
            "communications": every,
            "grads": every + first,
            "releases": every * (getattr(program.algorithm, noise) is not None),
        }

    return count


def _dpdo(label: str, **fields: Any) -> Row:
    algorithm = jdfl.DPDO(c=0.02, **fields)
    exact = replace(algorithm, epsilon=None, gradients=jdfl.Gradients(), codec=jdfl.Dense())
    count = _laplace_count(("model",), 0, "epsilon")
    return Row("dpdo", algorithm, exact, {"model": 640}, 20, _dpdo_consensus, count, "c", label)


def _cpgt(label: str, bits: int = 640, **fields: Any) -> Row:
    algorithm = jdfl.CPGT(**{"lr": 0.01, "codec": jdfl.Dense()} | fields)
    exact = replace(algorithm, noise_x=None, noise_y=None, gradients=jdfl.Gradients(), codec=jdfl.Dense())
    sizes, count = {"model": bits, "tracker": bits}, _laplace_count(("model", "tracker"), 1, "noise_x")
    return Row("cpgt", algorithm, exact, sizes, 20, _cpgt_consensus, count, "lr", label)


def _dda_consensus(algorithm: Any, problem: Any, w: Any) -> dp_dda.State:
    x = _everywhere(algorithm, problem, w)
    return dp_dda.State(jnp.zeros_like(x), x, x)


def _dda(label: str, bits: int = 640, **fields: Any) -> Row:
    algorithm = jdfl.DPDDA(**({"lr": 0.02, "p": 1.0, "gradients": jdfl.Gradients()} | fields))
    exact = replace(algorithm, gradients=jdfl.Gradients(), codec=jdfl.Dense())
    return Row("dp-dda", algorithm, exact, {"model": bits}, 20, _dda_consensus, _compressed_count(1), "lr", label)


_PRIVATE = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.5))
_CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
_WHOLE = jdfl.Gradients(clip=1.0, per="batch")
_NOISY = jdfl.DPPS(b=1.0, noise_rate=1e-3)

TABLE = (
    _ceps("CEPS-Perf", 32 * 20),
    _ceps("CEPS-Perf, self always in", 32 * 20, own="always", sigma_rule="safe"),
    _ceps("CEPS-sparse", 3 * (32 + 5), codec=jdfl.Sparse()),
    _ceps("CEPS-1BCS", 40 + 64, codec=jdfl.OneBit(d=40)),
    _ceps("CEPS-int8", 3 * 8 + 32 + 11, codec=jdfl.Sparse(value="int8", index="enumerative")),
    _ceps("CEPS-1BCS, shared Phi", 40 + 64, codec=jdfl.OneBit(d=40, shared=True)),
    _ceps("CEPS-1BCS, Hadamard", 40 + 64, codec=jdfl.OneBit(d=40, ensemble="hadamard")),
    _ceps("CEPS-1BCS, side information", 40 + 64, codec=jdfl.OneBit(d=40, side=True)),
    _ceps("CEPS-1BCS, receiver's Phi", 40 + 64, codec=jdfl.OneBit(d=40), phi="receiver"),
    replace(
        _ceps("CEPS-1BCS, d per node", 0, codec=jdfl.OneBit(d=_SIGNS)),
        message_bits={f"model of {d + 64} bits": d + 64 for d in sorted(set(_SIGNS))},
        count=_ceps_sizes_count,
    ),
    _ceps("DP-CEPS, kept", 32 * 20, mechanism=jdfl.Gaussian(0.5), sensitivity=0.1),
    _ceps("DP-CEPS, clipped", 32 * 20, mechanism=jdfl.Laplace(0.01), clip=5.0, sigma=1.0, adjacency="add-remove"),
    _ceps(
        "DP-CEPS-1BCS, literal",
        40 + 64,
        codec=jdfl.OneBit(d=40, inverse="paper"),
        mechanism=jdfl.Gaussian(0.5),
        sensitivity=0.1,
        noise="literal",
    ),
    _exact("dsgt", jdfl.DSGT, _tracking_consensus, 1, "DSGT"),
    _exact(
        "dsgt",
        jdfl.DSGT,
        _tracking_consensus,
        1,
        "DP-DSGT, float16",
        16 * 20,
        codec=jdfl.Dense("float16"),
        gradients=_PRIVATE,
    ),
    _exact("extra", jdfl.EXTRA, _corrected(extra.State), 0, "EXTRA"),
    _plain("decor", "DECOR", jdfl.DECOR(lr=0.01, gradients=_PRIVATE, pairs=0.5), _everywhere),
    _plain(
        "mafalda",
        "MAFALDA-SGD, in passes",
        jdfl.MAFALDA(lr=0.01, gradients=replace(_PRIVATE, batch=1, sampling="in order"), horizon=50, band=3),
        _with_hidden,
    ),
    _muffliato("Muffliato", gossips=3, accelerated=True),
    _muffliato("Muffliato, private", gossips=2, gradients=_PRIVATE),
    _exact("nids", jdfl.NIDS, _corrected(nids.State), 1, "NIDS"),
    _exact("exact-diffusion", jdfl.ExactDiffusion, _corrected(exact_diffusion.State), 0, "exact diffusion"),
    _compressed("CHOCO-SGD, exact", jdfl.CHOCO(lr=0.01, codec=jdfl.Dense()), 32 * 20, swept="gamma"),
    _compressed("CHOCO-SGD, top 3", jdfl.CHOCO(lr=0.01, gamma=0.2, codec=jdfl.Sparse(s=3)), 3 * (32 + 5)),
    _compressed(
        "DP-CHOCO-SGD, combine-then-adapt, random 3",
        jdfl.CHOCO(
            lr=0.01,
            codec=jdfl.RandomK(k=3),
            order="combine-then-adapt",
            local_steps=2,
            optimizer=partial(optax.sgd, momentum=0.5),
            gradients=_PRIVATE,
        ),
        3 * 32,
    ),
    _compressed("DCD-PSGD, exact", jdfl.DCD(lr=0.01, codec=jdfl.Dense()), 32 * 20),
    _compressed("DCD-PSGD, top 3", jdfl.DCD(lr=0.01, codec=jdfl.Sparse(s=3)), 3 * (32 + 5)),
    _compressed(
        "DO-ADP, top 3",  # always awake, which can be counted by hand
        jdfl.DOADP(lr=0.01, gamma=0.1, p=1.0, codec=jdfl.Sparse(s=3), gradients=replace(_PRIVATE, batch=1)),
        3 * (32 + 5),
    ),
    _directed_ceps("directed CEPS", 40 + 64 + 32, codec=jdfl.OneBit(d=40), gamma=0.5),
    _directed_ceps(
        "DP-directed CEPS, top 3",
        3 * (32 + 5) + 32,
        codec=jdfl.Sparse(),
        gamma=0.5,
        local_steps=2,
        gradients=_PRIVATE,
    ),
    _compressed("DFedAvgM", jdfl.DFedAvgM(lr=0.002), 32 * 20),
    _compressed(
        "DFedAvgM, quantised",
        jdfl.DFedAvgM(lr=0.002, local_steps=3, quantised=True, codec=jdfl.Sparse(s=20, value="int8")),
        20 * (8 + 5) + 32,
    ),
    _plain("d-psgd", "D-PSGD", jdfl.DPSGD(lr=0.02), _descending(dpsgd.State)),
    _plain(
        "d-psgd",
        "DP-D-PSGD, every third round, minibatches, Adam",
        jdfl.DPSGD(
            lr=0.02,
            period=3,
            order="adapt-then-combine",
            optimizer=optax.adam,
            gradients=replace(_PRIVATE, batch=4, noisy="communicating"),
        ),
        _descending(dpsgd.State),
    ),
    _plain(
        "d-psgd",
        "D-PSGD, int8",
        jdfl.DPSGD(lr=0.02, codec=jdfl.Sparse(s=20, value="int8")),
        _descending(dpsgd.State),
        {"model": 20 * (8 + 5) + 32},
    ),
    _plain("local-only", "LocalOnly", jdfl.LocalOnly(lr=0.02), _descending(local_only.State), {}, _alone_count),
    _plain("iht-d-psgd", "IHT-D-PSGD", jdfl.IHT(s=3, lr=0.02), _everywhere, {"model": 3 * (32 + 5)}, nonzeros=3),
    _plain(
        "iht-d-psgd",
        "DP-IHT-D-PSGD, every second round",
        jdfl.IHT(s=3, lr=0.02, period=2, gradients=_PRIVATE),
        _everywhere,
        {"model": 3 * (32 + 5)},
        nonzeros=3,
    ),
    _plain("matcha", "MATCHA", jdfl.MATCHA(lr=0.02, local_steps=2), _descending(matcha.State)),
    _plain("dfedsam", "DFedSAM", jdfl.DFedSAM(lr=0.02, local_steps=3), _everywhere),
    _plain(
        "dfedsam",
        "DP-DFedSAM-MGS",
        jdfl.DFedSAM(lr=0.02, local_steps=2, gossip_steps=3, gradients=replace(_PRIVATE, noisy="communicating")),
        _everywhere,
    ),
    _plain(
        "d-psgd",
        "D-PSGD, noisy updates of subsets",
        jdfl.DPSGD(
            lr=0.02,
            gradients=jdfl.Gradients(batch=3, sampling="subset"),
            updates=jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(0.1)),
        ),
        _descending(dpsgd.State),
    ),
    _plain(
        "dfedsam",
        "DP-DFedSAM, Poisson samples",
        jdfl.DFedSAM(lr=0.02, local_steps=2, gradients=replace(_PRIVATE, batch=3, sampling="poisson", norm="l1")),
        _everywhere,
    ),
    _plain("fedavg", "FedAvg", jdfl.FedAvg(lr=0.02), _everywhere, {"down": 640, "up": 640}, _server_count),
    _pushing("SGP", jdfl.SGP(lr=0.02)),
    _pushing("SGPDP", jdfl.SGP(lr=0.02, gradients=_CLIPPED, dpps=_NOISY)),
    _pushing(
        "SGPDP, Eq. 22",
        jdfl.SGP(lr=0.02, gradients=_CLIPPED, dpps=replace(_NOISY, sensitivity="eq22")),
        bits={"sensitivity": 32},
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
        shared=6,
        swept="lr_shared",
    ),
    _pushing("PartPSP, true distances", jdfl.PartPSP(dpps=replace(_NOISY, sensitivity="real")), swept="lr_shared"),
    _pushing("PEDFL", jdfl.PEDFL(lr=0.02, gradients=_CLIPPED, dpps=_NOISY)),
    _dda("DDA"),  # always awake, which can be counted by hand
    _dda(
        "DP-DDA, strongly convex, two nodes at a time", mu=0.1, block=2, order="adapt-then-combine", gradients=_PRIVATE
    ),
    _dda(
        "DP-DDA, samples, float16",
        320,
        codec=jdfl.Dense("float16"),
        gradients=replace(_PRIVATE, batch=2, sampling="subset"),
    ),
    _dpdo("DPDO"),
    _dpdo("DPDO, noisy, in a ball", epsilon=100.0, radius=3.0, gradients=_WHOLE),
    _cpgt("CPGT, exact"),
    _cpgt(
        "CPGT, noisy, top 3",
        3 * (32 + 5),
        gamma=0.2,
        codec=jdfl.Sparse(s=3),
        noise_x=0.01,
        noise_y=0.1,
        decay=0.99,
        gradients=_WHOLE,
    ),
    _pushing("average consensus", jdfl.AverageConsensus(clip=1.0, dpps=_NOISY), swept="dpps.b"),
    *ROWS,
)

# Not registered: an algorithm as a newcomer writes it, dense and without a codec, keeps the same laws.
GOSSIP = Row("gossip", Gossip(), Gossip(), {"model": 32 * 20}, 20, _everywhere, _gossip_count, "rate")
