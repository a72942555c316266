"""The forms of computations for other backends: every method gives the same with them, on a CPU, up to rounding."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout

import jdfl
from benchmarks import aot
from jdfl import testing
from jdfl.base.backend import backend, target
from jdfl.engine.loop import put_in_rows
from tests.contract.table import TABLE

pytestmark = pytest.mark.filterwarnings("ignore:.* keep their own rows")  # of robust rules, on so small a network
STEPS = 4
LINES = {str(line): line for line in TABLE}


def network():
    """The small network with its table of neighbours: with a matrix instead, all backends mix alike."""
    graph = testing.small_network()
    return replace(graph, graph=replace(graph.graph, format="padded"))


def run(line):
    problem = testing.small_problem(shared=line.shared, dtype=np.float64)
    return jdfl.run(line.algorithm, problem, network(), steps=STEPS, key=3, metrics=())


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("gpu", [LINES["CHOCO-SGD, top 3"]]),
        *(pytest.param(name, TABLE[i::4], marks=pytest.mark.slow) for name in ("gpu", "tpu") for i in range(4)),
    ],
)
def test_methods_give_the_same(name, lines):
    with jax.enable_x64(True):  # messages of few bits remain the same where additions have another order
        expected = [run(line) for line in lines]
        with target(name):
            for line, here in zip(lines, expected, strict=True):
                there = run(line)
                np.testing.assert_allclose(there.params, here.params, rtol=1e-9, atol=1e-12, err_msg=str(line))
                assert there.sums == here.sums, line


@pytest.mark.parametrize(
    "name", ["DSGT", *(pytest.param(one, marks=pytest.mark.slow) for one in ("CHOCO-SGD, top 3", "D-PSGD", "SGP"))]
)
def test_rows_of_several_devices_give_the_same(name):
    """On a GPU the rows of other devices are summed where they lie."""
    algorithm = LINES[name].algorithm
    weights = "out-degree" if algorithm.columns else None
    graph = jdfl.network.circulant(16, (1, 2), weights=weights, format="padded")
    with jax.enable_x64(True):
        problem = testing.small_problem(dtype=np.float64, m=16)
        one = jdfl.run(algorithm, problem, graph, steps=STEPS, key=3, metrics=())
        with target("gpu"):
            options = jdfl.Options(devices=4)
            many = jdfl.run(algorithm, problem, graph, steps=STEPS, key=3, metrics=(), options=options)
    np.testing.assert_allclose(many.params, one.params, rtol=1e-9, atol=1e-12)
    assert many.sums == one.sums


def test_data_lies_in_rows_where_a_device_has_another_order():
    """But for narrow rows, which a TPU fills up to 128 numbers."""

    def problem(n):
        whole = aot.regression(aot.Size(testing.small_network().m, n, 7))
        columns = Format(Layout((0, 2, 1)), whole.weight.sharding)
        return replace(whole, data=(jax.device_put(whole.data[0], columns), *whole.data[1:]))

    def order(whole):
        return put_in_rows(whole).data[0].format.layout.major_to_minor

    wide, narrow = problem(100), problem(11)
    assert order(wide) == (0, 2, 1)
    with target("tpu"):
        assert order(wide) == (0, 1, 2)
        assert order(narrow) == (0, 2, 1)
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), wide)
        assert order(shapes) == (0, 1, 2)
        found = jdfl.run(jdfl.DSGT(lr=0.1), wide, network(), steps=STEPS, key=3, metrics=())
    expected = jdfl.run(jdfl.DSGT(lr=0.1), wide, network(), steps=STEPS, key=3, metrics=())
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-5, atol=1e-6)
    assert wide.data[0].format.layout.major_to_minor == (0, 2, 1)
    assert backend() == jax.default_backend()
