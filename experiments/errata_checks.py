"""Errors in the papers beyond their tables and figures: every number that the errata give about a step of a proof.

Small examples, most of them exact:

- CEPS, Theorem 2: in step k = 0 of Algorithm 1 nothing is noisy, so two datasets that differ in one record give
  different w with certainty. Its proof, and Theorem 3's, have noise at k = 0.
- CEPS, Assumption 5 with the experiments' u_i = .1: norms of gradients of Example 1 at w = 0.
- CEPS, V-B: sigma_i of the nodes, which is computed from their data.
- CEPS, III-E: the old z_j of a neighbour that was not selected is used. In Eq. 3 it is not.
- CEPS, Lemma 4: E<grad f(nu), W Delta A 1 / m>, which the proof takes to be 0, on three nodes with quadratic f_i,
  summed over all choices of one of the three by each. nu contains Psi, which depends on A.
- CEPS, Table V: units per message, from its volumes, rounds, m, r and kappa.
- CEPS, Theorem 3: epsilon and delta of a run.
- DPPS, Theorem 1: the norm of a message's noise, from the S_i that its node broadcasts (Eq. 22), compared with what is
  left of the message without the node's vector, and without another's: an observer who knows the vectors can identify
  the sender.
- DPPS, Eq. 36: the mean after a round, by Lemma 3 (noise times gamma_n) and by Eq. 36 (noise times gamma_s).
- DPPS, Remark 2: the period of EXP in the text and in the published code, N = 10.
- DO-ADP, Appendices D and F: E[(eta_t - eta_(t-1)) m_t] for a constant gradient g = 1.
- DP-DSGT: the start at y = g = 0 of its authors' code, compared with `jdfl.DSGT` one round later.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.proof_steps import cross_term
from experiments.theory.ceps import log10_c0
from jdfl.algorithms.ceps_paper import PAPER_DELTA, composed, paper_volume

VOLUMES = {  # Table V of the CEPS paper: variant, r: iterations, volume in millions
    ("DP-1BCS", 0.2): (38, 0.78),
    ("DP-1BCS", 0.5): (28, 1.36),
    ("DP-1BCS", 0.8): (26, 2.05),
    ("NoDP-1BCS", 0.2): (29, 0.63),
    ("NoDP-1BCS", 0.5): (29, 1.44),
    ("NoDP-1BCS", 0.8): (23, 1.95),
    ("DP-Perf", 0.2): (28, 3.65),
    ("DP-Perf", 0.5): (28, 9.13),
    ("DP-Perf", 0.8): (24, 12.52),
    ("NoDP-Perf", 0.2): (29, 3.78),
    ("NoDP-Perf", 0.5): (27, 8.80),
    ("NoDP-Perf", 0.8): (21, 10.96),
}
TABLE_V = "CEPS Table V: units per message, "
CURVATURE = (1.0, 2.0, 3.0)  # of the three f_i
ANY_ONE = [[(0,), (1,), (2,)]] * 3  # what each of them may select
GAMMA_S, GAMMA_N = 0.1, 0.001  # of the DPPS paper's published code
CONSTANT, CONTRACTION = 0.78, 0.55  # C' and lambda of its Figure 2
MOMENTUM = 0.15  # of the DO-ADP paper's experiments


def first_step(label: float, *, feature: float = 0.05, sigma: float = 1.0, mu: float = 0.1) -> float:
    """w_i after step k = 0 of CEPS (Eq. 4) of a node with one record: logistic loss, one parameter, no noise.

    The gradient at w is (1 / (1 + exp(-feature w)) - label) feature: at most |feature| everywhere, so that Assumption 5
    holds with u_i = 2 |feature| = .1, the paper's.
    """
    u = -(0.5 - label) * feature
    return u / (sigma + mu)


def lengths(seed: int) -> np.ndarray:
    """||grad f_i(0)|| [32] of Example 1, which Assumption 5 requires to be below u_i / 2 = .05."""
    problem = jdfl.problems.example1(m=32, seed=seed)
    return np.linalg.norm(np.asarray(problem.gradients(problem.initial_params()), float), axis=1)


def step_sizes(seed: int, rate: float = 0.2) -> np.ndarray:
    """sigma_i [32] of Example 1 by the rule of section V-B, from the largest eigenvalue of every node's data."""
    problem = jdfl.problems.example1(m=32, seed=seed)
    return np.asarray(problem.curvature, float) / (32 * (2 * rate + 0.1))


def old_messages(rounds: int, seed: int) -> np.ndarray:
    """|mean over N_i^k (Eq. 3) - mean over N_i with the last z_j known (III-E)| [rounds]; 2 of 5 are selected."""
    draw = np.random.default_rng(seed)
    z, known, apart = draw.normal(size=5), np.zeros(5), []
    for _ in range(rounds):
        z = z + 0.1 * draw.normal(size=5)
        chosen = draw.choice(5, 2, replace=False)
        known[chosen] = z[chosen]
        apart.append(abs(z[chosen].mean() - known.mean()))
    return np.array(apart)


def units(variant: str, rate: float) -> float:
    """Bytes or bits per message implied by Table V, with 12.5 rounds between messages and m / 2 neighbours."""
    rounds, volume = VOLUMES[variant, rate]
    return volume * 1e6 / paper_volume(rounds, m=64, n=1000, rate=rate, d=-63)  # for one unit per message


def noise_told(seed: int) -> tuple[float, float]:
    """The difference between two norms of a message's noise, for the node that sent it and for another one.

    One norm is computed from S_i of two rounds (Eq. 22), the other is ||message - (s_i + eps_i)||_1 / gamma_n. The
    database of the paper's definitions, all vectors, is known; the identity of the node should stay hidden.
    """
    draw = np.random.default_rng(seed)
    s, first, second = (draw.normal(size=(2, 20)) for _ in range(3))  # s_i, eps_i of two rounds
    noise = draw.laplace(size=(2, 20))
    message = s[0] + first[0] + GAMMA_N * noise[0]
    apart = []
    for i in range(2):
        before = 2 * CONSTANT * (np.abs(s[i]).sum() + np.abs(first[i]).sum())
        told = CONTRACTION * before + 2 * CONSTANT * (
            np.abs(second[i]).sum() + CONTRACTION * GAMMA_N * np.abs(noise[i]).sum()
        )
        length = ((told - CONTRACTION * before) / (2 * CONSTANT) - np.abs(second[i]).sum()) / (CONTRACTION * GAMMA_N)
        apart.append(abs(length - np.abs(message - s[i] - first[i]).sum() / GAMMA_N))
    return apart[0], apart[1]


def mean_after(seed: int) -> tuple[float, float]:
    """The distance of the nodes' mean after a round of PartPSP from Lemma 3's, and from Eq. 36's (with gamma_s)."""
    draw = np.random.default_rng(seed)
    N, d = 10, 20
    W = sum(np.roll(np.eye(N), shift, axis=0) for shift in range(4)) / 4  # 4-Out
    s, g, n = draw.normal(size=(N, d)), draw.normal(size=(N, d)), draw.laplace(size=(N, d))
    after = (W @ (s - GAMMA_S * g + GAMMA_N * n)).mean(axis=0)
    by_lemma = s.mean(axis=0) + GAMMA_N * n.mean(axis=0) - GAMMA_S * g.mean(axis=0)
    by_equation = s.mean(axis=0) + GAMMA_S * n.mean(axis=0) - GAMMA_S * g.mean(axis=0)
    return float(np.abs(after - by_lemma).max()), float(np.abs(after - by_equation).max())


def momentum(p: float, seed: int, count: int, steps: int = 20, beta: float = MOMENTUM) -> float:
    """E[(eta_t - eta_(t-1)) m_t] at t = `steps` by simulation: m_t+1 = eta_t g + beta m_t with g = 1."""
    draw = np.random.default_rng(seed)
    m, before = np.zeros(count), np.zeros(count)
    for _ in range(steps):
        before = (draw.random(count) < p).astype(float)
        m = before + beta * m
    now = draw.random(count) < p
    return float(((now - before) * m).mean())


def starts(rounds: int, seed: int) -> float:
    """The largest relative difference of x between `jdfl.DSGT` and a loop from y = g = 0 one round later."""
    draw = np.random.default_rng(seed)
    m, n, lr = 6, 5, 0.05
    A, b = draw.normal(size=(m, 8, n)), draw.normal(size=(m, 8))
    with jax.enable_x64(True):
        problem = jdfl.problems.linear_regression(A, b, dtype=jnp.float64)
        network = jdfl.network.ring(m)
        W = np.asarray(jdfl.network.as_dense(network.graph), float)
        ours = jdfl.run(
            jdfl.DSGT(lr=lr, codec=jdfl.Dense("float64")), problem, network, key=0, steps=rounds, metrics=()
        )
        found = np.asarray(ours.params, float)
    x, y, g = np.zeros((m, n)), np.zeros((m, n)), np.zeros((m, n))
    for _ in range(rounds + 1):
        x = W @ (x - lr * y)
        fresh = np.einsum("mqn,mq->mn", A, np.einsum("mqn,mn->mq", A, x) - b) / 8
        y, g = W @ y + fresh - g, fresh
    return float(np.abs(found - x).max() / np.abs(x).max())


def rows_of(seeds: int, count: int) -> list[Row]:
    """All numbers; `count` samples of the momentum."""
    made: list[Row] = []

    def add(case: str, paper: float | None, *values: float) -> None:
        made.append(row(case, "value", paper, values))

    known, unknown = first_step(1.0), first_step(0.0)
    add("CEPS Theorem 2: w after step 0, label 1", None, known)
    add("CEPS Theorem 2: w after step 0, label 0", None, unknown)
    add("CEPS Theorem 2: total variation of step 0 (delta claimed)", PAPER_DELTA, float(known != unknown))
    found = [lengths(seed) for seed in range(seeds)]
    add("CEPS Assumption 5: least ||grad f_i(0)|| (u_i / 2)", 0.05, *(float(one.min()) for one in found))
    add("CEPS Assumption 5: largest ||grad f_i(0)|| (u_i / 2)", 0.05, *(float(one.max()) for one in found))
    sigma = [step_sizes(seed) for seed in range(seeds)]
    add("CEPS V-B: smallest sigma_i of Example 1", None, *(float(one.min()) for one in sigma))
    add("CEPS V-B: largest sigma_i of Example 1", None, *(float(one.max()) for one in sigma))
    add("CEPS III-E: |Eq. 3 - old z_j kept|, 2 of 5 selected", None, float(old_messages(200, 0)[20:].mean()))
    least = 10 ** log10_c0(len(CURVATURE), max(CURVATURE), 1)
    for name, c, scale in (("2 l", 2 * max(CURVATURE), 1.0), ("c_0, w times 10^4", least, 1e4)):
        at_nu, at_mean = cross_term(CURVATURE, scale * np.array([-1.0, 0.0, 2.0]), ANY_ONE, c)
        add(f"CEPS Lemma 4: E<grad f(nu), W DA 1 / m>, c = {name}", 0.0, at_nu)
        add(f"CEPS Lemma 4: E<grad f(varpi), W DA 1 / m>, c = {name}", 0.0, at_mean)
    for variant, rate in VOLUMES:
        add(f"{TABLE_V}{variant}, r = {rate:g}", 564.0 if "1BCS" in variant else 4000.0, units(variant, rate))
    for a in (1, 3, 10):
        epsilon, delta = composed(0.5, PAPER_DELTA, a)
        add(f"CEPS Theorem 3: epsilon of a run, .5 per step, a = {a}", None, epsilon)
        add(f"CEPS Theorem 3: delta of a run, .5 per step, a = {a}", None, delta)
    sent = [noise_told(seed) for seed in range(seeds)]
    add("DPPS Theorem 1: noise by S_i and by the message, of its node", 0.0, *(one for one, _ in sent))
    add("DPPS Theorem 1: noise by S_i and by the message, of another node", None, *(one for _, one in sent))
    means = [mean_after(seed) for seed in range(seeds)]
    add("DPPS Eq. 36: |mean - Lemma 3's|", 0.0, *(one for one, _ in means))
    add("DPPS Eq. 36: |mean - Eq. 36's|", 0.0, *(one for _, one in means))
    add("DPPS Eq. 36: noise term, as printed / with gamma_n", 1.0, (GAMMA_S / GAMMA_N) ** 2)
    for hops in ("paper", "code"):
        period = jdfl.network.period_of(jdfl.network.one_peer_exponential(10, hops=hops))
        add(f"DPPS Remark 2: period of EXP, N = 10, {hops}", None, float(period or 0))
    for p in (0.5, 0.8):
        found = [momentum(p, seed, count) for seed in range(seeds)]
        add(f"DO-ADP App. F: E[(eta_t - eta_(t-1)) m_t], p = {p:g}", 0.0, *found)
        add(f"DO-ADP App. F: -p (1 - p) g, p = {p:g}", None, -p * (1 - p))
    add("DP-DSGT: start at y = g = 0, a round later, relative difference", 0.0, *(starts(30, i) for i in range(seeds)))
    return made


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All checks; with `--quick` fewer samples of the momentum."""
    rows = rows_of(chosen.seeds, 100_000 if chosen.quick else 1_000_000)
    fig = bars([one for one in rows if one.case.startswith(TABLE_V)], ["value"], "units per message")
    return Made({"Errata: the paper's value and ours": rows}, fig)
