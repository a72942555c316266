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
# # Own network and faults
# A graph from networkx, and a mixing matrix of your own.

# %%
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import jdfl

kite = jdfl.network.from_networkx(nx.krackhardt_kite_graph())
jdfl.network.summary(kite)

# %%
W = np.full((6, 6), 0.0)
for i in range(6):
    W[i, [i - 1, i, (i + 1) % 6]] = 0.3, 0.4, 0.3
network = jdfl.network.from_matrix(W)
jdfl.network.summary(network)

# %% [markdown]
# W is kept as it is. A matrix with which the nodes cannot agree is refused.

# %%
try:
    jdfl.network.from_matrix(np.kron(np.eye(2), np.full((3, 3), 1 / 3)))
except ValueError as error:
    print(error)

# %% [markdown]
# ## Faults
# Fault models wrap any network. D-PSGD on a ring of eight nodes, without faults, with lost messages, and with nodes
# that participate in half of the rounds:

# %%
problem = jdfl.problems.example1(m=8, n=40, s=5, rows=(10, 20), seed=2)
ring = jdfl.network.ring(8)
networks = {
    "no faults": ring,
    "30 % of messages lost": jdfl.network.link_loss(ring, 0.3),
    "half of the nodes participate": jdfl.network.node_participation(ring, 0.5),
}
runs = {
    name: jdfl.run(
        jdfl.DPSGD(lr=0.05), problem, one, steps=200, metrics=["suboptimality"]
    )
    for name, one in networks.items()
}
fig, ax = plt.subplots(figsize=(4, 3))
for (name, one), style in zip(runs.items(), ("-", "--", ":")):
    ax.semilogy(one.history["round"], one.history["suboptimality"], style, label=name)
ax.set(xlabel="round", ylabel="suboptimality")
_ = ax.legend()

# %% [markdown]
# With simulated times, the axis may also be seconds: here every gradient takes an exponentially distributed time.

# %%
timed = jdfl.network.timed(ring, compute=jdfl.network.ExponentialTime(1.0))
slow = jdfl.run(jdfl.DPSGD(lr=0.05), problem, timed, steps=100, metrics=["objective"])
print(f"{slow.final['network_seconds']:.0f} simulated seconds for 100 rounds")
