"""The attacks of `experiments.attacks`: one for every statement about privacy that was once refuted.

An attack assigns each run a score, by a rule fixed in advance, from what the claim's observer sees. Where that is
computed from the data without noise, all runs of a world have the same score. Axes: m nodes, N runs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments import attack_beside as beside
from experiments.attack_bits import bits
from experiments.attack_steps import attacks as of_steps
from experiments.attack_worlds import (
    ALONE,
    DESCENT,
    MESSAGES,
    NOISY,
    PAIR,
    SHORT,
    Attack,
    M,
    N,
    Z,
    claim,
    curved,
    dataset,
    regression,
    shown,
    towards,
)
from jdfl.base.streams import declared
from jdfl.network import Network
from jdfl.problems import classification


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
    """An attack on runs of an algorithm; with `parameters`, on more than messages."""
    return Attack(
        words,
        lambda: claim(algorithm, problem(0), network, steps, parameters=parameters),
        lambda world, runs, seed: shown(algorithm, problem(world), network, steps, runs, seed, look),
        **how,
    )


def _pairs() -> dict[str, Attack]:
    """Two runs that differ in one thing, with one key, and without any."""
    clips, noises, own = (
        [DESCENT.replace(gradients=NOISY.replace(**change)) for change in changes]
        for changes in (
            [{"clip": 1.0}, {"clip": 2.0}],
            [{"mechanism": jdfl.Gaussian(times * Z)} for times in (1, 2)],
            [{"mechanism": beside.OwnNoise(times * Z)} for times in (1, 2)],
        )
    )
    signs: Any = [DESCENT, DESCENT], (1.0, -1.0), (regression, beside.negated)
    return {
        "two runs, other clip": beside.two_runs("another clip", clips, (2.0, -1.0), (beside.near, beside.near)),
        "two runs, other noise": beside.two_runs("another multiplier", noises, (2.0, -1.0)),
        "two runs, user-defined noise": beside.two_runs("other noise of a user-defined class", own, (2.0, -1.0)),
        "two runs, loss negated": beside.two_runs("the negative of the loss", *signs),
        "two runs without a key": beside.two_runs("the negative of the loss", *signs, shared=False),
    }


def _parameters(algorithm: Any, look: Any) -> Attack:
    """An attack on final parameters, through the part that no message has revealed."""
    return _run("epsilon covers the final parameters", algorithm, PAIR, look, problem=_whole, parameters=True)


def _whole(world: int) -> Any:
    return regression(world, whole=True)


def _partly_shared(world: int) -> Any:
    return _whole(world).replace(shared=N - 1)


def _one_number(world: int, m: int) -> Any:
    return regression(world, whole=True, m=m, q=1, n=1)


def _without_guessed_noise(ready: Any, state: Any, setting: Any) -> jax.Array:
    """What node 0 sends, minus the noise that the codec's shared key would give."""
    now = setting.keys.at_round(0)
    key = declared()["message.model"].keys(now.shared, setting.node)[0]
    scale = ready.algorithm.updates.mechanism.multiplier * ready.algorithm.updates.sensitivity(N)
    return (ready.params(state)[0] - scale * jax.random.normal(key, (N,))).sum()


def _without_own_noise(ready: Any, state: Any, setting: Any) -> jax.Array:
    """Twice the mean, minus client 1's message and own noise, in units of the remaining noise."""
    own = declared()["updates.noise"].keys(setting.keys.at_round(0).private, setting.node)[1]
    scale = ready.algorithm.updates.mechanism.multiplier * ready.algorithm.updates.sensitivity(1) / M**0.5
    return (M * ready.params(state)[0, 0] - scale * jax.random.normal(own, (1,))[0]) / scale


def _last_step(ready: Any, state: Any, _: Any) -> jax.Array:
    """PEDFL's parameters minus the contribution of messages."""
    return (ready.params(state)[0] - state.mixed.s[0]).sum()


def _last_step_dpdo(ready: Any, state: Any, _: Any) -> jax.Array:
    """DPDO's parameters minus the mean of messages."""
    return (ready.params(state)[0] - state.sent.mean(axis=0)).sum()


def _last_step_cpgt(ready: Any, state: Any, _: Any) -> jax.Array:
    """CPGT's parameters after a round from zero, minus the contribution of messages."""
    return (ready.params(state)[0] - ready.algorithm.gamma * (state.x_hat.mean(axis=0) - state.x_hat[0])).sum()


def _local(ready: Any, state: Any, _: Any) -> jax.Array:
    """The parameter that stays with node 0."""
    return ready.params(state)[0, -1]


def _length(ready: Any, state: Any, _: Any) -> jax.Array:
    """The norm of the noise in node 0's parameters."""
    return jnp.log(jnp.linalg.norm(ready.params(state)[0]))


def attacks() -> Mapping[str, Attack]:
    """All attacks, by name."""
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
        "noise of updates with a codec": _run(
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
            towards,
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
        "standardised columns": beside.prepared(
            "columns standardised by means and deviations of all records reveal no record",
            lambda world: classification(
                dataset(1e3 * world, 0, standardise=True), M, partition="clients", clients=clients, test_fraction=0.0
            ),
            lambda problem: float(np.abs(problem.data[0][1]).max()),
        ),
        "hold-out by labels": beside.prepared(
            "the choice of held-out records reveals no record",
            lambda world: classification(
                dataset(0.0, world), M, partition="clients", clients=clients, test_fraction=0.275, seed=3
            ),
            lambda problem: float(np.sum(problem.data[0][1] * problem.weight[1][:, None])),
        ),
        "split by labels": beside.prepared(
            "the node that has a record reveals no other record",
            lambda world: classification(dataset(0.0, world), M, partition="shards", test_fraction=0.0, seed=4),
            lambda problem: float(np.sum(problem.data[0][1])),
        ),
        "CEPS, sigma from curvature": _run(
            "sigma_i computed from a node's records reveals none",
            ceps.replace(s=50, sigma=None),
            ALONE,
            _length,
            problem=curved,
        ),
        **_pairs(),
        "PEDFL, parameters": _parameters(jdfl.PEDFL(gradients=SHORT, dpps=MESSAGES), _last_step),
        "DPDO, parameters": _parameters(jdfl.DPDO(c=0.5, q=0.5, p=0.8, epsilon=1.0, gradients=SHORT), _last_step_dpdo),
        "CPGT, parameters": _parameters(
            jdfl.CPGT(lr=0.5, gamma=0.5, noise_x=3.0, noise_y=24.0, gradients=SHORT, codec=jdfl.Dense()),
            _last_step_cpgt,
        ),
        "PartPSP, local part": _run(
            "epsilon covers the parameters that stay with a node",
            jdfl.PartPSP(gradients=SHORT, dpps=MESSAGES),
            PAIR,
            _local,
            problem=_partly_shared,
            parameters=True,
        ),
        "AverageConsensus, nothing sent": beside.nothing_sent(),
        "CEPS, noise as printed": _run(
            "noise that is not stored in u protects", ceps.replace(noise="literal"), ALONE, towards
        ),
        "noise after messages only": _run(
            "noise on the gradients that follow an exchange protects",
            jdfl.DPSGD(lr=1.0, period=40, gradients=NOISY.replace(noisy="communicating")),
            ALONE,
            towards,
            steps=40,
        ),
        "unclipped gradients": _run(
            "noise scaled by an assumed sensitivity protects",
            jdfl.DPSGD(lr=1.0, gradients=NOISY.replace(clip=None, sensitivity=1.0)),
            ALONE,
            towards,
        ),
        "stop rule on data": beside.stopped(),
        "stop rule on parameters": beside.agreed(),
        "numbers not finite": beside.broken_off(),
        "tuned rate": beside.tuned(),
        "last bits": bits(),
        **of_steps(),
    }
