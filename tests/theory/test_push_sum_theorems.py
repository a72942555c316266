"""Lemma 2 and Theorems 1 and 2 of the DPPS paper, and every step of their proofs that has numbers."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import jdfl
from experiments.proof_steps import silent_node
from experiments.theory import push_sum as theorems
from jdfl.privacy.sensitivity import lemma2_constants

CONSTANTS = {"L_s": 1.5, "L_sc": 2.0, "L_l": 0.7, "L_ls": 0.3, "sigma_s": 0.4, "sigma_l": 0.2, "sigma_g": 0.6}
RATES = {"gamma_s": 1e-5, "gamma_l": 0.1, "gamma_n": 1e-6}
AT = theorems.Convergence(rounds=500, d_s=10, b=2.0, C=2.0, q=0.5, S=3.0, gap=1.2, start=0.9, **CONSTANTS, **RATES)


def dense(network: Any) -> np.ndarray:
    return np.asarray(jdfl.network.as_dense(network.graph), float)


ROUNDS = 24


@cache
def several(name: str) -> list[np.ndarray]:
    """Doubly stochastic matrices of 24 rounds."""
    draw = np.random.default_rng(0)
    if name == "one peer":
        return [np.eye(8) / 2 + np.roll(np.eye(8), 2 ** (t % 3), axis=0) / 2 for t in range(ROUNDS)]
    if name == "permutations":
        return [0.6 * np.eye(6) + 0.4 * np.eye(6)[draw.permutation(6)] for _ in range(ROUNDS)]
    two = dense(jdfl.network.d_out(10, 2))
    return [np.full((10, 10), 0.1) if name == "synchronised" and t % 4 == 3 else two for t in range(ROUNDS)]


named = pytest.mark.parametrize("name", ["2-Out", "one peer", "permutations", "synchronised"])


def test_theorem_2_is_56_by_hand():
    L_s, L_sc, L_l, L_ls, C, q, g_s, g_l, g_n = 1.5, 2.0, 0.7, 0.3, 2.0, 0.5, 1e-5, 0.1, 1e-6
    A = (L_ls**2 / 2 + g_s * L_sc**2 / 2 + 4 * L_s * L_sc**2 * g_s**2) * 30 * C**2 / (1 - q) ** 2
    right = (
        1.2 / 500
        + A * 0.9 / (3 * 500)
        + (1 + L_l) * g_l**2 * 0.2**2
        + (4 * L_s + A) * g_s**2 * (0.4**2 + 0.6**2)
        + (g_n + 2 * L_s * g_s**2 + 2 * A * g_n**2) * 10 * 3.0**2 / 2.0**2
    )
    weight = g_s / 2 - g_n / 2 - 4 * L_s * g_s**2 - 2 * A * g_s**2
    found = theorems.theorem_2(AT)
    assert found.holds
    assert found.says["A"] == pytest.approx(A)
    assert found.says["bound on mean_t Delta_s"] == pytest.approx(right / weight)


def test_what_is_missing_is_named_and_what_is_unknown_leaves_the_bound_unknown():
    for missing, value in {"gamma_s": 0.1, "gamma_l": 1 / 1.7, "gamma_n": 5e-6}.items():
        assert missing in theorems.theorem_2(replace(AT, **{missing: value})).missing
    for unknown in ("L_s", "L_sc", "L_ls", "sigma_g", "S", "gap"):
        found = theorems.theorem_2(replace(AT, **{unknown: None}))
        assert found.says["bound on mean_t Delta_s"] is None
        assert found.holds is (None if unknown.startswith("L") else True)


@pytest.mark.parametrize("seed", range(3))
def test_the_limits_of_the_step_sizes_are_what_the_proof_needs(seed):
    """Q >= 1/2 before (51), and both weights on the left of (56) are positive; a larger gamma_s breaks one of them."""
    draw = np.random.default_rng(seed)
    L_s, L_sc, L_ls, C = 10 ** draw.uniform(-2, 2, 4)
    q = draw.uniform(0.05, 0.95)

    def most(gamma: float) -> float:
        return theorems.most_gamma_s(L_s, L_sc, theorems.bound_A(L_s, L_sc, L_ls, gamma, C, q), C, q)

    gamma_s = float(brentq(lambda gamma: gamma - most(gamma), 0.0, 1e6, xtol=1e-300, rtol=1e-14))  # A depends on it

    def needed(gamma: float) -> bool:
        A = theorems.bound_A(L_s, L_sc, L_ls, gamma, C, q)
        Q = 1 - 30 * gamma**2 * C**2 * L_sc**2 / (1 - q) ** 2
        return Q >= 0.5 and (4 * L_s + 2 * A) * gamma <= 0.25

    assert needed(0.999 * gamma_s)
    assert not needed(1.001 * gamma_s)
    gamma_l, L_l = 0.99 / (1 + L_s), L_s
    assert gamma_l - (1 + L_l) * gamma_l**2 > 0 > 1.02 * gamma_l - (1 + L_l) * (1.02 * gamma_l) ** 2


# Lemma 2


def distances(many: list[np.ndarray], eps: np.ndarray) -> np.ndarray:
    """The largest l1 distance between two nodes' vectors after their perturbations eps [T, N, d], in every round."""
    s, found = np.zeros(eps.shape[1:]), []
    for W, one in zip(many, eps):
        half = s + one
        found.append(np.abs(half[:, None] - half[None]).sum(axis=2).max())
        s = W @ half
    return np.array(found)


def estimate(eps: np.ndarray, constant: float, contraction: float) -> np.ndarray:
    """max_i S_i of Eq. 22 in every round, without noise and from zero."""
    S, found = np.zeros(eps.shape[1]), []
    for one in np.abs(eps).sum(axis=2):
        S = contraction * S + 2 * constant * one
        found.append(S.max())
    return np.array(found)


@named
def test_lemma_2_holds_with_N_C(name):
    many, draw = several(name), np.random.default_rng(1)
    C, contraction = lemma2_constants(many)
    N = len(many[0])
    for kind in ("random", "halves", "one node"):
        eps = draw.normal(size=(len(many), N, 3))
        if kind == "halves":
            eps = np.where(np.arange(N) < N // 2, 1.0, -1.0)[None, :, None] * np.ones((len(many), 1, 1))
        if kind == "one node":
            eps[:, 1:] = 0
        assert np.all(distances(many, eps) <= estimate(eps, C, contraction) * (1 + 1e-9))
    assert theorems.lemma_2(many, C * (1 + 1e-9), contraction).holds


def test_lemma_2_fails_with_the_constants_of_the_experiments():
    many = several("2-Out")
    found = theorems.lemma_2(many, 0.78, 0.55)
    assert found.holds is False
    eps = np.where(np.arange(10) < 5, 1.0, -1.0)[None, :, None] * np.ones((5, 1, 1))
    assert distances(many[:5], eps) == pytest.approx([2, 4, 6, 8, 10])
    ratio = distances(many[:5], eps) / estimate(eps, 0.78, 0.55)
    assert ratio.max() <= theorems.lemma_2(many[:5], 0.78, 0.55).value + 1e-9  # that of the worst perturbations
    assert ratio.max() > 1
    assert theorems.lemma_2(many, 5.0, 0.92).holds is None  # between what suffices and what is refuted


# Theorem 2: Lemmas 3 to 6


def test_39_is_false_of_a_node_that_adds_nothing():
    """The mean moves by what others add: node i's own start and perturbations, which are zero, bound no distance."""
    distance, bound = silent_node()
    assert bound == 0
    assert distance == pytest.approx(0.6)


@named
def test_39_holds_with_the_terms_of_all_nodes_and_lemma_6_with_N_C(name):
    many, draw = several(name), np.random.default_rng(2)
    N, (C, q) = len(many[0]), lemma2_constants(several(name))
    s = draw.normal(size=(N, 4))
    length, mean_own, left = np.linalg.norm(s, axis=1), 0.0, 0.0
    for W in many:
        eps = draw.laplace(size=s.shape) * (draw.random((N, 1)) < 0.5)
        s = W @ (s + eps)
        length = q * (length + np.linalg.norm(eps, axis=1))  # q^t ||s_l(0)|| + sum_k q^(t-k) ||eps_l^k||
        apart = np.linalg.norm(s - s.mean(axis=0), axis=1)
        assert np.all(apart <= C / N * length.sum() * (1 + 1e-9))
        left += float(np.mean(apart**2))
        mean_own += float(np.mean((C * length) ** 2))
    assert left <= mean_own
