"""The constants and preconditions of the three papers' convergence theorems, at the papers' own settings.

Nothing is trained but a few rounds of the DPPS paper's perceptron. Numbers outside the range of floats are given by
their decimal logarithm.

CEPS, Theorem 1, requires c >= c_0 = (80 m sqrt(l) / (1 - tau))^2 with tau = (1 - m^(-m B))^(1/B), where sigma_i = c /
t_i. Assumption 4 requires the union of the links selected in B + 1 communication rounds to be connected; the paper
bounds the probability that every pair of nodes communicates, which takes a complete network. Assumption 4 itself is
simulated.

PartPSP, Theorem 2, requires gamma_s < min((1 - q) / (2 sqrt(15) C L_sc), 1 / (16 L_s + 8 A)), gamma_l < 1 / (1 + L_l)
and gamma_n < gamma_s / 2, with A = (L_ls^2 / 2 + gamma_s L_sc^2 / 2 + 4 L_s L_sc^2 gamma_s^2) 30 C^2 / (1 - q)^2 (after
its Eq. 55). C and q are taken to be the paper's C' and lambda. L_ls is the largest singular value of the mixed second
derivatives. L_sc is L_s, its smallest possible value. Curvatures are those at one point, so the theorem's constants,
which hold everywhere, are at least as large. Assumption 2 (d), at equal points, says that clipping never changes a
gradient.

DO-ADP, Theorem 2, requires gamma = rho p k / (d (16 rho + rho^2 + 4 phi^2 + 2 rho phi^2) - 8 rho p k) and alpha < (1 -
beta)^2 / (2 L); Corollary 1 T >= 4 n L^2 / (1 - beta)^4, and privacy (Theorem 1) T >= (q epsilon / 2 p)^2. The bound
(10) is evaluated without noise.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.ceps_table3 import CASES, network_of
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.partpsp_common import images
from experiments.theory.ceps import log10_c0, pairs_bound
from experiments.theory.doadp import Convergence, gamma_of, spectrum
from experiments.theory.push_sum import bound_A
from experiments.theory.theorem import total
from jdfl.algorithms import Theorem1

PAIRS = ((1.0, 1.0), (0.8, 1.0), (1.0, 0.3), (0.8, 0.3))  # p, k / d of the DO-ADP paper
_DOADP = {"n": 20, "d": 2000, "q": 20_000, "epochs": 6, "alpha": 1e-3, "gamma": 0.05, "beta": 0.15, "epsilon": 0.01}
_PARTPSP = {"gamma": 0.1, "gamma_n": 1e-3, "C": 0.95, "q": 0.55, "clip": 100.0}


def rounds_for_pairs(m: int, t: float, chance: float = 0.99) -> int:
    """The smallest B whose bound is at least `chance`."""
    B = 1
    while pairs_bound(m, t, B) < chance:
        B += 1
    return B


def connected(senders: Sequence[np.ndarray], t: Sequence[int], rounds: int, rng: np.random.Generator) -> bool:
    """Whether the links selected in `rounds` rounds, to t_i neighbours of each node i, connect all nodes."""
    parent = list(range(len(senders)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for _ in range(rounds):
        for i, others in enumerate(senders):
            for j in rng.choice(others, t[i], replace=False):
                parent[root(i)] = root(int(j))
    return len({root(i) for i in range(len(senders))}) == 1


def ceps(seeds: int, trials: int) -> list[Row]:
    """Theorem 1 of the CEPS paper in the settings of its Table III."""
    rows: list[Row] = []
    for case in (one for one in CASES if one.epsilon == 0.5):
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            problem, network = jdfl.problems.example1(m=case.m, seed=seed), network_of(case, seed)
            L = np.asarray(problem.curvature, float)
            mask, table = np.asarray(network.graph.mask), np.asarray(network.graph.senders)
            senders = [table[i][mask[i]] for i in range(case.m)]
            t = [max(1, round(case.rate * len(one))) for one in senders]
            c = L / (case.m * (2 * case.rate + 0.1)) * np.array(t)
            rng = np.random.default_rng(seed)
            for name, value in {
                "largest c": c.max(),
                "log10 c_0, B = 1": log10_c0(case.m, L.max(), 1),
                "log10 c_0, B = 20": log10_c0(case.m, L.max(), 20),
                "pairs' bound, B = 20": pairs_bound(case.m, float(np.mean(t)), 20),
                "B for a bound of .99": rounds_for_pairs(case.m, float(np.mean(t))),
                "connected in 2 rounds": np.mean([connected(senders, t, 2, rng) for _ in range(trials)]),
            }.items():
                found.setdefault(name, []).append(float(value))
        rows += [row(f"CEPS {case}", name, None, values) for name, values in found.items()]
    claim = pairs_bound(32, 16.5, 20)
    rows.append(row("CEPS m=32 t=(m+1)/2, complete", "pairs' bound, B = 20", 1.0, [claim]))
    return rows


def largest_curvature(value: Callable[[jax.Array], jax.Array], w: jax.Array, seed: int, steps: int) -> float:
    """The largest absolute eigenvalue of the Hessian of `value` at w [n], by power iteration."""
    gradient = jax.grad(value)

    @jax.jit
    def product(v: jax.Array) -> jax.Array:
        return jax.jvp(gradient, (w,), (v,))[1]

    v = jax.random.normal(jax.random.key(seed), w.shape, w.dtype)
    size = 0.0
    for _ in range(steps):
        v = product(v / jnp.linalg.norm(v))
        size = float(jnp.linalg.norm(v))
    return size


def largest_mixed(value: Callable[[jax.Array], jax.Array], w: jax.Array, d: int, seed: int, steps: int) -> float:
    """The largest singular value of the derivative of grad_l `value` by s, at w = (s [d], l): L_ls there."""

    def local(s: jax.Array) -> jax.Array:
        return jax.grad(value)(jnp.concatenate([s, w[d:]]))[d:]

    @jax.jit
    def forth_and_back(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        _, forth = jax.jvp(local, (w[:d],), (v,))
        return jnp.linalg.norm(forth), jax.vjp(local, w[:d])[1](forth)[0]

    v = jax.random.normal(jax.random.key(seed), (d,), w.dtype)
    size = 0.0
    for _ in range(steps):
        length, v = forth_and_back(v / jnp.linalg.norm(v))
        size = float(length)
    return size


def curvatures(problem: jdfl.problems.Problem, w: jax.Array, seed: int, steps: int) -> tuple[float, ...]:
    """L_s, L_l and L_ls of node 0 at w [n], and the l1 norm of its shared gradient."""
    first, d = problem.nodes(jnp.arange(1)), problem.n_shared

    def whole(x: jax.Array) -> jax.Array:
        return first.values(x[None])[0]

    def shared(x: jax.Array) -> jax.Array:
        return whole(jnp.concatenate([x, w[d:]]))

    def local(x: jax.Array) -> jax.Array:
        return whole(jnp.concatenate([w[:d], x]))

    l1 = float(jnp.sum(jnp.abs(jax.grad(shared)(w[:d]))))
    L_s, L_l = largest_curvature(shared, w[:d], seed, steps), largest_curvature(local, w[d:], seed, steps)
    return L_s, L_l, largest_mixed(whole, w, d, seed, steps), l1


def partpsp(seeds: int, quick: bool) -> list[Row]:
    """Theorem 2 of the DPPS paper for its perceptron, before training and after some rounds of it."""
    told, data = _PARTPSP, images("mnist")
    found: dict[str, list[float]] = {}
    examples = 500 if quick or data == "digits" else 5000
    for seed in range(seeds):
        problem = jdfl.problems.neural_classification(
            data, 10, shared="partpsp-1", seed=seed, init_seed=seed, examples=examples
        )
        algorithm = jdfl.SGP(lr=told["gamma"], gradients=jdfl.Gradients(batch=20))
        rounds = 20 if quick else 200
        later = jdfl.run(
            algorithm, problem, jdfl.network.d_out(10, 4), key=seed, steps=rounds, every=rounds, metrics=()
        )
        for when, w in (("at first", problem.initial_params()[0]), ("later", later.params[0])):
            L_s, L_l, L_ls, l1 = curvatures(problem, w, seed, 10 if quick else 40)
            A = bound_A(L_s, L_s, L_ls, told["gamma"], told["C"], told["q"])
            for name, value in {
                f"L_s {when}": L_s,
                f"L_ls {when}": L_ls,
                f"A {when}": A,
                f"gamma_s (16 L_s + 8 A) {when} (< 1)": told["gamma"] * (16 * L_s + 8 * A),
                f"gamma_s 2 sqrt(15) C L_s / (1 - q) {when} (< 1)": (
                    told["gamma"] * 2 * math.sqrt(15) * told["C"] * L_s / (1 - told["q"])
                ),
                f"gamma_l (1 + L_l) {when} (< 1)": told["gamma"] * (1 + L_l),
                f"l1 norm of the shared gradient {when}": l1,
            }.items():
                found.setdefault(name, []).append(value)
    return [row(f"PartPSP-1 {data}", name, None, values) for name, values in found.items()]


def doadp() -> list[Row]:
    """Theorems 1 and 2 and Corollary 1 of the DO-ADP paper on its network and problem."""
    told = _DOADP
    n, q, alpha, beta = int(told["n"]), told["q"], told["alpha"], told["beta"]
    network = jdfl.network.circulant(n, [1, 2, 3], weights="uniform")
    rho, phi = spectrum(np.asarray(jdfl.network.as_dense(network.graph), float))
    L, G, T = 0.25 + 1 / q, 1.0, told["epochs"] * q  # rows of norm 1
    rows = []
    for p, share in PAIRS:
        at = Convergence(
            n=n,
            d=int(told["d"]),
            steps=int(T),
            p=p,
            share=share,
            rho=rho,
            phi=phi,
            alpha=alpha,
            gamma=told["gamma"],
            beta=beta,
            smoothness=L,
            longest=G,
            variance=G**2,
            sigma=0.0,
            gap=math.log(2),
        )
        step = math.sqrt(n / T)
        theorem = Theorem1(p=p, share=share, steps=int(T), records=int(q), clip=G)
        terms = at.terms(step)
        case = f"DO-ADP p={p:g} k/d={share:g}"
        for name, paper, value in (
            ("gamma", told["gamma"], gamma_of(rho, phi, p * share)),
            ("alpha below", alpha, at.most),
            ("alpha of Corollary 1", alpha, step),
            ("T of Corollary 1", T, at.least),
            ("T of Theorem 1", T, theorem.least(told["epsilon"])),
            ("bound (10), no noise", None, total(terms)),
            ("its third term", None, terms[2]),
        ):
            assert value is not None
            rows.append(row(case, name, paper, [value]))
    return rows


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    used = doadp()
    tables = {
        "CEPS, Theorem 1 (c_0 must be at most c)": ceps(chosen.seeds, 100 if chosen.quick else 1000),
        "PartPSP, Theorem 2": partpsp(chosen.seeds, chosen.quick),
        "DO-ADP, Theorems 1 and 2: used and required": used,
    }
    return Made(tables, bars(used, ["gamma"], "gamma of Theorem 2, and of the paper's experiments"))
