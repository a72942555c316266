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
# # First run
# Eight nodes on a ring learn the same sparse vector, each from its own data.

# %%
import jdfl

problem = jdfl.problems.example1(m=8, n=100, s=5, rows=(40, 80), seed=1)
network = jdfl.network.ring(8)
network

# %% [markdown]
# An algorithm is a value, and `jdfl.run` runs it. The key determines everything that is random.

# %%
result = jdfl.run(
    jdfl.DPSGD(lr=0.1),
    problem,
    network,
    key=0,
    steps=60,
    metrics=["objective", "suboptimality", "consensus_error"],
)
result

# %% [markdown]
# The history is a pandas table with a row per round.

# %%
result.history[
    ["round", "objective", "suboptimality", "consensus_error", "bytes"]
].tail(3)

# %%
fig, ax = result.plot(x="round", y="suboptimality")
fig

# %% [markdown]
# Another algorithm is another value. IHT-D-PSGD keeps the five largest entries, so its messages are short.

# %%
sparse = jdfl.run(jdfl.IHT(s=5, lr=0.1), problem, network, key=0, steps=60)
for name, one in {"D-PSGD": result, "IHT-D-PSGD": sparse}.items():
    print(
        f"{name:10} objective {one.final['objective']:.3f}, {one.totals.bytes:,.0f} bytes"
    )

# %% [markdown]
# A comparison tunes every method at the compared budget, on trials that are not reported, and shows means with 95 %
# confidence intervals. Every trial draws new data.

# %%
comparison = jdfl.compare(
    {
        "D-PSGD": jdfl.DPSGD(),
        "IHT-D-PSGD": jdfl.IHT(s=5),
        "LocalOnly": jdfl.LocalOnly(),
    },
    problem=lambda seed: jdfl.problems.example1(
        m=8, n=100, s=5, rows=(40, 80), seed=seed
    ),
    network=network,
    steps=60,
    trials=5,
    budget={"round": None},
    metrics=["objective"],
)
comparison

# %%
fig, ax = comparison.plot()
fig

# %% [markdown]
# `comparison.differences()` has the differences between methods, paired by trial.

# %%
comparison.differences()

# %% [markdown]
# `comparison.at` has the means at equal cost, and `comparison.table()` says how every method was tuned.

# %%
comparison.at("round")
