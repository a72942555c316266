"""Attacks on what enters a run besides its messages: other runs, preprocessing, stop rules, tuning, budgets."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jdfl
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
    Z,
    claim,
    regression,
    shown,
    sign,
    towards,
)
from jdfl.engine import invariants, spending
from jdfl.engine.stopping import View
from jdfl.privacy import GaussianEvent
from jdfl.privacy.report import uncovered
from jdfl.problems import averaging


@jax.tree_util.register_pytree_node_class
class OwnNoise:
    """Gaussian noise of `z` sensitivities, from a class that is not a dataclass."""

    norm = "l2"

    def __init__(self, z: Any) -> None:
        self.z = z

    def check(self) -> None:
        """Accept any number."""

    def add(self, key: jax.Array, x: jax.Array, sensitivity: Any) -> jax.Array:
        """X [n] with noise."""
        return x + self.z * sensitivity * jax.random.normal(key, x.shape, x.dtype)

    def event(self) -> GaussianEvent:
        """One release, for accounting."""
        return GaussianEvent(float(self.z))

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """The multiplier, and nothing static."""
        return (self.z,), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[Any]) -> "OwnNoise":
        """Rebuild from the multiplier."""
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
    """The claim about a run's messages."""
    try:
        return Claim(jdfl.account(result, delta=DELTA).epsilon)
    except ValueError as error:
        return Claim(None, str(error))
