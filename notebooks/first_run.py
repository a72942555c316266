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
# # A first run
# Eight nodes on a ring look for the same sparse vector. `jupytext --to notebook first_run.py` makes a notebook of this
# file; it runs as a script, too.

# %%
import matplotlib.pyplot as plt
import numpy as np

import jdfl

problem = jdfl.problems.example1(m=8, n=100, s=5, rows=(40, 80), seed=1)
network = jdfl.network.ring(8)
print(jdfl.network.summary(network))

# %% [markdown]
# An algorithm is a value, and `jdfl.run` plays it. The history is a pandas table with a row per round.

# %%
result = jdfl.run(jdfl.IHT(s=5, lr=0.3), problem, network, key=0, steps=30)
result.history.tail(3)

# %%
result.history.plot(x="round", y=["objective", "consensus_error"], logy=True, style=["-", "--"])
plt.show()

# %% [markdown]
# All nodes' parameters are one array. Its nonzeros are where the truth has them.

# %%
params = np.asarray(result.params)
found = np.flatnonzero(np.abs(params).max(axis=0))
truth = np.flatnonzero(np.asarray(problem.truth))
print("found", found, "truth", truth)
assert set(truth) <= set(found)

# %% [markdown]
# What it has cost, exactly:

# %%
print(result.totals)
print(f"{result.totals.bytes:,.0f} bytes, {result.totals.messages['model']} messages")
