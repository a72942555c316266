"""Records of many runs in one long table, and what they say at equal budgets.

A value at a budget is that of the last record at or before it, never one interpolated between two records. A run that
its stop rule ended keeps its last record at larger budgets: it has stopped spending. A run that diverged has no value,
nor has one whose budget does not pay for its first record after the start: the value of the start compares nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jdfl.engine.result import BAD, Result
from jdfl.lab.table import half_width, half_widths, number

AXES = {
    "round": "rounds",
    "communications": "communication rounds of a node (mean)",
    "bytes": "bytes sent by all nodes",
    "gradients": "gradient evaluations, all nodes",
    "examples": "gradients of single examples, all nodes",
    "seconds": "seconds of simulation",
    "network_seconds": "simulated seconds of a node (mean)",
}
LABELS = ("label", "seed", "ending")  # the columns that say whose record it is
LEAST = 10  # rounds of every algorithm that a default budget pays for
_COUNTS = {*LABELS, *AXES, "messages", "releases", "network_seconds_last"}


def long_form(label: str, results: Sequence[Result]) -> pd.DataFrame:
    """The histories of one algorithm's runs below one another, a row per record.

    Columns: label, seed, ending (of the run), round, every metric, and totals so far over all nodes, but
    `communications` as the mean over nodes. `seconds` is the compiled program's wall time (the metrics included,
    compilation not) spread evenly over the rounds of its runs: the simulation's time, not that of a real network.
    """
    per_round = sum(one.seconds for one in results) / max(1, sum(one.rounds for one in results))
    frames = [
        labelled(one.history, (label, one.labels["seed"], one.ending), len(one.communication_rounds), per_round)
        for one in results
    ]
    return pd.concat(frames, ignore_index=True)


def labelled(history: pd.DataFrame, labels: tuple[str, Any, str], nodes: int, per_round: float | None) -> pd.DataFrame:
    """A run's history with its labels in front, and with costs in the units in which runs are compared."""
    frame = history.assign(communications=history["communications"] / nodes)
    if per_round is not None:
        frame["seconds"] = frame["round"] * per_round
    for place, (name, value) in enumerate(zip(LABELS, labels)):
        frame.insert(place, name, value)
    return frame


def metrics_of(curves: pd.DataFrame) -> list[str]:
    """The names of the metrics among the columns."""
    return [str(name) for name in curves.columns if name not in _COUNTS]


def axes_of(curves: pd.DataFrame) -> list[str]:
    """What runs can be compared at equal amounts of: what all of them count."""
    return [name for name in AXES if name in curves and not np.isnan(curves[name].to_numpy(float)).any()]


def reach(curves: pd.DataFrame, x: str) -> float:
    """The largest budget in `x` that all runs reach, but those that diverged, stopped or spend nothing of it."""
    ends = curves.groupby(["label", "seed"], sort=False).tail(1)
    spent, ending = ends[x].to_numpy(float), ends["ending"].to_numpy(str)
    spends = np.isin(ends["label"].to_numpy(), ends["label"].to_numpy()[spent > 0])
    limiting = spent[spends & ~np.isin(ending, ("stop rule", *BAD))]
    if len(limiting):
        return float(limiting.min())
    healthy = spent[~np.isin(ending, [*BAD])]
    return float(np.max(healthy if len(healthy) else spent, initial=0.0))


def common(curves: pd.DataFrame, x: str) -> float:
    """The budget in `x` where none is given: `reach`, or what pays for `LEAST` rounds of every run if that is more.

    Of shorter runs, all rounds count. An algorithm whose rounds are done before that keeps its last record.
    """
    most = reach(curves, x)
    if x == "round":
        return most
    for _, run in curves[~curves["ending"].isin([*BAD])].groupby(["label", "seed"], sort=False):
        cost, rounds = run[x].to_numpy(float), run["round"].to_numpy()
        most = max(most, float(cost[min(len(cost) - 1, int(np.searchsorted(rounds, LEAST)))]))
    return most


def last_within(run: pd.DataFrame, x: str, budget: float) -> pd.Series | None:
    """The last record of one run at or before a budget; None if it diverged or that is only the initial record."""
    if run["ending"].iloc[0] in BAD:
        return None
    # Simulated seconds are added and recorded in float32, in which three times .1 are more than .3.
    within = run.loc[run[x] <= (budget * (1 + 1e-6) if x == "network_seconds" else budget)]
    return within.iloc[-1] if len(within) > (len(run) > 1 and run["round"].iloc[0] == 0) else None


def share(run: pd.DataFrame, x: str, budget: float) -> float:
    """The share of a budget in `x` that one run used, where it ended before that; NaN where it did not, or diverged.

    A run used the whole budget if one record more, at what its records cost on average, would have exceeded it.
    """
    spent = float(run[x].iloc[-1])
    early = 0 < spent < budget < np.inf and spent * len(run) / max(1, len(run) - 1) <= budget * (1 + 1e-9)
    return spent / budget if early and run["ending"].iloc[0] not in BAD else float("nan")


class Short(NamedTuple):
    """What the first record after the start takes, of an algorithm whose budget does not pay for it."""

    rounds: float  # of that record
    amount: float

    def words(self, x: str, budget: float) -> str:
        """The same in words."""
        what = "one round needs" if self.rounds == 1 else f"the first record, after {self.rounds:.0f} rounds, needs"
        unit = "" if x == "round" else f" {x}"
        return f"not comparable: {what} {number(self.amount)}{unit}, budget {number(budget)}"


def short(runs: Iterable[pd.DataFrame], x: str, budget: float) -> Short | None:
    """The least that a first record takes, where the budget pays for no run's and not all of them diverged."""
    healthy = [run for run in runs if run["ending"].iloc[0] not in BAD]
    if not healthy or any(last_within(run, x, budget) is not None for run in healthy):
        return None
    first = [run.iloc[min(1, len(run) - 1)] for run in healthy]
    least = min(first, key=lambda record: float(record[x]))
    return Short(float(least["round"]), float(least[x]))


def at(curves: pd.DataFrame, x: str, metrics: Sequence[str], budget: float) -> pd.DataFrame:
    """Every algorithm at one budget in `x`, a row per label, with the columns of `Comparison.at` except `budget`."""
    axes, rows = axes_of(curves), dict[str, dict[str, float]]()
    for label, runs in curves.groupby("label", sort=False):
        by_seed = [run for _, run in runs.groupby("seed", sort=False)]
        records = [record for run in by_seed if (record := last_within(run, x, budget)) is not None]
        ends = {run["seed"].iloc[0]: run["round"].iloc[-1] for run in by_seed}
        lacking = short(by_seed, x, budget) or Short(np.nan, np.nan)
        row = {
            "seeds": len(records),
            "diverged": sum(run["ending"].iloc[0] in BAD for run in by_seed),
            "stopped": sum(one["ending"] == "stop rule" and one["round"] == ends[one["seed"]] for one in records),
            "needs": lacking.amount,
            "after": lacking.rounds,
            "share": np.fmin.reduce([share(run, x, budget) for run in by_seed]),
        }
        for name in (*axes, *metrics):
            values = np.array([one[name] for one in records], float)
            row[name] = float(values.mean()) if records else np.nan
            if name in metrics:
                fine = len(records) > 1 and bool(np.isfinite(values).all())
                row[f"{name}_sd"] = float(values.std(ddof=1)) if fine else np.nan
                row[f"{name}_ci"] = half_width(values)
        rows[str(label)] = row
    columns = ["seeds", "diverged", "stopped", "needs", "after", "share", *axes]
    columns += [part for name in metrics for part in (name, f"{name}_sd", f"{name}_ci")]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("label")


def values_at(curves: pd.DataFrame, x: str, name: str, budget: float) -> pd.DataFrame:
    """One metric of every trial at a budget: a row per seed, a column per label, NaN where there is no value."""
    found: dict[str, dict[Any, float]] = {}
    for (label, seed), run in curves.groupby(["label", "seed"], sort=False):
        if x == "stop":
            value = run["round"].iloc[-1] if run["ending"].iloc[-1] == "stop rule" else np.nan
        else:
            record = last_within(run, x, budget)
            value = np.nan if record is None else record[name]
        found.setdefault(str(label), {})[seed] = float(value)
    return pd.DataFrame(found).rename_axis("seed")


def to_stop(curves: pd.DataFrame) -> pd.DataFrame:
    """As `Comparison.to_stop`, with `round_ci`, the half-width of the 95 % confidence interval of the mean."""
    ends = curves.groupby(["label", "seed"], sort=False).tail(1)
    stopped = ends[ends["ending"] == "stop rule"].groupby("label")["round"]
    found = pd.DataFrame({"seeds": stopped.size(), "round": stopped.mean(), "round_sd": stopped.std(ddof=1)})
    found["round_ci"] = stopped.apply(lambda rounds: half_width(rounds.to_numpy(float)))
    return found.reindex(ends["label"].unique()).fillna({"seeds": 0}).astype({"seeds": int}).rename_axis("label")


BAND = "95 % CI of the mean"  # what low and high of `band` are, for legends


def band(curves: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """The mean of y over the trials that did not diverge, against the amount x, with its 95 % confidence interval.

    Columns: label, round, mean of x (by its name and as x), and mean, low, high of y, a row per label and round. In a
    round without a record of a trial its last one before that counts. With a single trial low and high are the mean.
    """
    good = curves[~curves["ending"].isin([*BAD])]
    labels = [str(label) for label in good["label"].unique()]
    frames = [pd.DataFrame(columns=list(dict.fromkeys(("label", "round", x, "mean", "low", "high"))))]
    for k, (_, runs) in enumerate(good.groupby("label", sort=False)):
        found = pd.DataFrame(_band(runs, x, y))
        found.insert(0, "label", pd.Categorical.from_codes(np.full(len(found), k), labels))  # text is slow to group by
        frames.append(found)
    table = pd.concat(frames[1:] or frames, ignore_index=True)
    return table.assign(x=table[x])


def _band(runs: pd.DataFrame, x: str, y: str) -> dict[str, Any]:
    if (runs["seed"] == runs["seed"].iloc[0]).all():  # one trial, which may have a million records
        one = runs[[*dict.fromkeys(("round", x, y))]]
        one = (one if one["round"].is_monotonic_increasing else one.sort_values("round", kind="stable")).ffill()
        mean = one[y].to_numpy(float)
        return {"round": one["round"].to_numpy(), x: one[x].to_numpy(float), "mean": mean, "low": mean, "high": mean}
    records = runs.set_index(["round", "seed"])
    spent = records.index.to_frame()["round"] if x == "round" else records[x]
    amounts, values = (one.unstack("seed").ffill() for one in (spent, records[y]))
    mean, half = values.mean(axis=1).to_numpy(), np.nan_to_num(half_widths(values.to_numpy(float)))
    band = {"round": values.index, x: amounts.mean(axis=1).to_numpy()}
    return band | {"mean": mean, "low": mean - half, "high": mean + half}
