"""The instance of the CEPS paper's Example 1."""

import numpy as np
import pytest

from jdfl.devices import memory
from jdfl.problems import check_problem, example1, value_at_truth


@pytest.mark.parametrize("seed", [0, 7])
def test_facts(seed):
    problem = example1(m=16, n=300, s=10, seed=seed)
    check_problem(problem)
    assert problem.data[0].shape == (16, 750, 300)
    sizes = np.asarray(problem.weight.sum(axis=1))
    assert sizes.min() >= 250
    assert sizes.max() <= 750
    assert len(set(sizes.tolist())) > 8
    nonzeros = np.asarray(problem.truth)[np.flatnonzero(problem.truth)]
    assert len(nonzeros) == 10
    assert (np.abs(nonzeros) >= 0.5).all()
    assert (np.abs(nonzeros) <= 2).all()
    assert (nonzeros > 0).any()
    assert (nonzeros < 0).any()
    deviation = 0.125 * np.sqrt(np.mean(2 / sizes) / 16)  # of the mean of m scaled chi-squares
    assert abs(value_at_truth(problem) - 0.125) < 5 * deviation
    np.testing.assert_allclose(np.asarray(problem.values_at(problem.truth)).mean(), value_at_truth(problem), rtol=1e-5)


def test_features_are_standard_normal_and_padding_is_zero():
    problem = example1(m=4, n=200, s=3)
    A, b = (np.asarray(leaf) for leaf in problem.data)
    real = np.asarray(problem.weight) > 0
    count = real.sum() * 200
    assert abs(A[real].mean()) < 5 / np.sqrt(count)
    assert abs(A[real].var() - 1) < 5 * np.sqrt(2 / count)
    assert not A[~real].any()
    assert not b[~real].any()


def test_noise_zero_is_exact_and_sizes_can_be_equal():
    problem = example1(m=3, n=50, s=4, rows=(20, 20), noise=0.0)
    assert np.asarray(problem.weight).all()
    assert value_at_truth(problem) < 1e-12


def test_seeds_and_nodes():
    first, again, other = example1(3, 40, 4, (5, 9)), example1(3, 40, 4, (5, 9)), example1(3, 40, 4, (5, 9), seed=1)
    np.testing.assert_array_equal(first.data[0], again.data[0])
    assert not np.array_equal(first.data[0], other.data[0])
    assert first.data[0].shape == other.data[0].shape
    more = example1(5, 40, 4, (5, 9))
    np.testing.assert_array_equal(more.data[1][:3], first.data[1])
    np.testing.assert_array_equal(more.truth, first.truth)
    assert not np.array_equal(first.data[0][0], first.data[0][1])


def test_refusals():
    with pytest.raises(ValueError, match="s >= 1 and <= 5"):
        example1(n=5, s=6)
    with pytest.raises(ValueError, match="rows"):
        example1(rows=(9, 8))
    with pytest.raises(ValueError, match="noise"):
        example1(noise=-0.5)


@pytest.mark.parametrize("storage", ["stored", "generated"])
def test_what_would_not_fit_is_refused_before_anything_is_drawn(storage, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2**34)
    with pytest.raises(ValueError, match=r"2147483647 x 750 examples of .* Use fewer nodes, rows"):
        example1(2**31 - 1, storage=storage)
    with pytest.raises(ValueError, match=r"n >= 1 and <= 2147483647"):
        example1(4, 2**31, storage=storage)
    with pytest.raises(ValueError, match=r"largest >= 250 and <= 2147483647"):
        example1(4, rows=(250, 2**63), storage=storage)
    with pytest.raises(ValueError, match=r"seed >= 0.* got seed = -1"):
        example1(4, 5, 2, rows=(3, 4), seed=-1, storage=storage)
    monkeypatch.setattr(memory, "available", lambda: 2**20)
    n = 2**15 if storage == "generated" else 2**16  # 40 bytes of each, or 12 and two examples
    with pytest.raises(ValueError, match=rf"\({n} true parameters, as drawn and as kept\)"):
        example1(1, n, 2, rows=(1, 2), storage=storage)
    assert example1(1, n // 2, 2, rows=(1, 2), storage=storage).n == n // 2
