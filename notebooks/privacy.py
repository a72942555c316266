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
# # Privacy: plan, run, account
# Noise is worth something where a clip bounds what it hides.

# %%
import matplotlib.pyplot as plt

import jdfl

problem = jdfl.problems.example1(m=8, n=50, s=5, rows=(2000, 2500), seed=4)
network = jdfl.network.ring(8)
algorithm = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=2.0, mechanism=jdfl.Gaussian(4.0)))
print(algorithm.privacy(problem).reason or "claimed")

# %% [markdown]
# How much noise do twenty rounds need for epsilon = 4 at delta = 1e-5? Nothing is run to find out.

# %%
fitted = jdfl.calibrate(algorithm, problem, network, steps=20, epsilon=4.0, delta=1e-5)
print(float(fitted.gradients.mechanism.multiplier), "sensitivities")

# %%
result = jdfl.run(fitted, problem, network, steps=20, metrics=["objective"])
report = jdfl.account(result, delta=1e-5)
print(report.statement())
assert report.epsilon <= 4.0

# %% [markdown]
# The price: the same run without noise, and with a quarter of the budget.

# %%
free = jdfl.run(jdfl.DPSGD(lr=0.1), problem, network, steps=20, metrics=["objective"])
less = jdfl.calibrate(algorithm, problem, network, steps=20, epsilon=1.0, delta=1e-5)
strict = jdfl.run(less, problem, network, steps=20, metrics=["objective"])
for name, one, style in (("no noise", free, "-"), ("epsilon 4", result, "--"), ("epsilon 1", strict, ":")):
    plt.plot(one.history["round"], one.history["objective"], style, label=name)
plt.xlabel("round")
plt.ylabel("objective")
plt.legend()
plt.show()

# %% [markdown]
# Without the clip there is nothing to say, and no run either.

# %%
try:
    bare = jdfl.DPSGD(gradients=jdfl.Gradients(mechanism=jdfl.Gaussian(4.0)))
    jdfl.run(bare, problem, network, steps=20)
except ValueError as error:
    print(error)
