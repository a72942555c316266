"""The runs attacked by `experiments.leakage`: methods, observers, and all attacks of one configuration at once.

One program is compiled for each method and number of records; observers and budgets are numbers in it.

Axes: m nodes, S rows per node that leave it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from experiments.leakage_inversion import Found, closed_form, inverted, judged
from experiments.leakage_membership import Shadows, Shown, by_loss, by_ratio, shadows, shown
from experiments.leakage_pools import Pool, budgeted, view, watched
from jdfl.algorithms.program import Program, planned
from jdfl.base.keys import typed_key
from jdfl.engine.stepping import with_field
from jdfl.observers import Everyone, FinalModels, Neighbour, Observer, Server

M, VICTIM, CLIP, LR = 4, 1, 1.0, 0.5
INVERTED, JOINED = 3, 5  # rounds of the runs of either kind
RECORDS = 8  # of the node under a membership attack
RING = jdfl.network.ring(M)
NODES: dict[str, Observer] = {"a neighbour": Neighbour(0), "a node two links away": Neighbour(3)}
OBSERVERS = NODES | {"everyone": Everyone(), "final models": FinalModels()}
SERVED: dict[str, Observer] = {"the server": Server(), "final models": FinalModels()}

Budget = float | None  # epsilon; None: no noise


def methods() -> dict[str, tuple[Any, dict[str, Observer]]]:
    """Methods, with their observers."""
    made: Any = {"lr": LR, "gradients": jdfl.Gradients(clip=CLIP, mechanism=jdfl.Gaussian(1.0))}
    return {
        "D-PSGD": (jdfl.DPSGD(**made), OBSERVERS),
        "DSGT": (jdfl.DSGT(**made), OBSERVERS),
        "CHOCO-SGD": (jdfl.CHOCO(**made, codec=jdfl.Dense()), OBSERVERS),
        "DFedAvgM, two local steps": (jdfl.DFedAvgM(local_steps=2, **made), OBSERVERS),
        "FedAvg, two local steps": (jdfl.FedAvg(local_steps=2, **made), SERVED),
    }


def words(budget: Budget) -> str:
    """The description of the noise in a case."""
    return "no noise" if budget is None else f"epsilon {budget:g}"


def arrays(records: Pool) -> tuple[Array, Array]:
    """Features and labels on the device."""
    return jnp.asarray(records.features), jnp.asarray(records.labels)


def multiplier(algorithm: Any, problem: Any, steps: int, budget: Budget) -> float:
    """The noise for a budget, in units of the sensitivity."""
    return float(budgeted(algorithm, problem, RING, steps, budget).gradients.mechanism.multiplier)


@dataclass(frozen=True)
class Inversion:
    """Attacks on a method's runs, in one program: trials of every observer and budget."""

    method: str
    q: int
    observers: list[str]
    budgets: Sequence[Budget]
    found: Found  # leaves [observers, budgets, trials, ...]
    masks: np.ndarray  # [observers, S, m]

    @classmethod
    def of(
        cls, method: str, records: Pool, q: int, budgets: Sequence[Budget], trials: int, iterations: int, seed: int
    ) -> "Inversion":
        """Run them; all observers and budgets share records, first guesses and directions of noise."""
        algorithm, observers = methods()[method]
        problem = records.held(np.arange(M * q).reshape(M, q))
        noise = [multiplier(algorithm, problem, INVERTED, one) for one in budgets]
        seen = watched(algorithm, problem, RING, INVERTED)
        masks, known = (np.stack(part) for part in zip(*(view(seen, one) for one in observers.values())))
        shape = len(observers), len(budgets), trials

        def each(values: Any, axis: int) -> Array:
            values = jnp.asarray(values)
            along = jnp.expand_dims(values, [one for one in range(3) if one != axis])
            return jnp.broadcast_to(along, (*shape, *values.shape[1:])).reshape(-1, *values.shape[1:])

        program = with_field(
            planned(algorithm, problem, RING, INVERTED), "gradients.mechanism.multiplier", each(noise, 1)
        )
        keys = each(jax.random.split(typed_key(seed), trials), 2)
        found = inverted(
            program,
            RING,
            arrays(records),
            each(masks, 0),
            each(known, 0),
            keys,
            steps=INVERTED,
            q=q,
            victim=VICTIM,
            iterations=iterations,
        )
        leaves = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), found)
        return cls(method, q, list(observers), budgets, leaves, masks)

    def judged(self, records: Pool) -> dict[tuple[str, str], float]:
        """Means over trials by case and column."""
        told: dict[tuple[str, str], float] = {}
        unit = records.features / np.linalg.norm(records.features, axis=1, keepdims=True)
        for i, observer in enumerate(self.observers):
            for j, budget in enumerate(self.budgets):
                case = f"Inversion: {self.method}, q = {self.q}, {words(budget)}: {observer}"
                true, fitted = self.found.records[i, j], np.asarray(self.found.features[i, j])
                alike, hit = judged(fitted, np.asarray(true), records.features)
                told[case, "found"], told[case, "chance"] = hit.mean(), self.q / len(unit)
                told[case, "cosine"] = alike.mean()
                told[case, "cosine, any two"] = np.square(unit.mean(axis=0)).sum()
                if self.method == "D-PSGD" and self.q == 1 and self.masks[i, :-1, VICTIM].any():
                    told[case, "found, closed form"] = self.direct(i, j, records).mean()
        return told

    def direct(self, observer: int, budget: int, records: Pool) -> np.ndarray:
        """Whether the closed form finds the records [trials]."""
        views, classes = np.asarray(self.found.view[observer, budget]), records.labels.shape[1]
        fitted = np.stack([closed_form(one, self.masks[observer], VICTIM, classes) for one in views])
        true = np.asarray(self.found.records[observer, budget])
        return judged(fitted[:, None], true, records.features)[1]


def membership(
    method: str, records: Pool, budget: Budget, targets: int, runs: int, seed: int, *, known: bool
) -> dict[str, dict[str, Shown]]:
    """The results of the attacks by observer and attack, over `targets` records with `runs` runs each.

    With `known` all other records are the same in all runs about a target.
    """
    algorithm, observers = methods()[method]
    problem = records.held(np.arange(M * RECORDS).reshape(M, RECORDS))
    seen = watched(algorithm, problem, RING, JOINED)
    noise = multiplier(algorithm, problem, JOINED, budget)
    program = with_field(
        planned(algorithm, problem, RING, JOINED), "gradients.mechanism.multiplier", jnp.float32(noise)
    )
    told = about(program, records, targets, runs, seed, known=known)
    rest = ", others known" if known else ""
    found: dict[str, dict[str, Shown]] = {}
    for name, observer in (observers | {"final models": FinalModels((VICTIM,))}).items():
        mask, own = view(seen, observer)
        scores = {"likelihood ratio" + rest: by_ratio(told, mask, own)}
        if not known:
            scores["loss"] = by_loss(told, mask)
        found[name] = {attack: shown(one) for attack, one in scores.items()}
    return found


def about(program: Program, records: Pool, targets: int, runs: int, seed: int, *, known: bool) -> Shadows:
    """The runs of `membership` about `targets` records, which are drawn from the pool."""
    random = np.random.default_rng(seed)
    chosen = jnp.asarray(random.choice(len(records.features), targets, replace=False), jnp.int32)
    ran, drawn = (jax.random.split(key, (targets, runs)) for key in jax.random.split(typed_key(seed)))
    drawn = jnp.broadcast_to(drawn[:, :1], drawn.shape) if known else drawn
    return shadows(program, RING, arrays(records), chosen, ran, drawn, steps=JOINED, q=RECORDS, victim=VICTIM)


def promised(method: str, records: Pool, budget: float) -> dict[str, tuple[float, float]]:
    """The epsilon of a run, and the derived mu of the victim, of every observer."""
    algorithm, observers = methods()[method]
    problem = records.held(np.arange(M * RECORDS).reshape(M, RECORDS))
    seen = watched(budgeted(algorithm, problem, RING, JOINED, budget), problem, RING, JOINED)
    both = observers | {"final models": FinalModels((VICTIM,))}
    found = {name: seen.by(observer) for name, observer in both.items()}
    return {name: (one.epsilon_claimed, float(one.mu[VICTIM])) for name, one in found.items()}
