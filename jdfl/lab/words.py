"""What tables, figures and pages of a comparison say in words, and what Python shows of it and of results."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jdfl.algorithms.algorithm import sends_dense
from jdfl.base.display import Tabled, line
from jdfl.engine.accountant import account
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import BAD, Result
from jdfl.lab.curves import AXES, Short
from jdfl.lab.table import NONE, PM, USED, Cell, Grid, better, column, half_width, leaders, number, rounded
from jdfl.lab.tuning import Tuned
from jdfl.privacy.report import upper, whom
from jdfl.results.summary import bytes_text, described

if TYPE_CHECKING:
    from jdfl.lab.comparison import Comparison

_DONE = "its rounds were done"
_COMMON = ("objective", "suboptimality", "gradient_norm", "distance_to_optimum")  # of one model for all nodes


def grid(of: "Comparison", by: str, value: float | None, names: list[str]) -> Grid:
    """The table of a comparison at an amount of `by`, of what was tuned there."""
    stop, pm = by == "stop", f" {PM}" if len(of.seeds) > 1 else ""
    budget = ("round", np.inf) if stop else (by, value)
    found = of.at(*budget, metrics=names)
    unranked = _unranked(of, by, value)
    columns = {
        "algorithm": [Cell(named(of, label)) for label in found.index],
        "values": [Cell(_values(how)) for how in of.tuned.values()],
    }
    if stop:
        how: Any = {"sign": 1, "missing": "not stopped", "beside": unranked}
        columns[f"rounds to stop{pm}"] = column(of.to_stop(), "round", of.values("stop"), **how)
    for name in ("bytes",) if stop else ("round", by):
        columns[AXES[name] if name == "round" else name] = [Cell(number(amount)) for amount in found[name]]
    if not stop and found["share"].notna().any():
        columns[USED] = [Cell(f"{min(used, 0.99):.0%}" if used < 1 else "all") for used in found["share"].fillna(1)]
    if of.privacy:
        spent = {label: number(float(upper(report.epsilon))) for label, report in of.privacy.items()}
        columns["epsilon"] = [Cell(spent.get(label, "none")) for label in found.index]
    reasons = {label: "no results" for label, how in of.tuned.items() if how.short is not None}  # of another budget
    reasons |= {label: why for label in of.results if (why := _short(of, label, by, found))}
    headers, cells = [*columns], [*columns.values()]
    for name in names:
        beside, values = [*unranked, *apart(of, name)], of.values(*budget, name)
        headers.append(f"{name.replace('_', ' ')}{pm}")
        cells.append(column(found, name, values, beside=beside, reasons=reasons))
    return Grid(headers, [list(row) for row in zip(*cells)], _caption(of, by, value, found))


def headline(of: "Comparison") -> str:
    """The metric that a page begins with: the measure, unless tables do not show it."""
    return of.measure if of.measure in of.shown or not of.shown else of.shown[0]


def conclusion(of: "Comparison", by: str, value: float | None = None) -> str:
    """Which method is the best at an amount of `by`, and which cannot be distinguished from it."""
    stop, name = by == "stop", headline(of)
    beside, sign = _unranked(of, by, value), 1 if stop else better(name)
    values = of.values(by) if stop else of.values(by, value, name)
    beside += [] if stop else [label for label in apart(of, name) if label not in beside]
    first = leaders(values[[label for label in values.columns if label not in beside]], sign)
    at = "" if stop else f"At {AXES[by]} ≤ {number(float(of.at(by, value, metrics=[])['budget'].iloc[0]))}: "
    if not first:
        return f"{at}no method is ranked{', as there is one trial only' if len(of.seeds) == 1 else ''}."
    best, *near = first
    what = "rounds to the stop rule" if stop else name.replace("_", " ")
    mean = rounded(float(values[best].mean()), half_width(values[best].to_numpy(float)), "deterministic")
    text = f"{at}{best} has the {'lowest' if sign > 0 else 'highest'} mean {what}, {mean}"
    apart_from = ", and no method is distinguishable from it" if len(near) == len(values.columns) - 1 > 0 else ""
    apart_from = apart_from or (f"; not distinguishable from it: {', '.join(near)}" if near else "")
    return f"{text}{apart_from}." + (f" Not ranked: {', '.join(beside)}." if beside else "")


def named(of: "Comparison", label: str) -> str:
    """A label, which says where a method that exists to compress sends everything."""
    return f"{label}, dense" if sends_dense(of.algorithms.get(label)) and "dense" not in label.lower() else label


def mark(of: "Comparison", label: str) -> str:
    """What limits the result of an algorithm at the budget of `of`; empty where nothing does."""
    how = of.tuned[label]
    if how.failure:
        return how.failure if how.short else "no results"
    if of.by != "stop" and (why := _short(of, label, of.by, of.limits)):
        return why
    if how.alike:
        return "all points of its grid that work are alike"
    early = {} if of.by == "stop" else _early(of, of.limits)
    edges = " and ".join(f"{path} on the edge of its grid" for path in how.edge)
    untuned = f"not tuned: {how.lone}" if how.lone else "" if how.grid else "not tuned"
    used = f"ended {early[label]}" if label in early else ""
    return "; ".join(filter(None, (used, untuned, f"best {edges}" if edges else "")))


def notes(of: "Comparison") -> list[str]:
    """The marks at the budget of `of`, and runs that diverged, each with the labels that it is about."""
    found: dict[str, list[str]] = {}
    for label, runs in of.results.items():
        bad = sum(result.ending in BAD for result in runs)
        diverged = [f"{bad} of {len(of.seeds)} diverged"] if bad else []
        for why in (*diverged, *filter(None, mark(of, label).split("; "))):
            found.setdefault(why, []).append(label)
    several = len(of.results) > 1
    return [
        f"{'all' if several and len(who) == len(of.results) else ', '.join(who)}: {why}" for why, who in found.items()
    ]


def axis(of: "Comparison", x: str) -> str:
    """An amount in words, with the budget of it that the values of its lines were chosen at."""
    view = of.view(x)
    if view.budget is None:
        return AXES[x]
    return f"{AXES[x]} " + (f"(tuned at ≤ {number(view.budget)})" if view.by == x else "(not tuned at these)")


def _short(of: "Comparison", label: str, by: str, found: pd.DataFrame) -> str:
    """What the first record takes of `by`, where the budget of `found` does not pay for it."""
    needs, after, budget = found.loc[label, ["needs", "after", "budget"]].to_numpy(float)
    return Short(int(after), float(needs)).words(by, float(budget)) if np.isfinite(needs) else ""


def _values(how: Tuned) -> str:
    if how.failure:
        return "none" if how.short else "none works"
    edge = {path: f" ({side} tried)" for path, side in how.edge.items()}
    text = ", ".join(f"{path} = {value:.3g}{edge.get(path, '')}" for path, value in how.values.items())
    text += " (working points alike)" * bool(how.alike) + (f" ({how.lone})" if how.lone else "")
    return text or "not tuned"


def _unranked(of: "Comparison", by: str, value: float | None) -> list[str]:
    """Labels that are never marked as best; all where none was tuned, and where epsilons promise different things."""
    if not of.tuned_at(by, value) or (of.epsilon is not None and len(_promises(of)) > 1):
        return list(of.results)
    early = {} if by == "stop" else _early(of, of.at(by, value, metrics=[]))
    done = [label for label, why in early.items() if _DONE in why]
    return [*dict.fromkeys((*_beside(of), *done, *(label for label, how in of.tuned.items() if how.alike)))]


def _promises(of: "Comparison") -> dict[str, list[str]]:
    """Labels by unit of protection and observer."""
    found: dict[str, list[str]] = {}
    for label, report in of.privacy.items():
        found.setdefault(whom(report.unit, report.adjacency, report.observer), []).append(label)
    return found


def _beside(of: "Comparison") -> list[str]:
    """Labels that spend more than the epsilon of the comparison, or promise nothing."""
    if of.epsilon is None:
        return []
    within = {label for label, report in of.privacy.items() if report.epsilon <= of.epsilon}
    return [label for label in of.results if label not in within]


def _early(of: "Comparison", found: pd.DataFrame) -> dict[str, str]:
    """By label of runs that ended before the budget of `found`: the share of it that they used, and why they ended."""
    early: dict[str, str] = {}
    for label, used in found["share"].dropna().items():
        endings = dict.fromkeys(run.ending for run in of.results[str(label)] if run.ending not in BAD)
        reasons = {"steps": _DONE, "stop rule": "its stop rule ended it"}
        why = ", ".join(reasons.get(one, one) for one in endings)
        early[str(label)] = f"after {min(used, 0.99):.0%} of the budget ({why})"
    return early


def _caption(of: "Comparison", by: str, value: float | None, found: pd.DataFrame) -> list[str]:
    n, budget = len(of.seeds), float(found["budget"].iloc[0])
    over = "one trial: there are no intervals, and no method is ranked"
    if n > 1:
        differ = "which share data and network: the intervals cover the randomness of the algorithms alone"
        if of.redrawn:
            differ = f"each with {' and '.join(of.redrawn)} of its own, which all methods share"
        over = f"mean ± half-width of its 95 % confidence interval over {n} trials, {differ}"
    values = "Values where the runs ended"
    if by != "stop":
        values = f"Values at {AXES[by]} ≤ {number(budget)}, of the last record at or before that"
    own = len(set(of.networks.values())) > 1
    caption = [f"{of.setting}.", f"{values}; {over}."]
    for label, network in of.networks.items():
        caption.append(f"{label}{f' (over {network})' if own else ''}: {of.note(label)}.")
    if own := _own(of):
        caption.append(
            f"A model per node: {', '.join(own)}. Their {', '.join(_COMMON).replace('_', ' ')} are those of each model "
            "on its node's data, those of the others of one model on all data, so they are not ranked with the others."
        )
    if of.criterion:
        caption.append(f"Tuning: {of.criterion}.")
    if not of.tuned_at(by, value):
        caption.append("Nothing was tuned at this budget, so no method is ranked.")
    if by != "stop" and (early := _early(of, found)):
        caption.append(f"Ended before the budget: {', '.join(f'{label} {why}' for label, why in early.items())}.")
    caption += _privacy(of)
    for name, what in (("tuning", "after tuning on the same data"), ("curvature", "with steps from its curvature")):
        if hidden := [label for label, runs in of.results.items() if any(name in r.guarantee.derived for r in runs)]:
            caption.append(f"No epsilon {what}, unless {name} is declared public: {', '.join(hidden)}.")
    if of.together is not None:
        here = sum(map(len, of.results.values()))
        others = of.together.runs + of.together.silent - here
        caption.append(of.together.statement(f"({here} of this table and {others} at other budgets)" if others else ""))
    if of.standing is not None:
        caption.append(of.standing.statement())
    if by == "seconds":
        caption.append("Seconds are the simulation's, spread evenly over its rounds; compilation is excluded.")
    return caption


def apart(of: "Comparison", metric: str) -> list[str]:
    """Labels whose values of a metric are of a model per node, where those of others are of one model."""
    return _own(of) if metric in _COMMON else []


def _own(of: "Comparison") -> list[str]:
    """Labels of methods that keep a model per node, where others do not."""
    found = [label for label, one in of.algorithms.items() if getattr(one, "personal", "") == "models"]
    return found if len(found) < len(of.algorithms) else []


def _privacy(of: "Comparison") -> Iterator[str]:
    """What the epsilons of a table are, where there are any."""
    if not of.privacy:
        return
    if len(promises := _promises(of)) > 1:
        differ = "; ".join(f"{', '.join(labels)}: {who}" for who, labels in promises.items())
        nobody = "" if of.epsilon is None else ", so no method is ranked"
        yield f"Epsilons do not promise the same{nobody}. {differ}."
    deltas = ", ".join(f"{delta:g}" for delta in sorted({report.delta for report in of.privacy.values()}))
    target = "" if of.epsilon is None else f"Noise is the least for epsilon ≤ {number(float(upper(of.epsilon)))}"
    target += f"; not held to it: {', '.join(_beside(of))}. " if _beside(of) else ". " if target else ""
    tuned = any(of.tuned[label].grid for label in of.privacy)
    public = " Tuning looked at the same data, which is taken as public." if tuned else ""
    yield f"{target}Epsilon is that of a whole run, of the worst seed, at delta = {deltas}.{public}"


_METRICS = 6  # of a run, at most


def of_result(result: Result) -> list[tuple[str, str]]:
    """A run in named lines: what ran, how it ended, the final metrics, what was sent, and epsilon."""
    m, n = result.params.shape
    final = {name: value for name, value in result.final.items() if name not in COUNTS}
    more = len(final) - _METRICS
    metrics = [f"{name.replace('_', ' ')} {number(value)}" for name, value in list(final.items())[:_METRICS]]
    epsilon = f"no guarantee is claimed: {result.guarantee.reason}"
    if result.guarantee.claimed:
        report = account(result)
        epsilon = f"{upper(report.epsilon)} at delta = {report.delta:g}, of the worst node"
    lines = [
        ("result", f"{described(result.algorithm)} on {result.problem_name} over {result.network_name}"),
        ("size", f"{m} nodes, paired {result.pairing or 'by position'}; {n:,} parameters each"),
        ("rounds", f"{result.rounds:,}, ended by {result.ending}: {result.reason}"),
        ("metrics", ", ".join(metrics) + (f", and {more} more" if more > 0 else "") or "none recorded"),
        ("sent", f"{bytes_text(result.totals.bytes)} by all nodes, {sum(result.totals.messages.values()):,} messages"),
        ("epsilon", epsilon),
        ("time", f"{result.seconds:.3g} s, and {result.compile_seconds:.3g} s of compilation"),
        ("provenance", result.provenance.hash),
    ]
    lines += [("minimises", result.minimises)] if result.minimises else []
    lines += [("warning", warning) for warning in result.warnings]
    if result.labels:
        lines.insert(2, ("labels", ", ".join(f"{name} = {value}" for name, value in result.labels.items())))
    return lines


def of_comparison(of: "Comparison") -> tuple[str, list[list[str]], list[str]]:
    """The title, the table and what follows it, as Python shows a comparison."""
    found, marks = of.grid(), {"best": " *", "tie": " ~", "": ""}
    count = len(found.headers) - len(of.shown or (of.measure,))  # of the columns before those of metrics
    order = [0, *range(count, len(found.headers)), *range(1, count)]
    rows = [[line(row[i].text, 36) + marks[row[i].mark] for i in order] for row in found.rows]
    runs = max(map(len, of.results.values()), default=0)
    foot = [conclusion(of, of.by), f"{runs} runs each; .table(), .plot(), .save(folder), .report(path)"]
    return f"Comparison on {of.setting}", [[found.headers[i] for i in order], *rows], foot


class Costs(Tabled, pd.DataFrame):
    """The table of `Comparison.at`. Python shows its means with intervals, and the columns that differ."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame  # what is made from it is an ordinary table

    def _tabled(self) -> tuple[str, list[list[str]], list[str]]:
        metrics = [str(name) for name in self.columns if f"{name}_ci" in self]
        spread = {f"{name}_{end}" for name in metrics for end in ("sd", "ci")}
        columns, alike = {"algorithm": list(map(str, self.index))}, list[str]()
        for name in metrics:
            pairs = zip(self[name].to_numpy(float), self[f"{name}_ci"].to_numpy(float))
            columns[f"{name.replace('_', ' ')} {PM}"] = [rounded(*pair, "deterministic") for pair in pairs]
        for name in [str(name) for name in self.columns if name not in {*metrics, *spread}]:
            cells = [str(value) if isinstance(value, str) else number(float(value)) for value in self[name]]
            if len(set(cells)) > 1:
                columns[name] = cells
            elif cells and cells[0] != NONE:
                alike.append(f"{name} {cells[0]}")
        rows = [[*columns], *map(list, zip(*columns.values()))]
        return "", rows, [f"in all rows: {', '.join(alike)}"] if alike else []
