"""How many attackers every rule bears under every attack, next to the number for which its paper bounds the error.

Run `python -m experiments.robust_breakdown [--quick] [--seeds N] [--out DIR]`. The problem of the robustness atlas on
25 nodes that are all linked: 0 to 12 of them attack, and every rule is given their number. A rule has broken down where
the accuracy of the worst honest node has lost half of what it is above 0.5 without attackers. The rows have the largest
share of attackers below which this never happened, by seed; 0.48 is all that was tried. Where the rule's paper bounds
the error, the share is that of its largest number of attackers among 24 in-neighbours.

--quick tries 0, 4, 8 and 12 attackers with one seed. What is done is kept in DIR/robust_breakdown_jobs.
"""

import sys
from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from experiments.common import Row, options, row, save, save_figure, show
from experiments.robustness_atlas import Found, computed
from experiments.robustness_cells import ATTACKS, NODES, RULES, Cell

NAME = "robust_breakdown"
GRAPH = "complete"
MOST = NODES // 2


def borne(found: Found, rule: str, attack: str, counts: Sequence[int], seed: int) -> float:
    """The largest share of attackers that a rule bears, and with it all smaller ones that were tried."""
    worst = [found[Cell(rule, attack, GRAPH, one / NODES, seed)]["worst accuracy"] for one in counts]
    whole = [one >= 0.5 + (worst[0] - 0.5) / 2 for one in worst]
    return counts[whole.index(False) - 1 if False in whole else -1] / NODES


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Compute, print and write."""
    given = options("Shares of attackers that rules bear", seeds=3, arguments=arguments)
    counts, seeds = range(0, MOST + 1, 4 if given.quick else 1), range(1 if given.quick else given.seeds)
    found = computed(given.out / f"{NAME}_jobs", tuple(product([GRAPH], [one / NODES for one in counts], seeds)))
    rows: list[Row] = []
    for name, rule in RULES.items():
        shares = {attack: [borne(found, name, attack, counts, seed) for seed in seeds] for attack in ATTACKS}
        rows += [row(rule.title, ATTACKS[attack].title, None, values) for attack, values in shares.items()]
        rows.append(row(rule.title, "least of all attacks", None, np.min(list(shares.values()), axis=0).tolist()))
        rows.append(row(rule.title, "bound of its paper", None, [rule.most(NODES - 1) / NODES]))
    show("Shares of attackers that rules bear", rows)
    save_figure(drawn(rows), given.out / f"{NAME}.png")
    print("written:", save(rows, given.out, NAME))
    return rows


def drawn(rows: list[Row]) -> Figure:
    """The share under every attack, by rule, and the bound of its paper."""
    drawing = Figure(figsize=(7.2, 4), layout="constrained")
    axis = drawing.subplots()
    rules = [one.title for one in RULES.values()]
    for one in ATTACKS.values():
        axis.plot(rules, [r.mean for r in rows if r.column == one.title], "o", alpha=0.5, label=one.title)
    axis.plot(rules, [r.mean for r in rows if r.column == "bound of its paper"], "k_", markersize=18, label="bound")
    axis.set_ylabel("share of attackers that is borne")
    axis.tick_params(axis="x", rotation=40)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
    return drawing


if __name__ == "__main__":
    main(sys.argv[1:])
