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
# # Compare methods fairly
# All are tuned alike, on seeds that are not the reported ones, and stand beside each other at equal costs.

# %%
import jdfl

problem = jdfl.problems.example1(m=8, n=100, s=5, rows=(40, 80), seed=1)
network = jdfl.network.ring(8)
found = jdfl.compare(
    {"D-PSGD": jdfl.DPSGD(), "IHT-D-PSGD": jdfl.IHT(s=5), "LocalOnly": jdfl.LocalOnly()},
    problem,
    network,
    trials=2,
    steps=30,
    metrics=["objective", "distance_to_truth"],
)
print(found.table(by="round"))

# %% [markdown]
# At equal bytes the order may be another one, of runs that were tuned for these bytes. LocalOnly sends nothing, and
# shows its last record.

# %%
found.at("bytes", metrics=["objective"])[["budget", "round", "bytes", "objective"]]

# %% [markdown]
# Which rates were tried, and what came of them:

# %%
found.tuning.head()

# %%
found.plot(["round", "bytes"], width="page")
