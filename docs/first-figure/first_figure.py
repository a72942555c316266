import jax
import networkx as nx
import pandas as pd
from flax import nnx

import jdfl

table = pd.read_csv("activity.csv")
X, y = table.drop(columns="activity"), table["activity"]
network = jdfl.network.from_networkx(nx.read_edgelist("links.csv", nodetype=int))


def problem(seed):  # every trial draws its own data partition
    layers = nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.tanh, nnx.Linear(8, 3, rngs=nnx.Rngs(1))
    return jdfl.from_model(nnx.Sequential(*layers), X, y, nodes=8, partition="dirichlet", alpha=0.3, seed=seed)


def largest_loss(w, problem):  # own metric: the loss of the node that the average model serves worst
    average = jax.numpy.broadcast_to(w.mean(axis=0), w.shape)
    return problem.values(average).max()


methods = {"D-PSGD": jdfl.DPSGD(), "DFedAvgM": jdfl.DFedAvgM(), "DSGT": jdfl.DSGT()}
comparison = jdfl.compare(methods, problem, network, steps=60, metrics=[largest_loss], budget={"round": 60})
print(comparison.table(metrics=["objective", "largest_loss"]))
fig, ax = comparison.plot(x="round", y="largest_loss", width="column")
ax.set_ylabel("loss of the worst node")
fig.savefig("figure.pdf")
