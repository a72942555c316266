# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Own algorithm
# One class with settings, `init` and `step`. This one is DecentLaM (K. Yuan et al., 2021), which jdfl does not include.
# It accumulates the change that a round of D-PSGD makes:
#
# $$
# u_i^{+} = \beta u_i + \frac{1}{\mathrm{lr}} \Big(x_i - \sum_j W_{ij} (x_j - \mathrm{lr}\, g_j(x_j))\Big), \qquad
# x_i^{+} = x_i - \mathrm{lr}\, u_i^{+}
# $$

# %%
from typing import ClassVar

from jax import Array

import jdfl
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Positive


@struct.dataclass
class DecentLaM(jdfl.Algorithm):
    """DecentLaM: momentum of whole rounds of D-PSGD. The state is x and u, both [m, n]."""

    kind: ClassVar[str] = "decentlam"
    tuned = ("lr",)
    lr: Positive = 0.1
    """Step size."""
    beta: Fraction = 0.9
    """Momentum, in (0, 1]."""
    gradients: jdfl.Gradients = jdfl.Gradients()
    """Gradients of the local losses."""

    def init(self, round: Round) -> tuple[Array, Array]:
        """Start at the problem's start, without momentum."""
        return round.problem.initial_params(), 0 * round.problem.initial_params()

    def step(self, state: tuple[Array, Array], round: Round) -> tuple[Array, Array]:
        """One round of all nodes: x and u are arrays [m, n], and W x is `round.mix(x)`."""
        x, u = state
        mixed = round.mix(x - self.lr * self.gradients(x, round))
        u = self.beta * u + (x - mixed) / self.lr
        return x - self.lr * u, u


# %% [markdown]
# It runs like the built-in ones. Messages, bytes and gradients are counted from what `step` does.

# %%
problem = jdfl.problems.example1(m=8, n=40, s=5, rows=(10, 20), seed=2)
network = jdfl.network.ring(8)
result = jdfl.run(DecentLaM(lr=0.02), problem, network, steps=100)
print(result.totals)

# %% [markdown]
# Compared with two others, all tuned alike:

# %%
comparison = jdfl.compare(
    {"DecentLaM": DecentLaM(), "D-PSGD": jdfl.DPSGD(), "DSGT": jdfl.DSGT()},
    problem=lambda seed: jdfl.problems.example1(
        m=8, n=40, s=5, rows=(10, 20), seed=seed
    ),
    network=network,
    steps=100,
    trials=5,
    budget={"round": None},
    metrics=["suboptimality"],
    measure="suboptimality",
)
fig, ax = comparison.plot()
fig

# %% [markdown]
# `jdfl.testing` checks the laws that all algorithms obey. Here it is one of them; without a name it tries all.

# %%
import jdfl.testing  # noqa: E402

law = next(iter(jdfl.testing.LAWS))
jdfl.testing.check_algorithm(DecentLaM(lr=0.02), law)
print("holds:", law)
