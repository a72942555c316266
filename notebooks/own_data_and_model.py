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
# # Own data and model
# A table with text labels, split over ten nodes so that each has few classes.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import jdfl

rng = np.random.default_rng(0)
labels = np.array(["sitting", "walking", "stairs"])[rng.integers(3, size=400)]
center = {"sitting": (0.0, 0.9), "walking": (1.0, 0.2), "stairs": (0.8, -0.6)}
X = pd.DataFrame(
    [center[label] for label in labels] + 0.4 * rng.normal(size=(400, 2)),
    columns=["x", "y"],
)

problem = jdfl.from_arrays(X, labels, nodes=10, partition="dirichlet", alpha=0.3)
problem

# %% [markdown]
# Three classes gave softmax regression. A fifth of the rows is held out for `accuracy`.

# %%
network = jdfl.network.ring(10)
result = jdfl.run(
    jdfl.DPSGD(lr=0.5), problem, network, steps=100, metrics=["objective", "accuracy"]
)
low, high = result.intervals["accuracy"]
print(f"accuracy {result.final['accuracy']:.2f}, 95 % interval {low:.2f} to {high:.2f}")

# %% [markdown]
# ## Own model
# Any differentiable loss of one example does, with parameters in any tree of arrays. Here it is a small neural network.


# %%
def scores(params, x):
    return jnp.tanh(x @ params["in"]) @ params["out"] + params["bias"]


def loss(params, example):
    x, label = example
    return -jax.nn.log_softmax(scores(params, x))[label]


start = {
    "in": 0.5 * rng.normal(size=(2, 8)),
    "out": 0.5 * rng.normal(size=(8, 3)),
    "bias": np.zeros(3),
}
numbers = pd.Categorical(labels).codes.astype(np.int32)
own = jdfl.from_loss(
    loss,
    start,
    (X.to_numpy()[:320], numbers[:320]),
    nodes=10,
    test=(X.to_numpy()[320:], numbers[320:]),
    predict=scores,
)
own

# %%
trained = jdfl.run(
    jdfl.DPSGD(lr=0.5), own, network, steps=100, metrics=["objective", "accuracy"]
)
fig, ax = trained.plot(x="round", y="accuracy")
fig

# %% [markdown]
# The parameters of all nodes are the rows of an array; `unflatten` gives back the tree.

# %%
jax.tree.map(jnp.shape, own.unflatten(trained.params.mean(axis=0)))

# %% [markdown]
# Data that do not fit are refused before anything is compiled, with what to do.

# %%
try:
    jdfl.from_arrays(X, labels[:399], nodes=10)
except ValueError as error:
    print(error)
