"""Refuted statements about privacy, each with the attack that refuted it.

Every row is a statement printed by an earlier version: an epsilon for something that reveals more. An attack is a rule
fixed in advance, or a threshold fitted on half of the runs; it proves a lower bound on epsilon at delta = 1e-5, by
Clopper and Pearson at 95 %. Verdicts:

- held: an epsilon is claimed, and the bound is no larger;
- trust: an epsilon is claimed on its author's word, such as that of a user's own mechanism, and says so;
- no claim: no epsilon is given for what the attack observes, whatever it shows;
- EXCEEDED: the bound is larger than the claim. The goal is that this never happens.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jdfl
from experiments.attack_bits import bits
from experiments.attack_steps import attacks as of_steps
from experiments.attack_worlds import (
    ALONE,
    DELTA,
    DESCENT,
    FAR,
    MESSAGES,
    NOISY,
    PAIR,
    SHORT,
    Attack,
    Claim,
    M,
    N,
    Z,
    claim,
    curved,
    dataset,
    regression,
    shown,
    sign,
    towards,
)
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.auditing.attack import attack as fitted
from jdfl.auditing.attack import epsilon_bound, errors
from jdfl.base.streams import declared
from jdfl.engine import invariants, spending
from jdfl.engine.stopping import View
from jdfl.network import Network
from jdfl.privacy import GaussianEvent
from jdfl.privacy.report import uncovered
from jdfl.problems import averaging, classification


@jax.tree_util.register_pytree_node_class
class OwnNoise:
    """Gaussian noise of `z` sensitivities, from a class that is not a dataclass."""

    norm = "l2"

    def __init__(self, z: Any) -> None:
        self.z = z

    def check(self) -> None:
        """Accept any number."""

    def add(self, key: jax.Array, x: jax.Array, sensitivity: Any) -> jax.Array:
        return x + self.z * sensitivity * jax.random.normal(key, x.shape, x.dtype)

    def event(self) -> GaussianEvent:
        return GaussianEvent(float(self.z))

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.z,), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[Any]) -> "OwnNoise":
        return cls(*leaves)


FRESH = 1_000_003  # added to the seed of a second run that is given no key, so that its keys are others


def two_runs(
    what: str,
    pair: Sequence[Any],
    weights: tuple[float, float],
    problems: Sequence[Callable[[int], Any]] = (regression, regression),
    *,
    shared: bool = True,
) -> Attack:
    """A sum of two runs in which noise that they share cancels.

    Args:
        what: What differs between the runs.
        pair: The methods of the two.
        weights: The factors of the two in the sum.
        problems: What makes the problems of the two, of a world.
        shared: Whether both are given one key; otherwise neither is given any.
    """

    def claimed() -> Claim:
        how: Any = {"steps": 1, "metrics": [], **({"key": 0} if shared else {})}
        made = [jdfl.run(one, problem(0), ALONE, **how) for one, problem in zip(pair, problems)]
        try:
            return Claim(jdfl.spent_together(made, delta=DELTA)[0])
        except ValueError as error:
            return Claim(None, str(error))

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        seeds = (seed, seed if shared else seed + FRESH)
        given = zip(pair, problems, seeds)
        first, second = (shown(one, problem(world), ALONE, 1, runs, own, towards) for one, problem, own in given)
        return weights[0] * first + weights[1] * second

    keys = "one key" if shared else "no key given"
    return Attack(f"two runs with {keys} and {what} have a joint epsilon", claimed, scores)


def near(world: int) -> Any:
    """The problem with a record whose gradient has norm 1.5 at the start: between the clips 1 and 2."""
    found: Any = regression(world)
    return found.replace(data=(found.data[0], found.data[1] * (1.5 / FAR)))


def negated(world: int) -> Any:
    """The problem of the loss with the other sign: its gradient at the start is the negative one."""
    found: Any = regression(world)
    return found.replace(data=(found.data[0], -found.data[1]))


def prepared(words: str, make: Callable[[int], Any], seen: Callable[[Any], float]) -> Attack:
    """An attack on values computed from all records before a run, as a node sees them in its own records."""

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        return np.full(runs, seen(make(world)))

    return Attack(words, lambda: claim(DESCENT, make(0), ALONE, 1), scores)


def stopped() -> Attack:
    """Whether a rule on the objective has fired after the first round."""
    rule = jdfl.objective_below(10.0)

    def claimed() -> Claim:
        return _of_a_run(jdfl.run(DESCENT, _learnt(0), ALONE, steps=1, stop=rule, metrics=[]))

    def look(world: int) -> Any:
        def fired(ready: Any, state: Any, _: Any) -> jax.Array:
            view = View(jnp.int32(1), ready.params(state), jnp.ones((M,), jnp.int32), _learnt(world))
            return jnp.where(rule(view), 1.0, 0.0)

        return fired

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        return shown(DESCENT, _learnt(world), ALONE, 1, runs, seed, look(world))

    return Attack("a run that a rule on the objective ends has the epsilon of its messages", claimed, scores)


def agreed() -> Attack:
    """Whether a rule on the parameters has fired after the first round, where they contain a step without noise."""
    algorithm: Any = jdfl.DPDO(c=0.5, q=0.5, p=0.8, epsilon=1e4, gradients=SHORT)
    rule = jdfl.consensus_below(1e-3)

    def claimed() -> Claim:
        return _of_a_run(jdfl.run(algorithm, _learnt(0), ALONE, steps=1, stop=rule, metrics=[]))

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        def fired(ready: Any, state: Any, _: Any) -> jax.Array:
            view = View(jnp.int32(1), ready.params(state), jnp.ones((M,), jnp.int32), _learnt(world))
            return jnp.where(rule(view), 1.0, 0.0)

        return shown(algorithm, _learnt(world), ALONE, 1, runs, seed, fired)

    return Attack("a run that agreement ends has the epsilon of its messages", claimed, scores)


def broken_off() -> Attack:
    """Whether a run ended after the first round because of a number that its optimizer keeps and never sends."""
    updates = jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(Z))
    algorithm: Any = jdfl.DPSGD(lr=0.1, optimizer=optax.adam, updates=updates)

    def ended(ready: Any, state: Any, setting: Any) -> jax.Array:
        bad = invariants.bad_nodes(ready, state, None, setting.watched)
        return jnp.zeros(()) if bad is None else jnp.any(bad).astype(float)

    def problem(world: int) -> Any:
        found: Any = regression(0)
        return found.replace(data=(found.data[0], found.data[1] * 10.0 ** (22 * world)))

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        watched = spending.watched(spending.guarantee_of(algorithm, problem(world)), problem(world))
        return shown(algorithm, problem(world), ALONE, 1, runs, seed, ended, watched)

    return Attack(
        "a run that ends with the first number that is not finite has the epsilon of its messages",
        lambda: claim(algorithm, problem(0), ALONE, 1),
        scores,
    )


def nothing_sent() -> Attack:
    """The parameters of push-sum whose budget allows no round."""

    def run(world: int) -> jdfl.Result:
        vectors = averaging(np.array([[sign(world), 0.0], [0.0, 0.0]]))
        algorithm = jdfl.AverageConsensus(clip=1.0, dpps=MESSAGES)
        return jdfl.run(algorithm, vectors, PAIR, steps=3, metrics=[], callbacks=[jdfl.Budget(1e-4, DELTA)])

    def claimed() -> Claim:
        told = jdfl.account(run(0), delta=DELTA)
        return Claim(None, uncovered(told.local, DELTA)) if told.local else Claim(told.epsilon)

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        return np.full(runs, float(run(world).params[0, 0]))

    return Attack("a run whose budget allows no round has epsilon zero, final parameters included", claimed, scores)


def tuned() -> Attack:
    """The larger of two learning rates is chosen where there is something to learn, and otherwise the smaller one."""

    def compared(world: int) -> jdfl.Comparison:
        noisy = DESCENT.replace(gradients=NOISY.replace(mechanism=jdfl.Gaussian(0.9)))
        entries = {"one": jdfl.Entry(noisy, tune={"lr": [0.01, 1.0]})}
        tune = jdfl.Tuning(keys=range(1, 101), extend=0)  # enough for a mean with little noise
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two rates have no middle one
            how: Any = {"trials": [0], "steps": 1, "delta": DELTA, "budget": {"round": None}, "tuning": tune}
            return jdfl.compare(entries, _learnt(world), ALONE, **how)

    def claimed() -> Claim:
        (found,) = compared(0).results["one"]
        return _of_a_run(found)

    def scores(world: int, runs: int, seed: int) -> np.ndarray:
        return np.full(runs, compared(world).tuned["one"].values["lr"])

    return Attack("a learning rate that was tuned on the data reveals no record", claimed, scores)


def _learnt(world: int) -> Any:
    """Labels that are all zero, or with one far away."""
    found: Any = regression(0)
    return found.replace(data=(found.data[0], found.data[1] * world))


def _of_a_run(result: jdfl.Result) -> Claim:
    try:
        return Claim(jdfl.account(result, delta=DELTA).epsilon)
    except ValueError as error:
        return Claim(None, str(error))


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
            [{"mechanism": OwnNoise(times * Z)} for times in (1, 2)],
        )
    )
    signs: Any = [DESCENT, DESCENT], (1.0, -1.0), (regression, negated)
    return {
        "two runs, other clip": two_runs("another clip", clips, (2.0, -1.0), (near, near)),
        "two runs, other noise": two_runs("another multiplier", noises, (2.0, -1.0)),
        "two runs, user-defined noise": two_runs("other noise of a user-defined class", own, (2.0, -1.0)),
        "two runs, loss negated": two_runs("the negative of the loss", *signs),
        "two runs without a key": two_runs("the negative of the loss", *signs, shared=False),
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
        "standardised columns": prepared(
            "columns standardised by means and deviations of all records reveal no record",
            lambda world: classification(
                dataset(1e3 * world, 0, standardise=True), M, partition="clients", clients=clients, test_fraction=0.0
            ),
            lambda problem: float(np.abs(problem.data[0][1]).max()),
        ),
        "hold-out by labels": prepared(
            "the choice of held-out records reveals no record",
            lambda world: classification(
                dataset(0.0, world), M, partition="clients", clients=clients, test_fraction=0.275, seed=3
            ),
            lambda problem: float(np.sum(problem.data[0][1] * problem.weight[1][:, None])),
        ),
        "split by labels": prepared(
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
        "AverageConsensus, nothing sent": nothing_sent(),
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
        "stop rule on data": stopped(),
        "stop rule on parameters": agreed(),
        "numbers not finite": broken_off(),
        "tuned rate": tuned(),
        "last bits": bits(),
        **of_steps(),
    }


CONFIDENCE = 0.95


@dataclass(frozen=True)
class Found:
    """What an attack shows, compared with the claim."""

    bound: float
    epsilon: float | None  # claimed; None: nothing is
    words: str  # why nothing is
    trusted: bool = False  # whether the claim rests on its author's word

    @property
    def verdict(self) -> str:
        if self.epsilon is None:
            return "no claim"
        if self.trusted:
            return "trust"
        return "held" if self.bound <= self.epsilon else "EXCEEDED"


def bound(one: Attack, seed: int = 0) -> float:
    """The epsilon that the attack proves at DELTA."""
    zero, other = (one.scores(world, one.runs, 2 * seed + world) for world in (0, 1))
    if one.threshold is None:
        return fitted(zero[:, None], other[:, None], delta=DELTA, confidence=CONFIDENCE).epsilon_lower
    wrong = errors(zero, other, one.threshold)
    return epsilon_bound(*wrong, len(zero), len(other), DELTA, CONFIDENCE)


def judge(one: Attack, seed: int = 0) -> Found:
    told = one.claimed()
    return Found(bound(one, seed), told.epsilon, told.words, told.trusted)


def collect(found: Mapping[str, Sequence[Found]]) -> list[Row]:
    """For every attack: the claim, if any, the bound it shows, and whether the goal is met."""
    rows: list[Row] = []
    for name, each in found.items():
        claims = [one.epsilon for one in each if one.epsilon is not None]
        rows += [row(name, "claimed epsilon", None, claims)] if claims else []
        rows.append(row(name, "attack bound", None, [one.bound for one in each]))
        rows.append(row(name, "exceeded", 0.0, [float(one.verdict == "EXCEEDED") for one in each]))
    return rows


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All attacks; with `--quick` those whose runs are few, and of steps those with a claim."""
    wanted = {name: one for name, one in attacks().items() if not chosen.quick or (one.runs <= 10_000 and one.brief)}
    found = {name: [judge(one, seed) for seed in range(chosen.seeds)] for name, one in wanted.items()}
    for name, each in found.items():
        print(f"{each[0].verdict:<9} {name}: {wanted[name].claim}. {each[0].words}")
    rows = collect(found)
    fig = bars(rows, ["attack bound"], "epsilon that the attack shows", marks="claimed epsilon")
    return Made({f"Refuted statements, delta = {DELTA:g}": rows}, fig)
