"""Lemma 2 of the DPPS paper: the constants of its experiments fail, others hold; and the certified schedule.

2-Out, N = 10, C' = .78, lambda = .55, no noise, all nodes at zero. In every round five consecutive nodes add +1, the
other five -1. The paper's proof divides by a row of W (its Eq. 13 to 14) and concludes that the largest l1 distance
between two nodes' messages is at most S of Eq. 22; with these constants the actual distances are larger in every round.
The certified schedule, which knows W and that no node adds more than 1, equals them exactly here.

The lemma itself says that there are constants C' > 0 and lambda in (0, 1) for which S is an upper bound, and there are:
C' = N C, where no entry of W_(t-1) ... W_k (for k = t the identity) differs from 1 / N by more than C lambda^(t - k).
The distance is then at most 2 C sum_l sum_k lambda^(t - k) ||delta_l^k||_1 over all nodes l, at most N times its
largest term, which is S. The second table has distance / S with these constants, and with the experiments', for inputs
designed to be far apart, inputs of one node alone, and random ones with Laplace noise, on three networks, from equal
and unequal starts.

With bounds on the steps and on the noise in the place of their norms this is a public schedule, as `certified` is:
`sensitivity="lemma2"`. The third table compares both with the real distances: in the rounds without noise of the
counterexample, and in runs whose noise they scale (b = 5, noise rate .001, global averaging in every 5th round),
with 50 and 500 parameters. Lemma 2 sums norms over all nodes and the certified schedule does not, and every norm of
noise increases the next one's scale.
"""

from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.algorithms.dpps import Schedule
from jdfl.algorithms.round import Prepared, RoundContext
from jdfl.network import matrices
from jdfl.privacy import NO_NOISE
from jdfl.privacy.sensitivity import certified, lemma2, lemma2_constants, published, real

NODES, ROUNDS = 10, 5
CONSTANT, CONTRACTION = 0.78, 0.55  # of the paper's Fig. 2
SEEN, ESTIMATED = (2.0, 4.0, 6.0, 8.0, 10.0), {0: 1.56, 4: 3.29}  # of the study


def _round(network: jdfl.network.Network, t: int, schedule: Schedule, seed: int = 0) -> jdfl.Round:
    k, key = jnp.int32(t), jax.random.fold_in(jax.random.key(seed), t)
    context, no_data = RoundContext(k, key, network.at(k, key), jnp.arange(NODES, dtype=jnp.int32)), cast(Any, None)
    return jdfl.Round(context=context, problem=no_data, prepared=Prepared(own=schedule))


def distances(rounds: int = ROUNDS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Real, estimated (Eq. 22) and certified distances [rounds]."""
    network = jdfl.network.d_out(NODES, 2)
    eps = jnp.where(jnp.arange(NODES) < NODES // 2, 1.0, -1.0)[:, None]
    step, none = jnp.ones((NODES,)), jnp.zeros((NODES,))
    protocol, estimate = jdfl.DPPS(), none
    schedule = protocol.plan(network, None, np.ones(rounds), 1)
    state = protocol.init(jnp.zeros((NODES, 1)), _round(network, 0, schedule))
    found, estimated = [], []
    for t in range(rounds):
        found.append(float(real(state.s + eps)))
        first, constants = jnp.bool_(t == 0), {"constant": CONSTANT, "contraction": CONTRACTION}
        estimate = published(estimate, none, step, none, first, **constants)
        estimated.append(float(jnp.max(estimate)))
        state = protocol.step(state, eps, _round(network, t, schedule), lambda *_: NO_NOISE)
    bound = certified(matrices(network, rounds, "a schedule"), np.ones(rounds), np.zeros(rounds), 1, failure=1e-6)
    return np.array(found), np.array(estimated), bound


def rows() -> list[Row]:
    """A row per round: the study's numbers and ours."""
    made = []
    for t, (seen, estimate, bound) in enumerate(zip(*distances())):
        case = f"round {t}"
        made.append(row(case, "real", SEEN[t], [seen]))
        made.append(row(case, "Eq. 22", ESTIMATED.get(t), [estimate]))
        made.append(row(case, "certified", None, [bound]))
        made.append(row(case, "Eq. 22 / real", None, [estimate / seen]))
    return made


def inputs(kind: str, W: np.ndarray, rounds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The start [N, d] and what the nodes add [rounds, N, d]."""
    N, draw = len(W), np.random.default_rng(seed)
    start, eps = np.zeros((N, 1)), np.zeros((rounds, N, 1))
    if kind == "halves":
        eps[:, :, 0] = np.where(np.arange(N) < N // 2, 1.0, -1.0)
    elif kind == "worst of two nodes":  # the signs that drive node 0 and another apart in the last round
        pairs = []
        for other in range(1, N):
            rows = [np.linalg.matrix_power(W, r) for r in range(rounds)]
            pairs.append(np.stack([rows[rounds - 1 - k][0] - rows[rounds - 1 - k][other] for k in range(rounds)]))
        eps[:, :, 0] = np.sign(max(pairs, key=lambda rows: np.abs(rows).sum()))
    elif kind == "one node":
        eps[:, 0, 0] = 1.0
    elif kind == "random and noise":
        eps = draw.normal(size=(rounds, N, 50))
    elif kind == "unequal start":
        start, eps = 10 * draw.normal(size=(N, 5)), draw.normal(size=(rounds, N, 5))
    return start, eps


KINDS = ("halves", "worst of two nodes", "one node", "random and noise", "unequal start")
NETWORKS = {"2-Out, N=10": (10, 2), "4-Out, N=10": (10, 4), "3-Out, N=16": (16, 3)}


def ratios(kind: str, W: np.ndarray, told: tuple[float, float], rounds: int, seed: int) -> np.ndarray:
    """Distance / S of Eq. 22 [rounds] with the constants C' and lambda `told`."""
    start, eps = inputs(kind, W, rounds, seed)
    draw, s, noise = np.random.default_rng(seed + 1), start, np.zeros_like(start)
    estimate, made = jnp.zeros(len(W)), []
    for t in range(rounds):
        half = s + eps[t]
        estimate = published(
            estimate,
            jnp.asarray(np.abs(noise).sum(axis=1)),
            jnp.asarray(np.abs(eps[t]).sum(axis=1)),
            jnp.asarray(np.abs(start).sum(axis=1)),
            jnp.bool_(t == 0),
            constant=told[0],
            contraction=told[1],
        )
        S = float(jnp.max(estimate))
        made.append(float(np.abs(half[:, None] - half[None]).sum(axis=2).max()) / S)
        noise = (
            draw.laplace(scale=0.001 * S / 5, size=half.shape) if kind == "random and noise" else np.zeros_like(half)
        )
        s = W @ (half + noise)
    return np.array(made)


def rows_of_constants(rounds: int, seeds: int) -> list[Row]:
    """The largest distance / S of all rounds and seeds, by constants, network and inputs."""
    made = []
    for name, (nodes, degree) in NETWORKS.items():
        W = np.asarray(jdfl.network.as_dense(jdfl.network.d_out(nodes, degree).graph), float)
        right = lemma2_constants([W])
        made.append(row(name, "C' = N C", None, [right[0]]))
        made.append(row(name, "lambda", None, [right[1]]))
        for kind in KINDS:
            for label, told in (("C' = N C", right), ("the paper's", (CONSTANT, CONTRACTION))):
                most = [float(ratios(kind, W, told, rounds, seed).max()) for seed in range(seeds)]
                made.append(row(f"{name}, {kind}", f"distance / S, {label}", None, [max(most)]))
    return made


PUBLIC = ("certified", "lemma2")


def driven(source: Literal["certified", "lemma2"], d: int, rounds: int, seed: int) -> np.ndarray:
    """Real distances and S [rounds, 2] of a run on 2-Out, averaged every 5 rounds, whose noise S scales.

    Steps have l1 norm 1 and random directions, and five nodes add the opposite of what the others do.
    """
    net, key = jdfl.network.synchronised(jdfl.network.d_out(NODES, 2), 5), np.random.default_rng(seed)
    protocol = jdfl.DPPS(b=5.0, noise_rate=1e-3, sensitivity=source, watch=True)
    schedule = protocol.plan(net, np.ones(rounds), np.ones(rounds), d)
    start = jnp.zeros((NODES, d))
    state = protocol.init(start, _round(net, 0, schedule))
    for t in range(rounds):
        step = key.normal(size=d)
        eps = np.where(np.arange(NODES) < NODES // 2, 1.0, -1.0)[:, None] * step / np.abs(step).sum() * (1 - 1e-6)
        state = protocol.step(state, jnp.asarray(eps, jnp.float32), _round(net, t, schedule, seed), lambda *_: NO_NOISE)
    return np.asarray(state.seen, float)[:rounds]


def rows_of_schedules(rounds: int, seeds: int) -> list[Row]:
    """S over the real distance of both schedules, and of one over the other, medians over rounds."""
    made = []
    net = jdfl.network.d_out(NODES, 2)
    W = matrices(net, rounds, "a schedule")
    both = [bound(W, np.ones(ROUNDS), np.zeros(ROUNDS), 1, failure=1e-6) for bound in (certified, lemma2)]
    seen = distances()[0]
    for source, S in zip(PUBLIC, both):
        made.append(row("2-Out, no noise", f"{source} / real, median", None, [float(np.median(S / seen))]))
    made.append(row("2-Out, no noise", "lemma2 / certified, median", None, [float(np.median(both[1] / both[0]))]))
    for d in (50, 500):
        case = f"2-Out, averaged every 5 rounds, d = {d}"
        runs = {source: [driven(source, d, rounds, seed) for seed in range(seeds)] for source in PUBLIC}
        for source, some in runs.items():
            ratio = [float(np.median(one[:, 1] / one[:, 0])) for one in some]
            under = [int(np.sum(one[:, 1] < one[:, 0])) for one in some]
            made.append(row(case, f"{source} / real, median", None, ratio))
            made.append(row(case, f"{source}: rounds with S too small", None, under))
        ratio = float(np.median(runs["lemma2"][0][:, 1] / runs["certified"][0][:, 1]))
        made.append(row(case, "lemma2 / certified, median", None, [ratio]))
    return made


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All three tables; with `--quick` half of the rounds of the second."""
    constants = rows_of_constants(30 if chosen.quick else 60, chosen.seeds)
    tables = {
        "Lemma 2 against 2-Out (study and ours)": rows(),
        "Lemma 2 with C' = N C, and with C' = .78, lambda = .55": constants,
        "Public schedules: certified, and Lemma 2 with constants that hold": rows_of_schedules(40, chosen.seeds),
    }
    columns = [f"distance / S, {one}" for one in ("C' = N C", "the paper's")]
    return Made(tables, bars(constants, columns, "distance / S"))
