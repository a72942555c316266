"""The hypotheses of the three papers' theorems, compared with the settings, data and network of a run. On the host.

What a problem provides is used: curvature, a known optimum, a start; and so are clips, codecs and the matrices of a
network. Other constants stay unknown.

Axes: m nodes.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from experiments.theory import ceps as ceps_theorems
from experiments.theory import doadp as doadp_theorems
from experiments.theory import push_sum as push_sum_theorems
from experiments.theory.theorem import Condition, Theorem
from jdfl.algorithms.ceps_paper import PAPER_DELTA
from jdfl.algorithms.doadp import UNSOUND
from jdfl.algorithms.requests import sizes
from jdfl.algorithms.step_sizes import regulariser_curvature
from jdfl.codecs import Dense, Sparse
from jdfl.network import Network, Static, as_dense, matrices
from jdfl.network.graph import round_of
from jdfl.network.tables import arcs_of, components
from jdfl.privacy import Gaussian, stretch
from jdfl.problems import Problem

_FOLLOWED = 60  # rounds whose mixing matrices are multiplied in all ways
_SOURCES = {  # whether S is a bound by Eq. 22, what it is, and what it needs
    "eq22": (None, "that of Eq. 22", "a network known beforehand"),
    "lemma2": (True, "a public bound by Eq. 22", ""),
    "certified": (
        False,
        "another bound, whose guarantee jdfl.account states",
        'sensitivity = "eq22", which is no safer',
    ),
    "real": (False, "the true one, which no node knows", 'sensitivity = "eq22", with constants that fit the network'),
}
_PROBLEM = "a problem with a bound on its curvature, such as a linear model"


class Run(NamedTuple):
    """A run before its first round."""

    algorithm: Any
    problem: Problem
    network: Network
    steps: int
    ready: Any  # the result of the algorithm's `prepare`


def ceps(run: Run) -> tuple[Theorem, ...]:
    """Theorems 1 to 3 of the CEPS paper."""
    a, problem, graph = run.algorithm, run.problem, round_of(run.network, 0)
    everyone, asked = (np.asarray(one) for one in sizes(a, graph))
    period, c = np.asarray(run.ready.period), np.asarray(run.ready.sigma, float) * asked
    k0 = int(period[0]) if np.ptp(period) == 0 else None
    smooth, gap = _smoothness(problem), _gap(problem)
    linked, everywhere = _linked(run.network), bool(np.all(asked == everyone))
    exact = a.codec.contraction(a.s, a.s)
    g = np.asarray(problem.gradients(problem.initial_params()), float)
    zeta = math.sqrt(float(np.mean(np.sum(np.square(g - g.mean(axis=0)), axis=1))))
    same = bool(np.allclose(c, c[0], rtol=1e-5))
    setting = (
        _smooth("Assumption 1", smooth),
        Condition("Assumption 2", "gradients differ by at most zeta, on average; at the start", None, "zeta", zeta),
        Condition(
            "Assumption 3",
            "1BCS recovers w exactly",
            True if exact == 1 else False if exact is None else None,
            "a codec that loses nothing, such as dense",
        ),
        Condition(
            "Assumption 4",
            "the links selected in B + 1 communications connect all nodes",
            None if linked is None else False if not linked else True if everywhere else None,
            "rate = 1 on a fixed connected network, or the selections of the run",
        ),
        Condition("kappa_i = k_0", "all nodes communicate in the same steps", k0 is not None, "equal periods"),
        Condition("W^0 = 0", "all nodes start from zero", _from_zero(problem), "a problem without a start"),
        Condition("step 0", "nodes communicate in step 0", a.first == "zero", 'first = "zero"'),
        Condition("m_i = m_j", "all nodes have the same degree", bool(np.ptp(everyone) == 0), "a regular network"),
        Condition("i in N_i^k", "a node always selects itself", a.own == "always", 'own = "always"'),
        Condition("(3)", "selected nodes alone are averaged", a.unselected == "absent", 'unselected = "absent"'),
        Condition("sigma_i = c / t_i", "one c for all nodes", same, "sigma, one constant on a regular network"),
    )
    constants: dict[str, Any] = {
        "m": problem.m,
        "smoothness": smooth,
        "B": 1,
        "c": float(c[0]) if same else float(np.max(c)),
        "k0": k0,
        "communications": max(1, run.steps // k0) if k0 else 0,
        "gap": None if gap is None else gap * problem.m,
        "e_inf": None,
    }
    term = "log10 of m^2 c_0 zeta^2 / c"
    first = ceps_theorems.theorem_1(**constants, zeta=None).given(*setting)
    least = ceps_theorems.theorem_1(**constants, zeta=zeta).says[term]
    first = replace(first, says=first.says | {f"{term} at least, from the start": least})
    if not isinstance(a.mechanism, Gaussian):
        none = Condition("noise", "noise of variance rho_i (13) is added", False, "a Gaussian mechanism")
        empty = {"epsilon": None, "delta": None}
        return first, *(
            Theorem(f"ceps-{i}", f"CEPS, Theorem {i}", "epsilon and delta", (none,), dict(empty)) for i in (2, 3)
        )
    multiplier, count = float(a.mechanism.multiplier), -(-run.steps // int(period.min()))
    bounds = np.asarray(a.gradients.sensitivities(problem), float)
    private = (
        ceps_theorems.assumption_5(np.linalg.norm(g, axis=1), bounds),
        Condition("step 0", "noise is added in step 0", a.first == "zero" or a.noise == "kept", 'first = "zero"'),
    )
    second = ceps_theorems.theorem_2(multiplier, PAPER_DELTA)
    third = ceps_theorems.theorem_3(multiplier, PAPER_DELTA, count)
    return first, second.given(*private), third.given(*private)


def dpps(run: Run) -> tuple[Theorem, ...]:
    """Theorem 1 of the DPPS paper."""
    protocol, many = run.algorithm.dpps, _matrices(run)
    scale = float(np.min(np.asarray(run.ready.scales)))
    b = math.nan if protocol.b is None else float(protocol.b)
    holds, text, needs = _SOURCES.get(protocol.sensitivity, (None, "unknown", "a known source"))
    kept = Condition("Lemma 2", f"S is at least the largest distance, by Eq. 22; it is {text}", holds, needs)
    if protocol.sensitivity == "eq22" and many is not None:
        kept = push_sum_theorems.lemma_2(many, float(protocol.constant), float(protocol.contraction))
    noise = Condition("noise", "Laplace noise of scale gamma_n S / b", protocol.b is not None, "b")
    failure = float(protocol.failure) if protocol.sensitivity == "lemma2" else None
    theorem = push_sum_theorems.theorem_1(b, float(protocol.noise_rate) * scale, run.steps, failure)
    theorem = theorem.given(*_graphs(run, many), kept, noise)
    return (theorem if protocol.b is not None else replace(theorem, says=dict.fromkeys(theorem.says)),)


def partpsp(run: Run) -> tuple[Theorem, ...]:
    """Theorems 1 and 2 of the DPPS paper."""
    a, problem, many = run.algorithm, run.problem, _matrices(run)
    whole, clipped = not problem.personal, a.gradients.clip is not None
    smooth = _smoothness(problem) if whole else None
    C, q = (math.nan, math.nan) if many is None else push_sum_theorems.constants(many)
    at = push_sum_theorems.Convergence(
        rounds=run.steps,
        d_s=a.carried(problem),
        gamma_s=float(getattr(a, a.rate)),
        gamma_l=float(getattr(a, "lr_local", 0.0)) if not whole else 0.0,
        gamma_n=float(a.dpps.noise_rate),
        b=None if a.dpps.b is None else float(a.dpps.b),
        C=C,
        q=q,
        L_s=None if math.isnan(C) else smooth,
        L_sc=None if clipped else smooth,
        L_l=0.0 if whole else None,
        L_ls=0.0 if whole else None,
        sigma_s=0.0 if a.gradients.batch is None else None,
        sigma_l=0.0 if whole or a.gradients.batch is None else None,
        sigma_g=None,
        S=None if run.ready.certified is None else float(np.max(np.asarray(run.ready.certified))),
        gap=_gap(problem),
        start=float(np.sum(np.square(problem.initial_params()[0, : problem.n_shared]))),
    )
    given = (
        _smooth("Assumption 2", smooth),
        Condition(
            "Assumption 2 (d)",
            "at equal points: clipping changes no gradient",
            None if clipped else True,
            "no clip, or gradients that are never longer than it",
        ),
        Condition("Assumption 3", "variances are at most sigma_s^2, sigma_l^2, sigma_g^2", None, "sigma_g"),
        Condition(
            "Assumption 4",
            "S^(t) <= S in all rounds",
            True if at.b is None or at.S is not None else None,
            'S, for example sensitivity = "certified"',
            at.S,
        ),
        Condition("constant step sizes", "the same in all rounds", not a.milestones, "no milestones"),
    )
    return *dpps(run), push_sum_theorems.theorem_2(at).given(*_graphs(run, many), *given)


def doadp(run: Run) -> tuple[Theorem, ...]:
    """Theorems 1 and 2 and Corollary 1 of the DO-ADP paper."""
    a, problem, steps = run.algorithm, run.problem, run.steps
    W, n = np.asarray(as_dense(round_of(run.network, 0)), float), problem.n
    rho, phi = doadp_theorems.spectrum(W)
    codec, g = a.codec, a.gradients
    top = isinstance(codec, Dense) or (isinstance(codec, Sparse) and codec.leaves is None)
    share = codec.size(n, n) / n if isinstance(codec, Sparse) else 1.0
    single = g.clip is not None and g.per == "example"
    longest = float(g.clip) * stretch(g.norm, "l2", n) if g.clip is not None and single else None
    sigma = 0.0 if g.mechanism is None else None
    if isinstance(g.mechanism, Gaussian):
        sigma = float(g.mechanism.multiplier) * float(np.max(np.asarray(g.sensitivities(problem))))
    penalty, smooth = regulariser_curvature(problem), _smoothness(problem)
    at = doadp_theorems.Convergence(
        n=problem.m,
        d=n,
        steps=steps,
        p=float(a.p),
        share=share,
        rho=rho,
        phi=phi,
        alpha=float(a.lr),
        gamma=float(a.gamma),
        beta=float(a.beta),
        smoothness=smooth,
        longest=longest,
        variance=None if longest is None else longest**2,
        sigma=sigma,
        gap=_gap(problem),
    )
    entries = Condition(
        "Assumption 2",
        "every entry of a gradient is at most G / sqrt(d)",
        None if not single else g.norm == "entries",
        'a clip of every example with norm = "entries"',
    )
    lengths = Condition(
        "Assumption 2",
        "E||g||^2 <= G^2, which the proof uses" + (" (a regulariser is added after clipping)" if penalty else ""),
        None if not single else not penalty,
        "a clip of every example, and no regulariser",
        longest,
    )
    setting = (
        _smooth("Assumption 1", smooth),
        Condition(
            "Assumption 1 (ii)", "E g is the gradient: clipping changes none", None, "a clip that is never reached"
        ),
        lengths,
        Condition("Assumption 3", "W is symmetric and doubly stochastic, with rho > 0", rho > 0, "links", rho),
        Condition("Top_k", "messages have the k largest of d entries", top, "codec sparse or dense", share),
        Condition("(5d)", "every active node sends", a.trigger is None, "trigger = None"),
        Condition("xhat_0 = x_0", "as Lemma 3's proof needs", a.start == "x" or _from_zero(problem), 'start = "x"'),
    )
    one = a.theorem(problem, steps)
    if one is None or sigma is None or sigma == 0:
        needs = "Gaussian noise, one example per gradient, replaced records, and messages of k entries"
        none = Condition("Algorithm 1", "noisy gradients of one example, and Top_k", False, needs)
        says: dict[str, float | None] = {"epsilon": None, "delta at the end of its proof": None}
        first = Theorem("do-adp-1", "DO-ADP, Theorem 1", "epsilon and delta", (none,), says, UNSOUND)
    else:
        first = doadp_theorems.theorem_1(one, sigma)
    return (
        first.given(entries),
        doadp_theorems.theorem_2(at).given(*setting),
        doadp_theorems.corollary_1(at).given(*setting),
    )


def _smoothness(problem: Problem) -> float | None:
    """The largest Lipschitz constant of a grad f_i; None where the problem has no bound."""
    most = float(np.max(np.asarray(problem.curvature)))
    return most + regulariser_curvature(problem) if most > 0 else None


def _smooth(name: str, value: float | None) -> Condition:
    """The condition that gradients are Lipschitz continuous."""
    return Condition(name, "gradients are Lipschitz continuous", True if value else None, _PROBLEM, value)


def _from_zero(problem: Problem) -> bool:
    """Whether all nodes start from zero."""
    return problem.start is None or not np.any(np.asarray(problem.start))


def _gap(problem: Problem) -> float | None:
    """mean_i f_i at the start, less its minimum; None where that is not known."""
    if problem.optimum is None:
        return None
    return float(np.mean(np.asarray(problem.values(problem.initial_params()), float))) - float(problem.optimum.value)


def _matrices(run: Run) -> list[np.ndarray] | None:
    """The mixing matrices of the first rounds; None for a network that is drawn at random."""
    rounds = min(run.steps, _FOLLOWED)
    try:
        known = matrices(run.network, rounds, "theorems")
    except ValueError:
        return None
    return [known(t) for t in range(rounds)]


def _linked(network: Network) -> bool | None:
    """Whether a fixed network is connected; None for one that changes."""
    return components(arcs_of(network.graph))[0] == 1 if isinstance(network, Static) else None


def _graphs(run: Run, many: list[np.ndarray] | None) -> tuple[Condition, ...]:
    """Assumption 1 and Definition 1 of the DPPS paper."""
    selves = None if many is None else all(bool(np.all(np.diag(W) > 0)) for W in many)
    both = None
    if many is not None:
        both = all(bool(np.allclose(W.sum(axis=axis), 1, atol=1e-5)) for W in many for axis in (0, 1))
    known = "a network known beforehand"
    text = "every node has a self-loop, and the links of B rounds connect all nodes (checked before a run)"
    return (
        Condition("Assumption 1", text, selves, known if selves is None else "self-loops"),
        Condition(
            "Definition 1", "W is doubly stochastic", both, known if both is None else "doubly stochastic weights"
        ),
    )
