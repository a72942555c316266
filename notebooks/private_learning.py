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
# # Private learning and its price
# Noise protects a record only where a clip bounds what it hides.

# %%
import matplotlib.pyplot as plt

import jdfl

problem = jdfl.problems.example1(m=8, n=50, s=5, rows=(2000, 2500), seed=4)
network = jdfl.network.ring(8)
algorithm = jdfl.DPSGD(
    lr=0.2, gradients=jdfl.Gradients(clip=5.0, mechanism=jdfl.Gaussian(4.0))
)

# %% [markdown]
# How much noise do forty rounds need for epsilon = 4 at delta = 1e-5? Nothing is run to find out.

# %%
fitted = jdfl.calibrate(algorithm, problem, network, steps=40, epsilon=4.0, delta=1e-5)
print(f"{float(fitted.gradients.mechanism.multiplier):.3g} sensitivities")

# %%
result = jdfl.run(fitted, problem, network, steps=40, metrics=["objective"])
report = jdfl.account(result, delta=1e-5)
assert report.epsilon <= 4.0
report

# %% [markdown]
# `report.statement()` has every line in full.
#
# The price: the same run without noise and clip, and with a sixteenth of the budget.

# %%
less = jdfl.calibrate(algorithm, problem, network, steps=40, epsilon=0.25, delta=1e-5)
runs = {
    "no noise": jdfl.run(
        jdfl.DPSGD(lr=0.2), problem, network, steps=40, metrics=["objective"]
    ),
    "epsilon 4": result,
    "epsilon 0.25": jdfl.run(less, problem, network, steps=40, metrics=["objective"]),
}
fig, ax = plt.subplots(figsize=(4, 3))
for (name, one), style in zip(runs.items(), ("-", "--", ":")):
    ax.semilogy(one.history["round"], one.history["objective"], style, label=name)
ax.set(xlabel="round", ylabel="objective")
_ = ax.legend()

# %% [markdown]
# Without the clip there is nothing to state, and no run either.

# %%
try:
    bare = jdfl.DPSGD(gradients=jdfl.Gradients(mechanism=jdfl.Gaussian(4.0)))
    jdfl.run(bare, problem, network, steps=40)
except ValueError as error:
    print(error)
