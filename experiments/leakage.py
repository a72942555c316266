"""Inversion and membership attacks, with epsilon: records that are reconstructed, and records known to be present.

Four nodes in a ring train softmax regression on real records, digits or breast_cancer, from zero. An observer has the
view of `jdfl.observe`: its neighbours' messages, all messages, or final models.

- Inversion: the observer fits records that make the method send what was seen (`experiments.leakage_attacks`). A
  record is found if it is the nearest of all 1,797 digits to a fitted one; guessing gives q / 1,797 for the q records
  of a node. The cosine is given together with that of any two digits. Where a node has one record, and its first step
  is seen, a closed form is a second attack.
- Membership: was a record among the victim's (`experiments.leakage_attacks`)? The table has the area under the
curve,
  the share of members caught at a false-alarm rate of one in a hundred, and the epsilon that this proves, together with
  the run's own. The bound must not be larger; attackers who do not know the other records stay far below it.

"No noise" is the same program with zero noise; gradients are clipped in all cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from experiments.leakage_attacks import (
    DELTA,
    Found,
    Pool,
    Shadows,
    Shown,
    budgeted,
    by_loss,
    by_ratio,
    closed_form,
    inverted,
    judged,
    pool,
    shadows,
    shown,
    view,
    watched,
)
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
    return "no noise" if budget is None else f"epsilon {budget:g}"


def arrays(records: Pool) -> tuple[Array, Array]:
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


PICTURES = 6


def inversions(seeds: int, quick: bool) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Rows of all inversions, and a neighbour's reconstructions of some records [PICTURES, 64], by budget."""
    records, made, pictures = pool("digits"), list[Row](), dict[str, np.ndarray]()
    cases: list[tuple[str, int, tuple[Budget, ...]]] = [("D-PSGD", 1, (None, 8.0, 1.0))]
    if not quick:
        cases = [("D-PSGD", q, (None, 1000.0, 100.0, 8.0, 1.0)) for q in (1, 4)]
        cases += [(method, q, (None, 8.0)) for method in list(methods())[1:] for q in (1, 4)]
    for method, q, budgets in cases:
        told: list[dict[tuple[str, str], float]] = []
        for seed in range(seeds):
            one = Inversion.of(method, records, q, budgets, 16 if quick else 32, 300, seed)
            told.append(one.judged(records))
            if not pictures:
                pictures["record"] = records.features[np.asarray(one.found.records[0, 0, :PICTURES, 0])]
                for j, budget in enumerate(budgets):
                    pictures[words(budget)] = np.asarray(one.found.features[0, j, :PICTURES, 0])
        made += [row(case, column, None, [each[case, column] for each in told]) for case, column in told[0]]
    return made, pictures


def memberships(seeds: int, quick: bool) -> list[Row]:
    budgets: tuple[Budget, ...] = (None, 8.0, 1.0) if quick else (None, 100.0, 8.0, 1.0)
    targets, runs = (8, 256) if quick else (16, 512)
    cases = [("D-PSGD", "breast_cancer")]
    if not quick:
        cases += [("D-PSGD", "digits"), ("DSGT", "digits")]
    made: list[Row] = []
    for method, name in cases:
        records = pool(name)
        for budget in budgets:
            claims = {} if budget is None else promised(method, records, budget)
            for known in (False, True):
                each = [membership(method, records, budget, targets, runs, seed, known=known) for seed in range(seeds)]
                for observer in each[0]:
                    for attack in each[0][observer]:
                        case = f"Membership: {method}, {name}, {words(budget)}: {observer}, {attack}"
                        told = [one[observer][attack] for one in each]
                        made.append(row(case, "AUC", None, [one.auc for one in told]))
                        made.append(row(case, "caught at 1%", None, [one.caught for one in told]))
                        made.append(row(case, "shown epsilon", None, [one.epsilon for one in told]))
                        if budget is not None:
                            made.append(row(case, "accounted epsilon", None, [claims[observer][0]]))
                            made.append(row(case, "mu", None, [one.mu for one in told]))
                            made.append(row(case, "derived mu", None, [claims[observer][1]]))
    return made


def figure(pictures: dict[str, np.ndarray]) -> Figure:
    """Records and a neighbour's reconstructions."""
    drawing = Figure(figsize=(4.4, 4.4), layout="constrained")
    grid = drawing.subplots(PICTURES, len(pictures), squeeze=False)
    for column, (name, images) in enumerate(pictures.items()):
        for line in range(PICTURES):
            axis, image = grid[line, column], images[line].reshape(8, 8)
            axis.imshow(image / max(float(image.max()), 1e-12), cmap="gray_r", vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
        grid[0, column].set_title(name.replace(" ", "\n", 1), fontsize=8)
    return drawing


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All attacks; with `--quick` one method."""
    first, pictures = inversions(chosen.seeds, chosen.quick)
    second = memberships(chosen.seeds, chosen.quick)
    tables = {
        "Records that are reconstructed": first,
        f"Records known to be present, delta = {DELTA:g}": second,
    }
    return Made(tables, figure(pictures))
