"""Lemma 2 of the DPPS paper against a network of ten nodes, and what bounds their distances instead.

Run `python -m experiments.lemma2_counterexample [--quick] [--seeds N] [--out DIR]`.

2-Out, N = 10, C' = .78, lambda = .55, no noise, everybody at zero. In every round five nodes in a row add +1, the other
five -1. The paper's proof divides by a row of W (its Eq. 13 to 14) and concludes that the largest l1 distance between
two nodes' messages is at most S of Eq. 22; the distances that are seen are larger in every round. The certified
schedule, which knows W and that nobody adds more than 1, meets them exactly here.
"""

import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.common import Row, options, row, save, save_figure, show
from jdfl.network import matrices
from jdfl.privacy.sensitivity import certified, published, real

NAME = "lemma2_counterexample"
NODES, ROUNDS = 10, 5
CONSTANT, CONTRACTION = 0.78, 0.55  # of the paper's Fig. 2
SEEN, ESTIMATED = (2.0, 4.0, 6.0, 8.0, 10.0), {0: 1.56, 4: 3.29}  # of the study


def _round(network: jdfl.network.Network, t: int) -> jdfl.Round:
    k, key = jnp.int32(t), jax.random.key(t)
    return jdfl.Round(k, key, network.at(k, key), jnp.arange(NODES, dtype=jnp.int32))


def distances(rounds: int = ROUNDS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Real, estimated (Eq. 22) and certified distances [rounds]."""
    network = jdfl.network.d_out(NODES, 2)
    eps = jnp.where(jnp.arange(NODES) < NODES // 2, 1.0, -1.0)[:, None]
    step, none = jnp.ones((NODES,)), jnp.zeros((NODES,))
    protocol, estimate = jdfl.DPPS(), none
    state = protocol.init(jnp.zeros((NODES, 1)), _round(network, 0))
    found, estimated = [], []
    for t in range(rounds):
        found.append(float(real(state.s + eps)))
        first, constants = jnp.bool_(t == 0), {"constant": CONSTANT, "contraction": CONTRACTION}
        estimate = published(estimate, none, step, none, first, **constants)
        estimated.append(float(jnp.max(estimate)))
        state = protocol.step(state, eps, _round(network, t))
    bound = certified(matrices(network, rounds, "a schedule"), np.ones(rounds), np.zeros(rounds), 1, failure=1e-6)
    return np.array(found), np.array(estimated), bound


def rows() -> list[Row]:
    """A line per round: the study's numbers beside ours."""
    made = []
    for t, (seen, estimate, bound) in enumerate(zip(*distances())):
        case = f"round {t}"
        made.append(row(case, "real", SEEN[t], [seen]))
        made.append(row(case, "Eq. 22", ESTIMATED.get(t), [estimate]))
        made.append(row(case, "certified", None, [bound]))
        made.append(row(case, "Eq. 22 / real", None, [estimate / seen]))
    return made


def draw(path: str) -> None:
    """Twenty rounds of all three."""
    fig = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = fig.subplots()
    for values, label, style in zip(distances(20), ("real", "Eq. 22", "certified"), ("o-", "s--", "-.")):
        axis.plot(values, style, label=label)
    axis.set(xlabel="round", ylabel="largest l1 distance between messages", title="2-Out, 10 nodes, no noise")
    axis.legend(frameon=False)
    save_figure(fig, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, write the JSON and the figure."""
    given = options(__doc__ or "", seeds=1, arguments=arguments)
    made = rows()
    show("Lemma 2 against 2-Out (study | ours)", made)
    save(made, given.out, NAME)
    draw(str(given.out / f"{NAME}.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
