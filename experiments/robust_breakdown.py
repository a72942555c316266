"""How many attackers every rule bears under every attack, next to the number for which its paper bounds the error.

The problem of the robustness atlas on 25 nodes that are all linked: 0 to 12 of them attack, and every rule is given
their number. A rule has broken down where the accuracy of the worst honest node has lost half of what it is above 0.5
without attackers. The rows have the largest share of attackers below which this never happened, by seed; 0.48 is all
that was tried. Where the rule's paper bounds the error, the share is that of its largest number of attackers among 24
in-neighbours.

--quick tries 0, 4, 8 and 12 attackers with one seed. What is done is kept in DIR/robust_breakdown_jobs.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.robustness_atlas import Found, computed
from experiments.robustness_cells import ATTACKS, NODES, RULES, Cell

GRAPH = "complete"
MOST = NODES // 2


def borne(found: Found, rule: str, attack: str, counts: Sequence[int], seed: int) -> float:
    """The largest share of attackers that a rule bears, and with it all smaller ones that were tried."""
    worst = [found[Cell(rule, attack, GRAPH, one / NODES, seed)]["worst accuracy"] for one in counts]
    whole = [one >= 0.5 + (worst[0] - 0.5) / 2 for one in worst]
    return counts[whole.index(False) - 1 if False in whole else -1] / NODES


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All numbers of attackers, or four with `--quick`."""
    counts, seeds = range(0, MOST + 1, 4 if chosen.quick else 1), range(1 if chosen.quick else chosen.seeds)
    found = computed(chosen.out / "robust_breakdown_jobs", tuple(product([GRAPH], [n / NODES for n in counts], seeds)))
    rows: list[Row] = []
    for name, rule in RULES.items():
        shares = {attack: [borne(found, name, attack, counts, seed) for seed in seeds] for attack in ATTACKS}
        rows += [row(rule.title, ATTACKS[attack].title, None, values) for attack, values in shares.items()]
        rows.append(row(rule.title, "least of all attacks", None, np.min(list(shares.values()), axis=0).tolist()))
        rows.append(row(rule.title, "bound of its paper", None, [rule.most(NODES - 1) / NODES]))
    fig = bars(rows, ["least of all attacks"], "share of attackers that is borne", marks="bound of its paper")
    return Made({"Shares of attackers that rules bear": rows}, fig)
