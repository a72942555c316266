"""The attacks of `experiments.attacks`: one for every statement about privacy that was refuted once.

An attack is a score of every run, by a rule fixed beforehand, from what the observer of the claim gets to see. Where
that is computed from the data without noise, all runs of a world have one score. Axes: m nodes, N runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.attack_worlds import DELTA, Claim, M, N, claim, curved, dataset, regression, shown, sign
from jdfl.algorithms.exchange import MODEL
from jdfl.network import Network
from jdfl.privacy.relation import uncovered
from jdfl.problems import averaging, classification
from jdfl.stopping import View
from jdfl.streams import declared

ALONE = jdfl.network.from_edges([], M, connected=False)  # parameters are what would be sent
PAIR = jdfl.network.complete(M)
Z = 5.0  # of Gaussian noise, in units of the sensitivity
NOISY: Any = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(Z))
DESCENT: Any = jdfl.DPSGD(lr=1.0, gradients=NOISY)
SHORT = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
MESSAGES = jdfl.DPPS(b=0.5, noise_rate=1.0)


@dataclass(frozen=True)
class Attack:
    """A claim, what jdfl says of it today, and the scores [N] of N runs in a world, 0 or 1, from a seed."""

    claim: str
    claimed: Callable[[], Claim]
    scores: Callable[[int, int, int], np.ndarray]  # world, runs, seed
    runs: int = 4000
    threshold: float | None = None  # above which a score is taken for the second world; None: fitted on half


def _run(
    words: str,
    algorithm: Any,
    network: Network,
    look: Any,
    *,
    problem: Callable[[int], Any] = regression,
    steps: int = 1,
    parameters: bool = False,
    **how: Any,
) -> Attack:
    """An attack on runs of an algorithm; it looks at `parameters` beyond messages."""
    return Attack(
        words,
        lambda: claim(algorithm, problem(0), network, steps, parameters=parameters),
        lambda world, runs, seed: shown(algorithm, problem(world), network, steps, runs, seed, look),
        **how,
    )


def _whole(world: int) -> Any:
    return regression(world, whole=True)


def _partly_shared(world: int) -> Any:
    return _whole(world).replace(shared=N - 1)


def _one_number(world: int, m: int) -> Any:
    return regression(world, whole=True, m=m, q=1, n=1)


def _sum(ready: Any, state: Any, _: Any) -> jax.Array:
    """Of node 0's parameters: all data lie in this direction."""
    return ready.params(state)[0].sum()


def _without_guessed_noise(ready: Any, state: Any, setting: Any) -> jax.Array:
    """What node 0 sends, less the noise that the codec's shared key would give."""
    now = setting.keys.at_round(0)
    key = MODEL.keys(now.shared, setting.node)[0]
    scale = ready.updates.mechanism.multiplier * ready.updates.sensitivity(N)
    return (ready.params(state)[0] - scale * jax.random.normal(key, (N,))).sum()


def _without_own_noise(ready: Any, state: Any, setting: Any) -> jax.Array:
    """Twice the mean, less what client 1 sent, its own noise, in units of the remaining noise."""
    own = declared()["updates.noise"].keys(setting.keys.at_round(0).private, setting.node)[1]
    scale = ready.updates.mechanism.multiplier * ready.updates.sensitivity(1) / M**0.5
    return (M * ready.params(state)[0, 0] - scale * jax.random.normal(own, (1,))[0]) / scale


def _last_step(ready: Any, state: Any, _: Any) -> jax.Array:
    """PEDFL's parameters less what came of messages."""
    return (ready.params(state)[0] - state.mixed.s[0]).sum()


def _last_step_dpdo(ready: Any, state: Any, _: Any) -> jax.Array:
    """DPDO's parameters less the mean of messages."""
    return (ready.params(state)[0] - state.sent.mean(axis=0)).sum()


def _last_step_cpgt(ready: Any, state: Any, _: Any) -> jax.Array:
    """CPGT's parameters after a round from zero, less what came of messages."""
    return (ready.params(state)[0] - ready.gamma * (state.x_hat.mean(axis=0) - state.x_hat[0])).sum()


def _local(ready: Any, state: Any, _: Any) -> jax.Array:
    """The parameter that stays with node 0."""
    return ready.params(state)[0, -1]


def _length(ready: Any, state: Any, _: Any) -> jax.Array:
    """How long the noise of node 0's parameters is."""
    return jnp.log(jnp.linalg.norm(ready.params(state)[0]))


def _two_runs() -> Attack:
    """Twice the first of two runs with one key, less the second, which has twice the noise."""
    double = DESCENT.replace(gradients=NOISY.replace(mechanism=jdfl.Gaussian(2 * Z)))

    def claimed() -> Claim:
        each = [claim(one, regression(0), ALONE, 1, delta=DELTA / 2) for one in (DESCENT, double)]
        return Claim(sum(one.epsilon or 0.0 for one in each))

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        first, second = (shown(one, regression(world), ALONE, 1, runs, seed, _sum) for one in (DESCENT, double))
        return 2 * first - second

    return Attack("two runs with one key and other settings cost the sum of their epsilons", claimed, scores)


def _prepared(words: str, make: Callable[[int], Any], seen: Callable[[Any], float]) -> Attack:
    """An attack on what is computed from all records before a run, as a node sees it in its own records."""

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        return np.full(runs, seen(make(world)))

    return Attack(words, lambda: claim(DESCENT, make(0), ALONE, 1), scores)


def _stopped() -> Attack:
    """Whether a rule on the objective has fired after the first round."""
    rule = jdfl.objective_below(10.0)

    def problem(world: int) -> Any:
        found: Any = regression(0)
        return found.replace(data=(found.data[0], found.data[1] * world))

    def claimed() -> Claim:
        result = jdfl.run(DESCENT, problem(0), ALONE, steps=1, stop=rule, metrics=[])
        try:
            return Claim(jdfl.account(result, delta=DELTA).epsilon)
        except ValueError as error:
            return Claim(None, str(error))

    def look(world: int) -> Any:
        def fired(ready: Any, state: Any, _: Any) -> jax.Array:
            view = View(jnp.int32(1), ready.params(state), jnp.ones((M,), jnp.int32), problem(world))
            return jnp.where(rule(view), 1.0, 0.0)

        return fired

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        return shown(DESCENT, problem(world), ALONE, 1, runs, seed, look(world))

    return Attack("a run that a rule on the objective ends has the epsilon of its messages", claimed, scores)


def _nothing_sent() -> Attack:
    """The parameters of push-sum whose budget allows no round."""

    def run(world: int) -> jdfl.Result:
        vectors = averaging(np.array([[sign(world), 0.0], [0.0, 0.0]]))
        algorithm = jdfl.AverageConsensus(clip=1.0, dpps=MESSAGES)
        return jdfl.run(algorithm, vectors, PAIR, steps=3, epsilon=1e-4, delta=DELTA, metrics=[])

    def claimed() -> Claim:
        told = jdfl.account(run(0), delta=DELTA)
        return Claim(None, uncovered(told.local, DELTA)) if told.local else Claim(told.epsilon)

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        return np.full(runs, float(run(world).params[0, 0]))

    return Attack("a run whose budget allows no round has epsilon zero, final parameters included", claimed, scores)


def attacks() -> Mapping[str, Attack]:
    """All of them, by name."""
    updates = jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(Z))
    ceps: Any = jdfl.CEPS(
        s=N,
        rate=1.0,
        codec=jdfl.Dense(),
        sigma=1.0,
        period=jnp.full((M,), 2, jnp.int32),
        clip=1.0,
        mechanism=jdfl.Gaussian(Z),
    )
    server: Any = jdfl.FedAvg(lr=1.0, local_steps=1)
    laplace = jdfl.Updates(clip=1.0, mechanism=jdfl.Laplace(0.25), trust="central")
    central = jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(2.0), trust="central")
    clients = np.repeat([0, 1], 20)
    return {
        "noise of updates beside a codec": _run(
            "receivers, who share keys with the codec, do not know the noise of updates",
            jdfl.DPSGD(lr=1.0, updates=updates, codec=jdfl.RandomK(k=4)),
            ALONE,
            _without_guessed_noise,
            problem=_whole,
        ),
        "FedAvg, Laplace, central": _run(
            "a mean of Laplace noise protects as one Laplace variable",
            server.replace(updates=laplace),
            jdfl.network.complete(20),
            _sum,
            problem=lambda world: _one_number(world, 20),
            runs=40_000,
        ),
        "FedAvg, Gaussian, central": _run(
            "a client that subtracts its own noise from the mean learns no more than epsilon",
            server.replace(updates=central),
            PAIR,
            _without_own_noise,
            problem=lambda world: _one_number(world, M),
            runs=2_000_000,
            threshold=3.65,  # four standard deviations above the mean of the first world
        ),
        "standardised columns": _prepared(
            "columns standardised by means and deviations of all records tell of no record",
            lambda world: classification(
                dataset(1e3 * world, 0, standardise=True), M, partition="clients", clients=clients, test_fraction=0.0
            ),
            lambda problem: float(np.abs(problem.data[0][1]).max()),
        ),
        "hold-out by labels": _prepared(
            "which records are held out tells of no record",
            lambda world: classification(
                dataset(0.0, world), M, partition="clients", clients=clients, test_fraction=0.275, seed=3
            ),
            lambda problem: float(np.sum(problem.data[0][1] * problem.weight[1][:, None])),
        ),
        "split by labels": _prepared(
            "which node has a record tells of no other record",
            lambda world: classification(dataset(0.0, world), M, partition="shards", test_fraction=0.0, seed=4),
            lambda problem: float(np.sum(problem.data[0][1])),
        ),
        "CEPS, sigma from curvature": _run(
            "sigma_i computed from a node's records tells of none",
            ceps.replace(s=50, sigma=None),
            ALONE,
            _length,
            problem=curved,
        ),
        "two runs with one key": _two_runs(),
        "PEDFL, parameters": _run(
            "epsilon covers the final parameters",
            jdfl.PEDFL(gradients=SHORT, dpps=MESSAGES),
            PAIR,
            _last_step,
            problem=_whole,
            parameters=True,
        ),
        "DPDO, parameters": _run(
            "epsilon covers the final parameters",
            jdfl.DPDO(c=0.5, q=0.5, p=0.8, epsilon=1.0, gradients=SHORT),
            PAIR,
            _last_step_dpdo,
            problem=_whole,
            parameters=True,
        ),
        "CPGT, parameters": _run(
            "epsilon covers the final parameters",
            jdfl.CPGT(lr=0.5, gamma=0.5, noise_x=3.0, noise_y=24.0, gradients=SHORT),
            PAIR,
            _last_step_cpgt,
            problem=_whole,
            parameters=True,
        ),
        "PartPSP, local part": _run(
            "epsilon covers the parameters that stay with a node",
            jdfl.PartPSP(gradients=SHORT, dpps=MESSAGES),
            PAIR,
            _local,
            problem=_partly_shared,
            parameters=True,
        ),
        "AverageConsensus, nothing sent": _nothing_sent(),
        "CEPS, noise as printed": _run(
            "noise that is not stored in u protects", ceps.replace(noise="literal"), ALONE, _sum
        ),
        "noise after messages only": _run(
            "noise on the gradients that follow an exchange protects",
            jdfl.DPSGD(lr=1.0, period=40, gradients=NOISY.replace(noisy="communicating")),
            ALONE,
            _sum,
            steps=40,
        ),
        "unclipped gradients": _run(
            "noise scaled by an assumed sensitivity protects",
            jdfl.DPSGD(lr=1.0, gradients=NOISY.replace(clip=None, sensitivity=1.0)),
            ALONE,
            _sum,
        ),
        "stop rule on data": _stopped(),
    }
