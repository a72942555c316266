"""Curves of many trials as one line each: the mean, with the confidence interval of the mean."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from jdfl.engine.result import BAD
from jdfl.lab.paired import half_widths

BAND = "95 % confidence interval of the mean"  # what low and high of `bands` are, for legends


def bands(curves: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean of `y` over the trials that did not diverge, with its 95 % confidence interval, a row per label and round.

    Columns: label, round, mean of `x`, and mean, low, high of `y`. In a round without a record of a trial its last one
    before that counts. With a single trial low and high are the mean.
    """
    return _bands(_good(curves), x, y)


def _good(curves: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The records of the trials of `bands`, by label."""
    good = curves[~curves["ending"].isin([*BAD])]
    return {str(label): runs for label, runs in good.groupby("label", sort=False)}


def _bands(good: Mapping[str, pd.DataFrame], x: str, y: str) -> pd.DataFrame:
    """`bands` of what `_good` gives."""
    frames, columns = list[pd.DataFrame](), [*dict.fromkeys(("round", x, y))]
    for k, runs in enumerate(good.values()):
        if (runs["seed"] == runs["seed"].iloc[0]).all():  # one trial, which may have a million records
            one = runs[columns]
            one = (one if one["round"].is_monotonic_increasing else one.sort_values("round", kind="stable")).ffill()
            mean = one[y].to_numpy(float)
            band = {
                "round": one["round"].to_numpy(),
                x: one[x].to_numpy(float),
                "mean": mean,
                "low": mean,
                "high": mean,
            }
        else:
            records = runs.set_index(["round", "seed"])
            spent = records.index.to_frame()["round"] if x == "round" else records[x]
            amounts, values = (one.unstack("seed").ffill() for one in (spent, records[y]))
            mean, half = values.mean(axis=1).to_numpy(), np.nan_to_num(half_widths(values.to_numpy(float)))
            band = {"round": values.index, x: amounts.mean(axis=1).to_numpy()}
            band |= {"mean": mean, "low": mean - half, "high": mean + half}
        label = pd.Categorical.from_codes(np.full(len(mean), k), [*good])  # numbers: text is slow to group by
        frames.append(pd.DataFrame({"label": label} | band))
    if not frames:
        return pd.DataFrame(columns=list(dict.fromkeys(("label", "round", x, "mean", "low", "high"))))
    return pd.concat(frames, ignore_index=True)


class Bands(Mapping[tuple[str, str], pd.DataFrame]):
    """`bands` of every metric against every amount, by (amount, metric), where the amount is called x.

    Each is made when it is asked for, since those of a million records do not fit into memory together.

    Args:
        curves: The records of runs, as `long_form` gives them.
        axes: The columns of amounts.
        metrics: The columns of metrics.
    """

    def __init__(self, curves: pd.DataFrame, axes: Sequence[str], metrics: Sequence[str]) -> None:
        self._good, self._pairs = _good(curves), [(x, y) for y in metrics for x in axes]

    def __getitem__(self, pair: tuple[str, str]) -> pd.DataFrame:
        x, y = pair
        band = _bands(self._good, x, y)
        return band.assign(x=band[x])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)
