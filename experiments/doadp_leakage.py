"""DO-ADP's leakage attack (II-C): gradients and records recovered from messages, without and with noise.

It takes two minutes on two cores.

W. Huo et al., section II-C: an observer who knows alpha, beta, gamma and W, and sees every x_{i,t}, computes
m_{i,t+1} = (x_{i,t} - x_{i,t+1} + gamma sum_j w_ij (x_{j,t} - x_{i,t})) / alpha and g_{i,t} = m_{i,t+1} - beta m_{i,t}.
(The paper prints a minus in front of gamma, which contradicts (2b); the experiment computes both.) Here the observer
adds up the messages s_{i,t}. An entry of x_i is known when it is sent, and continued by the public consensus term while
it is not, so that an entry's next message holds the sum of the momenta since its last one.

The networks and constants are those of the paper's section VI.A; every node has one record, a digit (odd or even) of
unit norm, and trains logistic regression without a regulariser. One row per case and column:

- "relative error of g": median over nodes and rounds with a gradient; "largest relative error of g": the maximum.
- "entries of g recovered": share of the entries that are not 0 with an error of at most 1e-3 of the gradient's root
  mean square entry.
- "relative error of the sum": of the sum of a node's momenta over the run, median over nodes.
- "relative error of the record": a logistic gradient is a multiple of the node's only record, so the record of unit
  norm is the direction of that sum (pixels are not negative, which gives the sign). "records identified": share of
  nodes whose record is the nearest by angle of all 1,797 digits.
- "linear model": the norm is not used. With g_0 = -b a and g_1 = (<a, x_1> - b) a, the row is a = r u for u = g_0 /
  ||g_0|| and r^2 = (<g_1, u> - ||g_0||) / <u, x_1>.

Noise is sound: calibrated for the run, one record replaced, delta = 1e-5, all messages seen.

Axes: m nodes, n parameters, T rounds, N records of the pool.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jdfl
from experiments import doadp_common as common
from experiments.common import Made, Options, bars, experiment, row
from jdfl.algorithms.program import planned
from jdfl.algorithms.round import Round
from jdfl.base.keys import typed_key
from jdfl.engine import stepping

ALPHA, BETA, GAMMA = 0.001, 0.15, 0.05  # of the paper's section VI.A
ROUNDS, DELTA, EXACT = 30, 1e-5, 1e-3
EPSILONS = (1000.0, 100.0, 8.0, 1.0)
PUBLISHED = "(2a)-(2b), as in II-C"
MINUS = "(2a)-(2b), the formula as printed"
LINEAR = "(2a)-(2b), linear model"


class Course(NamedTuple):
    """A run: parameters and what all nodes know of them, from the start on."""

    x: np.ndarray  # [T + 1, m, n]
    public: np.ndarray  # [T + 1, m, n] sums of the messages; x itself where x is sent


class Recovered(NamedTuple):
    """What an observer infers."""

    momenta: np.ndarray  # [T, m, n]
    gradients: np.ndarray  # [T, m, n]
    active: np.ndarray  # [T, m] bool


def records(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All digits of unit norm [N, n], the nodes' records [m] among them, and their labels [m] in {0, 1}."""
    found = jdfl.problems.load("digits")
    rows = np.asarray(found.features, float)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    chosen = np.random.default_rng(seed).choice(len(rows), common.NODES, replace=False)
    return rows, chosen, np.asarray(found.labels)[chosen] % 2


def course(algorithm: Any, problem: Any, network: Any, seed: int) -> Course:
    program = planned(algorithm, problem, network, ROUNDS)
    setting = stepping.setting(program, problem, network, None, typed_key(seed))
    begun = stepping.initial_round(setting)
    ready = algorithm.prepared(problem, begun, program.plan)

    @jax.jit
    def run() -> tuple[Any, Any]:
        def step(state: Any, k: Any) -> tuple[Any, Any]:
            new = algorithm.step(
                state, Round(context=stepping.sample_round(setting, k), problem=problem, prepared=ready)
            )
            return new, new

        state = algorithm.init(Round(context=begun, problem=problem, prepared=ready))
        return state, jax.lax.scan(step, state, jnp.arange(ROUNDS, dtype=jnp.int32))[1]

    first, rest = run()

    def whole(name: str) -> np.ndarray:
        return np.concatenate([np.asarray(getattr(first, name))[None], np.asarray(getattr(rest, name))])

    x = whole("x")
    return Course(x, whole("hat") if hasattr(first, "hat") else x)


def recovered(public: np.ndarray, mixing: np.ndarray) -> Recovered:
    """The observer's inference from the public copies [T + 1, m, n] and the matrix I + gamma (W - I) [m, m]."""
    place, momentum = public[0], np.zeros_like(public[0])
    momenta, gradients, active = [], [], []
    for before, after in pairwise(public):
        sent = before != after
        ahead = place + mixing @ before - before
        place = np.where(sent, after, ahead)
        sends = sent.any(axis=1)
        new = np.where(sends[:, None], (ahead - place) / ALPHA, BETA * momentum)
        gradients.append(new - BETA * momentum)
        momentum = new
        momenta.append(new)
        active.append(sends)
    return Recovered(np.stack(momenta), np.stack(gradients), np.stack(active))


def true_gradients(x: np.ndarray, rows: np.ndarray, labels: np.ndarray, *, linear: bool = False) -> np.ndarray:
    """The gradients [T, m, n] of the nodes' only records rows [m, n] at x [T + 1, m, n], without its last."""
    product = np.einsum("tmn,mn->tm", x[:-1], rows)
    return ((product if linear else 1 / (1 + np.exp(-product))) - labels)[..., None] * rows


def errors(given: Recovered, true: np.ndarray) -> dict[str, float]:
    """How far the recovered gradients and sums are from the true gradients [T, m, n]."""
    momentum, total, found = np.zeros_like(true[0]), np.zeros_like(true[0]), np.zeros_like(true[0])
    for t, active in enumerate(given.active):
        momentum = BETA * momentum + np.where(active[:, None], true[t], 0)
        total += np.where(active[:, None], momentum, 0)
        found += np.where(active[:, None], given.momenta[t], 0)
    apart = (given.gradients - true)[given.active]
    length = np.linalg.norm(true[given.active], axis=1)
    relative = np.linalg.norm(apart, axis=1) / length
    small = np.abs(apart) <= EXACT * length[:, None] / np.sqrt(true.shape[-1])
    changed = true[given.active] != 0
    sums = np.linalg.norm(found - total, axis=1) / np.linalg.norm(total, axis=1)
    return {
        "relative error of g": float(np.median(relative)),
        "largest relative error of g": float(relative.max()),
        "entries of g recovered": float(small[changed].mean()),
        "relative error of the sum": float(np.median(sums)),
    }


def row_of_linear(g0: np.ndarray, g1: np.ndarray, x1: np.ndarray) -> np.ndarray:
    """The features [m, n] of the nodes' only records in least squares, from two gradients and x_1, where x_0 = 0."""
    length = np.linalg.norm(g0, axis=1, keepdims=True)
    unit = g0 / length
    square = (np.sum(g1 * unit, axis=1, keepdims=True) - length) / np.sum(unit * x1, axis=1, keepdims=True)
    rows = np.sqrt(square) * unit
    return rows * np.where(rows.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)


def published(network: Any) -> tuple[Any, Any]:
    """(2a)-(2b) as D-PSGD with momentum over I + gamma (W - I), and that network."""
    algorithm = jdfl.DPSGD(lr=ALPHA, optimizer=optax.sgd(ALPHA, momentum=BETA), codec=jdfl.Dense("float64"))
    return algorithm, jdfl.network.from_matrix(mixing_of(network))


def mixing_of(network: Any) -> np.ndarray:
    W = np.asarray(jdfl.network.as_dense(network.graph), float)
    return np.eye(len(W)) + GAMMA * (W - np.eye(len(W)))


def method(p: float, share: float, epsilon: float | None, problem: Any, network: Any, seed: int) -> Any:
    """DO-ADP without noise, or with the noise that is sound for epsilon."""
    codec = jdfl.Dense("float64") if share == 1 else jdfl.Sparse(share=share)
    plain = jdfl.DOADP(lr=ALPHA, gamma=GAMMA, beta=BETA, p=p, gradients=jdfl.Gradients(batch=1), codec=codec)
    if epsilon is None:
        return plain
    noisy = replace(plain, gradients=jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    return jdfl.calibrate(noisy, problem, network, steps=ROUNDS, epsilon=epsilon, delta=DELTA, key=seed)


def cases(quick: bool) -> dict[str, tuple[float, float, float | None]]:
    """(p, k / d, epsilon) of DO-ADP by case."""
    some = [(1.0, 1.0, None), (1.0, 0.3, None), (1.0, 1.0, 8.0)]
    if not quick:
        some = [(p, share, None) for p, share in common.COLUMNS]
        some += [(1.0, share, epsilon) for share in (1.0, 0.3) for epsilon in EPSILONS]
    return {f"{common.name(p, s)}, {'no noise' if e is None else f'epsilon = {e:g}'}": (p, s, e) for p, s, e in some}


def pictured(given: Recovered) -> np.ndarray:
    """The records [m, n] of unit norm that the sums of momenta point to."""
    total = np.where(given.active[..., None], given.momenta, 0).sum(axis=0)
    unit = total / np.linalg.norm(total, axis=1, keepdims=True)
    return unit * np.where(unit.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)


def attacked(seed: int, quick: bool) -> dict[tuple[str, str], float]:
    """Numbers by case and column."""
    pool, chosen, labels = records(seed)
    rows, network = pool[chosen], common.network()
    values: dict[tuple[str, str], float] = {}
    parts = [(one[None], label[None]) for one, label in zip(rows, labels)]
    problem = jdfl.problems.logistic_regression(parts, penalty=0.0, dtype=jnp.float64)

    def add(case: str, given: Recovered, true: np.ndarray) -> None:
        image = pictured(given)
        told = errors(given, true)
        told["relative error of the record"] = float(np.median(np.linalg.norm(image - rows, axis=1)))
        told["records identified"] = float(np.mean(np.argmax(image @ pool.T, axis=1) == chosen))
        values.update({(case, column): value for column, value in told.items()})

    plain, mixed = published(network)
    W = np.asarray(jdfl.network.as_dense(mixed.graph), float)  # as it is stored, in float32
    run = course(plain, problem, mixed, seed)
    true = true_gradients(run.x, rows, labels)
    add(PUBLISHED, recovered(run.public, W), true)
    printed = recovered(run.public, 2 * np.eye(len(W)) - W)
    values.update({(MINUS, name): one for name, one in errors(printed, true).items()})
    target = np.where(labels == 1, 1.0, -1.0)
    linear = jdfl.problems.linear_regression(rows[:, None], target[:, None], dtype=jnp.float64)
    run = course(plain, linear, mixed, seed)
    given = recovered(run.public, W)
    values.update({(LINEAR, k): v for k, v in errors(given, true_gradients(run.x, rows, target, linear=True)).items()})
    found = row_of_linear(given.gradients[0], given.gradients[1], run.public[1])
    values[LINEAR, "relative error of the record"] = float(np.max(np.linalg.norm(found - rows, axis=1)))
    for case, (p, share, epsilon) in cases(quick).items():
        run = course(method(p, share, epsilon, problem, network, seed), problem, network, seed)
        add(case, recovered(run.public, mixing_of(network)), true_gradients(run.x, rows, labels))
    return values


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All cases; with `--quick` three of DO-ADP's."""
    with jax.enable_x64(True):
        found = [attacked(seed, chosen.quick) for seed in range(chosen.seeds)]
    exact = {(PUBLISHED, name): 0.0 for name in ("relative error of g", "largest relative error of g")}
    rows = [row(*place, exact.get(place), [values[place] for values in found]) for place in found[0]]
    return Made(
        {"Gradients and records from messages (II-C)": rows},
        bars(rows, ["relative error of g"], "relative error of a gradient"),
    )
