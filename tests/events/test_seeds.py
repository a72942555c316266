"""Seeds and points of an asynchronous method: side by side or one after another, they are single runs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.engine import side_by_side
from jdfl.events import lanes
from tests.events.scenes import PERIODS, VARIANTS, borne, network


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", ["AD-PSGD", "AGP, noise", "SWIFT", "FedBuff"])
def test_repeated_runs_and_points_are_single_runs_bit_for_bit(name):
    method, timed, problem = VARIANTS[name], network("slow nodes"), testing.small_problem()
    how: dict[str, Any] = {"steps": PERIODS, "every": 5, "metrics": ["objective"]}
    for found in jdfl.sweep(method, problem, timed, over={"lr": [0.01, 0.002]}, keys=[2, 3], **how):
        single = jdfl.run(replace(method, lr=found.labels["lr"]), problem, timed, key=found.run_key, **how)
        np.testing.assert_array_equal(found.params, single.params)
        assert found.history.equals(single.history)
        assert found.totals == single.totals


@pytest.mark.rotated(4)
@pytest.mark.parametrize("fault", [None, "both"])
@pytest.mark.parametrize("name", VARIANTS)
def test_seeds_side_by_side_are_single_runs_bit_for_bit(name, fault, monkeypatch):
    if fault not in (None, *borne(name)):
        fault = None
    method, problem, timed = VARIANTS[name], testing.small_problem(), network("slow nodes", fault=fault)
    how: dict[str, Any] = {"steps": 6, "every": 4, "metrics": ["objective"]}
    if fault is not None:
        how["stop"] = jdfl.objective_below(0.7)
    together, number = side_by_side.advance, list[int]()
    monkeypatch.setattr(side_by_side, "advance", lambda runs, *rest: number.append(len(runs)) or together(runs, *rest))
    for seed, found in zip((2, 7, 3), jdfl.repeat(method, problem, timed, keys=[2, 7, 3], **how), strict=True):
        single = jdfl.run(method, problem, timed, key=seed, **how)
        np.testing.assert_array_equal(found.params, single.params)
        assert found.history.equals(single.history)
        assert found.totals == single.totals
        np.testing.assert_array_equal(found.releases, single.releases)
    assert number == ([1, 1, 1] if hasattr(method, "gamma") else [3])  # codecs have keys of their run


@pytest.mark.parametrize("planted", ["one key", "one table", "order"])
def test_planted_mistakes_side_by_side_are_noticed(planted, monkeypatch):
    method, problem, timed = VARIANTS["AD-PSGD, noise"], testing.small_problem(), network("slow nodes")
    how: dict[str, Any] = {"steps": 6, "metrics": ["objective"], "keys": [2, 7]}
    whole, merged = jdfl.repeat(method, problem, timed, **how), lanes.merged

    def wrong(parts, kinds, heights):
        if planted == "one table":
            heights = dict.fromkeys(heights, 0)
        events, lane = merged(parts, kinds, heights)
        return (events, 0 * lane) if planted == "one key" else (events, lane)

    monkeypatch.setattr(lanes, "merged", wrong)
    if planted == "order":
        monkeypatch.setattr(lanes, "apart", lambda tables, number, apart=lanes.apart: apart(tables, number)[::-1])
    found = jdfl.repeat(method, problem, timed, **how)
    assert any(not np.array_equal(one.params, other.params) for one, other in zip(whole, found))
