"""Inversion and membership attacks, with epsilon: records that are reconstructed, and records known to be present.

Run `python -m experiments.leakage [--quick] [--seeds N] [--out DIR]`.

Four nodes in a ring train softmax regression on real records, digits or breast_cancer, from zero. An observer has the
view of `jdfl.observe`: its neighbours' messages, all messages, or final models.

- Inversion: the observer fits records that make the method send what was seen (`experiments.leakage_inversion`). A
  record is found if it is the nearest of all 1,797 digits to a fitted one; guessing gives q / 1,797 for the q records
  of a node. The cosine is given together with that of any two digits. Where a node has one record, and its first step
  is seen, a closed form is a second attack.
- Membership: was a record among the victim's (`experiments.leakage_membership`)? The table has the area under the
curve,
  the share of members caught at a false-alarm rate of one in a hundred, and the epsilon that this proves, together with
  the run's own. The bound must not be larger; attackers who do not know the other records stay far below it.

"No noise" is the same program with zero noise; gradients are clipped in all cases.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common import Made, Options, Row, experiment, row
from experiments.leakage_cases import OBSERVERS, Budget, Inversion, membership, methods, promised, words
from experiments.leakage_pools import DELTA, pool
from jdfl.lab.drawing import COLOURS, plain

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
    """Rows of all attacks on membership."""
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


def figure(rows: Sequence[Row], pictures: dict[str, np.ndarray]) -> Figure:
    """Records and a neighbour's reconstructions; the shares found, and the results of membership attacks."""
    drawing = Figure(figsize=(10.0, 4.4), layout="constrained")
    left, right = np.asarray(drawing.subfigures(1, 2, width_ratios=(1.0, 1.25)))
    grid = left.subplots(PICTURES, len(pictures), squeeze=False)
    for column, (name, images) in enumerate(pictures.items()):
        for line in range(PICTURES):
            axis, image = grid[line, column], images[line].reshape(8, 8)
            axis.imshow(image / max(float(image.max()), 1e-12), cmap="gray_r", vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
        grid[0, column].set_title(name.replace(" ", "\n", 1), fontsize=8)
    above, below = right.subplots(2, 1)
    cells = {(one.case, one.column): one.mean for one in rows}
    _lines(above, cells, "Inversion: D-PSGD, q = 1, ", "found", list(OBSERVERS))
    above.set(ylabel="records found", ylim=(-0.04, 1.04))
    above.legend(frameon=False, fontsize=7)
    names = [f"{name}, likelihood ratio, others known" for name in OBSERVERS]
    _lines(below, cells, "Membership: D-PSGD, breast_cancer, ", "caught at 1%", names)
    below.set(ylabel="members caught at 1 %", ylim=(-0.04, 1.04))
    below.legend(frameon=False, fontsize=7)
    return drawing


def _lines(axis: Any, cells: dict[tuple[str, str], float], prefix: str, column: str, names: Sequence[str]) -> None:
    """A line per observer over the available budgets."""
    given = [case[len(prefix) :].split(": ") for case, what in cells if case.startswith(prefix) and what == column]
    budgets = list(dict.fromkeys(budget for budget, _ in given))
    for colour, name in zip(COLOURS, names):
        values = [cells[f"{prefix}{budget}: {name}", column] for budget in budgets]
        axis.plot(budgets, values, color=colour, marker="o", label=name)
    plain(axis)


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All attacks; with `--quick` one method."""
    first, pictures = inversions(chosen.seeds, chosen.quick)
    second = memberships(chosen.seeds, chosen.quick)
    tables = {
        "Records that are reconstructed": first,
        f"Records known to be present, delta = {DELTA:g}": second,
    }
    return Made(tables, figure([*first, *second], pictures))


if __name__ == "__main__":
    main()
