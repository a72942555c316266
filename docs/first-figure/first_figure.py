import networkx as nx
import pandas as pd
from flax import nnx

import jdfl

table = pd.read_csv("activity.csv")  # own data: four numbers and a label per row
X, y = table.drop(columns="activity"), table["activity"]
network = jdfl.network.from_networkx(nx.read_edgelist("links.csv", nodetype=int))


def problem(seed):  # every trial has its own data partition
    rngs = nnx.Rngs(0)
    layers = nnx.Linear(4, 8, rngs=rngs), nnx.tanh, nnx.Linear(8, 3, rngs=rngs)
    model = nnx.Sequential(*layers)
    return jdfl.from_model(model, X, y, 8, partition="dirichlet", seed=seed)


def largest_loss(w, problem):  # own metric: loss of the node that it fits worst
    return problem.values(0 * w + w.mean(axis=0)).max()


methods = {"D-PSGD": jdfl.DPSGD(), "DSGT": jdfl.DSGT(), "LocalOnly": jdfl.LocalOnly()}
given = {"steps": 60, "budget": {"round": 60}, "metrics": ["objective", largest_loss]}
comparison = jdfl.compare(methods, problem, network, trials=10, **given)
print(comparison.table(metrics=["objective", "largest_loss"]))
fig, ax = comparison.plot(x="round", y="largest_loss", width="column")
ax.set_ylabel("loss of the worst node")
fig.savefig("figure.pdf")
