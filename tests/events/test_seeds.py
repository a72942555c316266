"""Seeds and points of an asynchronous method: side by side or one after another, they are single runs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.engine import side_by_side
from tests.events.scenes import PERIODS, VARIANTS, borne, network


def alike(found: Any, single: Any) -> None:
    np.testing.assert_array_equal(found.params, single.params)
    assert found.history.equals(single.history)
    assert found.totals == single.totals
    np.testing.assert_array_equal(found.releases, single.releases)


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", ["AD-PSGD", "AGP, noise", "SWIFT", "FedBuff"])
def test_points_are_single_runs_bit_for_bit(name):
    method, timed, problem = VARIANTS[name], network("slow nodes"), testing.small_problem()
    how: dict[str, Any] = {"steps": PERIODS, "every": 5, "metrics": ["objective"]}
    for found in jdfl.sweep(method, problem, timed, over={"lr": [0.01, 0.002]}, keys=[2], **how):
        alike(found, jdfl.run(replace(method, lr=found.labels["lr"]), problem, timed, key=found.run_key, **how))


@pytest.mark.rotated(6)
@pytest.mark.parametrize("name", VARIANTS)
def test_seeds_side_by_side_are_single_runs_bit_for_bit(name, monkeypatch):
    fault = (borne(name) or [None])[-1]
    method, problem, timed = VARIANTS[name], testing.small_problem(), network("slow nodes", fault=fault)
    how: dict[str, Any] = {"steps": 6, "every": 4, "metrics": ["objective"], "stop": jdfl.objective_below(0.7)}
    together, number = side_by_side.advance, list[int]()
    monkeypatch.setattr(side_by_side, "advance", lambda runs, *rest: number.append(len(runs)) or together(runs, *rest))
    for seed, found in zip((2, 7, 3), jdfl.repeat(method, problem, timed, keys=[2, 7, 3], **how), strict=True):
        alike(found, jdfl.run(method, problem, timed, key=seed, **how))
    assert number == ([1, 1, 1] if hasattr(method, "gamma") else [3])  # codecs have keys of their run
