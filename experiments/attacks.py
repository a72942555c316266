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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.attack_list import Attack, attacks
from experiments.attack_worlds import DELTA
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.auditing.attack import attack as fitted
from jdfl.auditing.attack import epsilon_bound, errors

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


if __name__ == "__main__":
    main()
