"""What observers with a limited view learn: derived values, attacks, and where the derived values are not bounds.

- Attack: mu derived from a method's step for a node whose gradient changes by the largest amount, always in one
  direction, and the mu that the best linear score reaches on what the observer sees of real runs (20,000 of them, see
  `experiments.observer_attack`). Data are fixed, so both are equal up to sampling error.
- Hidden slopes: four nodes in a line, whose last node observes the first. Gradients that depend on parameters move the
  messages of others. Given are the mu of fixed gradients, and the largest mu for slopes (the step size times a second
  derivative, per node and round) of limited size, found by changing one slope at a time. So mu of fixed gradients is no
  bound for observers who do not see where gradients are taken.
- Networks: epsilon of pairs of nodes of D-PSGD with noise of 10 sensitivities, for fixed gradients, together with that
  of everyone, which is a guarantee.
"""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.observer_attack import reached, viewer, world
from jdfl.algorithms.round import Channel
from jdfl.base import struct
from jdfl.network import as_dense
from jdfl.observers import Coalition, Everyone, FinalModels, Neighbour, observe_pairs
from jdfl.observers.observe import blocks

NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
_EXACT: Any = {"gradients": NOISY, "codec": jdfl.Dense("float64")}
_PUSH = Channel("push")


@struct.dataclass
class Push(jdfl.Algorithm):
    """Noisy gradients over push-sum: x <- P (x - lr g(x / a)), a <- P a."""

    lr: float = 0.1
    gradients: jdfl.Gradients = NOISY
    columns = True
    channels = (_PUSH,)

    def init(self, round: jdfl.Round) -> tuple[Array, Array, Array]:
        x = round.problem.initial_params()
        return x, x, jnp.ones((round.m,), x.dtype)

    def step(self, state: tuple[Array, Array, Array], round: jdfl.Round) -> tuple[Array, Array, Array]:
        y, x, a = state
        x, a = round.push(x - self.lr * self.gradients(y, round), a, _PUSH)
        return x / a[:, None], x, a


def methods() -> dict[str, tuple[Any, Any]]:
    """Methods, each with the network that it is attacked on."""
    ring, random = jdfl.network.ring(6), jdfl.network.erdos_renyi(6, 0.5, seed=1)
    descent = {"order": "adapt-then-combine", **_EXACT}
    return {
        "D-PSGD, adapt-then-combine, ring": (jdfl.DPSGD(**descent), ring),
        "D-PSGD, combine-then-adapt, Erdos-Renyi": (jdfl.DPSGD(**_EXACT), random),
        "DSGT, ring": (jdfl.DSGT(**_EXACT), ring),
        "EXTRA, ring": (jdfl.EXTRA(**_EXACT), ring),
        "NIDS, Erdos-Renyi": (jdfl.NIDS(**_EXACT), random),
        "DFedAvgM, two local steps, ring": (jdfl.DFedAvgM(local_steps=2, **_EXACT), ring),
        "Muffliato, four gossips, ring": (jdfl.Muffliato(gossips=4, gradients=NOISY), ring),
        "DECOR, ring": (jdfl.DECOR(pairs=3.0, gradients=NOISY), ring),
        "push-sum, exponential": (Push(), jdfl.network.exponential(6)),
    }


OBSERVERS = {
    "a neighbour": (Neighbour(0), 1),
    "a node at distance 2 or 3": (Neighbour(0), 3),
    "a coalition of two": (Coalition((2, 4)), 0),
    "final models": (FinalModels(), 2),
    "everyone": (Everyone(), 1),
}


def attacked(seeds: int, quick: bool) -> list[Row]:
    """Derived and reached mu of every method and observer."""
    made = []
    chosen = dict(list(methods().items())[:1]) if quick else methods()
    for method, (algorithm, network) in chosen.items():
        with jax.enable_x64(True):
            views = viewer(algorithm, world(network.m, 0, 1.0), network, 4)
        for name, (observer, node) in OBSERVERS.items():
            how: Any = {"steps": 4, "views": views}
            pairs = [reached(algorithm, network, observer, node, seed=seed, **how) for seed in range(seeds)]
            case = f"Attack: {method}: {name}"
            made.append(row(case, "derived mu", None, [pairs[0][1]]))
            made.append(row(case, "reached / derived", 1.0, [one / wanted for one, wanted in pairs if wanted > 0]))
    return made


SIGNS = {rounds: np.array(list(product((1.0, -1.0), repeat=rounds))) for rounds in (4, 6)}  # of changes


def line(slopes: np.ndarray) -> float:
    """Mu, in units of one release's, of node 0 of a line for the last node, with slopes [T, m] of gradients.

    Changes of node 0's releases have the most revealing signs.

    x <- W (x + slope x - y) with the released y; the observer sees what its neighbour sends.
    """
    rounds, m = slopes.shape
    W = np.asarray(as_dense(jdfl.network.from_edges([(i, i + 1) for i in range(m - 1)], m).graph), float)
    x, seen = np.zeros((m, rounds, m)), []
    for k in range(rounds):
        x = x * (1 + slopes[k])[:, None, None]
        x[np.arange(m), k, np.arange(m)] -= 1.0
        seen.append(x[m - 2])
        x = np.einsum("ij,jpu->ipu", W, x)
    rows = np.array(seen)
    noise = rows[:, :, : m - 1].reshape(rounds, -1)
    M = blocks(rows, noise)[0]
    return float(np.sqrt(np.max(np.einsum("kt,ts,ks->k", SIGNS[rounds], M, SIGNS[rounds]))))


def worst_slopes(low: float, high: float, rounds: int, seed: int, tries: int) -> float:
    """The largest mu found in `tries` searches over slopes that are zero or at an end of an interval."""
    random, ends, best = np.random.default_rng(seed), sorted({low, 0.0, high}), 0.0
    for _ in range(tries):
        slopes = random.choice(ends, (rounds, 4))
        value, better = line(slopes), True
        while better:
            better = False
            for place in np.ndindex(slopes.shape):
                for end in ends:
                    other = slopes.copy()
                    other[place] = end
                    if (found := line(other)) > value * (1 + 1e-9):
                        slopes, value, better = other, found, True
        best = max(best, value)
    return best


def hidden(seeds: int, quick: bool) -> list[Row]:
    """Derived mu, of fixed gradients, and the largest with hidden slopes."""
    made = []
    for rounds in (4,) if quick else (4, 6):
        fixed = line(np.zeros((rounds, 4)))
        for low, high in ((-1.0, 0.0), (-2.0, 0.0), (-1.0, 1.0), (-5.0, 5.0)):
            found = [worst_slopes(low, high, rounds, seed, 2 if quick else 10) for seed in range(seeds)]
            case = f"Hidden slopes in [{low:g}, {high:g}], {rounds} rounds"
            made.append(row(case, "derived mu", None, [fixed]))
            made.append(row(case, "largest / derived", 1.0, [max(found) / fixed]))
    return made


def networks(quick: bool) -> list[Row]:
    """Epsilon of pairs of nodes, together with that of everyone."""
    m, steps = (12, 6) if quick else (100, 100)
    known = {
        "ring": jdfl.network.ring(m),
        "Erdos-Renyi": jdfl.network.erdos_renyi(m, 0.1 if m == 100 else 0.4, seed=1),
        "exponential": jdfl.network.exponential(m),
    }
    noise = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(10.0))
    made: list[Row] = []
    for name, network in known.items():
        found = observe_pairs(jdfl.DPSGD(gradients=noise), world(m, 0, 1.0), network, steps=steps, delta=1e-5)
        case = f"Networks: {name}, {m} nodes, {steps} rounds"
        made.append(row(case, "median epsilon of pairs", None, [found.median]))
        made.append(row(case, "largest", None, [float(np.nanmax(found.epsilon))]))
        made.append(row(case, "epsilon of everyone", None, [found.epsilon_claimed]))
    return made


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All parts; with `--quick` one method and small networks."""
    pairs = networks(chosen.quick)
    rows = [*attacked(chosen.seeds, chosen.quick), *hidden(chosen.seeds, chosen.quick), *pairs]
    columns = ["median epsilon of pairs", "largest", "epsilon of everyone"]
    return Made({"What observers learn": rows}, bars(pairs, columns, "epsilon, of fixed gradients"))
