"""Figures can be read in grey, carry their provenance, and leave nothing behind."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import jdfl
from jdfl.lab.drawing import COLOURS, lines, look, looks
from tests.refused import each_refused
from tests.report.test_page import luminance

NAMES = ["D-PSGD", "CHOCO-SGD, top 5 %", "EXTRA", "NIDS", "exact diffusion", "DSGT\n(not tuned)", "CEPS", "FedAvg"]


def frame(names: list[str]) -> pd.DataFrame:
    x = np.arange(0.0, 1e6, 2e4)
    parts = []
    for i, name in enumerate(names):
        mean = np.exp(-x / 2e5 * (1 + 0.2 * i))
        parts.append(pd.DataFrame({"label": name, "x": x, "mean": mean, "low": 0.9 * mean, "high": 1.1 * mean}))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def result() -> jdfl.Result:
    return jdfl.run(jdfl.DPSGD(lr=0.05), jdfl.problems.example1(4, 20, 2, (5, 9)), jdfl.network.ring(4), steps=12)


def test_neighbours_differ_in_grey_and_no_two_lines_of_twelve_are_alike():
    seven = [116 * luminance(one) ** (1 / 3) for one in COLOURS]  # L* of CIELAB, but for a constant
    for one, other in zip(seven, [*seven[1:], seven[0]]):
        assert abs(one - other) >= 12
    for first in range(10):
        assert len({look(i)["marker"] for i in range(first, first + 12)}) == 12


def test_a_method_looks_the_same_in_whatever_order_methods_come():
    styles = looks(NAMES)
    assert styles == looks(NAMES[::-1]) == looks([*NAMES, *NAMES])
    assert looks(["d_psgd", "CHOCO"])["d_psgd"] == looks(["choco", "D-PSGD"])["D-PSGD"]


def test_a_formula_that_cannot_be_read_is_drawn_as_it_is(tmp_path):
    names = [r"$\frac{1$", r"$\epsilon = 1$", "5$"]
    fig, _ = lines({"rounds": frame(names)}, {n: n for n in names}, "objective")
    fig.savefig(tmp_path / "a.png")


def test_files_carry_the_provenance_and_pictures_do_not_and_nothing_is_left_behind(result, tmp_path):
    before = dict(matplotlib.rcParams)
    fig, _ = result.plot()
    told = result.provenance.hash
    for suffix in ("png", "pdf", "svg"):
        fig.savefig(tmp_path / f"a.{suffix}")
        assert told.encode() in (tmp_path / f"a.{suffix}").read_bytes()
    assert not any(told in text.get_text() or "tuned" in text.get_text() for text in fig.findobj(Text))
    assert plt.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


def test_one_amount_has_one_axes_and_several_have_an_array(result):
    drawn = result.plot("bytes", "consensus_error")
    ax = drawn[1]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("bytes sent by all nodes", "consensus error")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), result.history[["bytes", "consensus_error"]])
    _, axes = result.plot(["round", "bytes"])
    assert axes.shape == (2,)
    mine, places = plt.subplots(1, 2)
    assert result.plot(["round", "gradients"], ax=places)[0] is mine
    plt.close(mine)
    each_refused(result.plot, {"x": "moons"}, {"y": "beauty"}, {"width": "wall"}, {"height": 0.0}, {"floor": -1.0})
