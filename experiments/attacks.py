"""Refuted statements about privacy, each with the attack that refuted it.

Run `python -m experiments.attacks [--quick] [--seeds N] [--out DIR]`.

Every row is a statement printed by an earlier version: an epsilon for something that reveals more. An attack is a rule
fixed in advance, or a threshold fitted on half of the runs; it proves a lower bound on epsilon at delta = 1e-5, by
Clopper and Pearson at 95 %. Verdicts:

- held: an epsilon is claimed, and the bound is no larger;
- trust: an epsilon is claimed on its author's word, such as that of a user's own mechanism, and says so;
- no claim: no epsilon is given for what the attack observes, whatever it shows;
- EXCEEDED: the bound is larger than the claim. The goal is that this never happens.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from experiments.attack_list import Attack, attacks
from experiments.attack_worlds import DELTA
from experiments.common import Row, options, row, save, save_figure, show
from jdfl.auditing.attack import attack as fitted
from jdfl.auditing.attack import epsilon_bound, errors

NAME = "attacks"
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
        """The verdict in a word or two."""
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
    """The current claim, and the attack on it."""
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


def verdict(found: Mapping[str, Sequence[Found]]) -> str:
    """The goal, and whether it is met."""
    broken = [name for name, each in found.items() if any(one.verdict == "EXCEEDED" for one in each)]
    told = f"claims exceeded: {len(broken)} of {len(found)} (goal: 0, {'missed' if broken else 'met'})"
    return f"{told}: {', '.join(broken)}" if broken else told


def draw(found: Mapping[str, Sequence[Found]]) -> Figure:
    """Bars of the attacks' bounds, and marks of the claimed epsilons."""
    names = list(found)[::-1]
    figure = Figure(figsize=(8, 0.32 * len(names) + 1.2), layout="constrained")
    axes = figure.subplots()
    claimed = [found[name][0].epsilon is not None for name in names]
    shown = [float(np.mean([one.bound for one in found[name]])) for name in names]
    axes.barh(names, shown, color=["C0" if one else "C7" for one in claimed], height=0.6)
    marks = [name for name, one in zip(names, claimed) if one]
    axes.scatter([found[name][0].epsilon or 0.0 for name in marks], marks, marker="|", s=140, color="black", zorder=3)
    axes.set(xlabel="epsilon: bar, shown by the attack; line, claimed (grey: nothing is claimed)", xlim=(0, None))
    return figure


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """All attacks; with `--quick` those whose runs are few, and of steps those with a claim."""
    chosen = options("Refuted statements about privacy under attack", seeds=1, arguments=arguments)
    wanted = {name: one for name, one in attacks().items() if not chosen.quick or (one.runs <= 10_000 and one.brief)}
    found = {name: [judge(one, seed) for seed in range(chosen.seeds)] for name, one in wanted.items()}
    rows = collect(found)
    show(f"Refuted statements, delta = {DELTA:g}", rows)
    for name, each in found.items():
        print(f"{each[0].verdict:<9} {name}: {wanted[name].claim}")
        if each[0].words:
            print(f"{'':<9} {each[0].words}")
    print(verdict(found))
    save_figure(draw(found), chosen.out / f"{NAME}.png")
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
