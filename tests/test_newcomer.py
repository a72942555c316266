"""What a newcomer writes from the pages alone runs: own rows, clients, roads, network, and privacy."""

import numpy as np
import pandas as pd
import pytest

SCRIPT = """
import pandas as pd
from flax import nnx
import jdfl

table = pd.read_csv("patients.csv").dropna()
X = pd.get_dummies(table[["age", "dose", "sex"]], dtype=float)
network = jdfl.network.from_edges(pd.read_csv("roads.csv"), weights="by-distance")

class Mine(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)
    def __call__(self, x):
        return self.last(nnx.tanh(self.first(x)))

how = {"clients": table["hospital"], "standardise": True, "public": ("standardise", "holdout")}
problem = jdfl.from_model(Mine(nnx.Rngs(0)), X, table["diagnosis"], **how)
methods = {one.__name__: one(lr=0.5) for one in (jdfl.DPSGD, jdfl.DSGT, jdfl.NIDS, jdfl.CHOCO)}
compared = jdfl.compare(methods, problem, network, steps=3, trials=2, tuning=None, metrics=["objective", "accuracy"])
fig, ax = compared.plot(x="round", y="objective", width="column")
fig.savefig("figure.pdf")
noisy = jdfl.DPSGD(lr=0.5, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))
private = jdfl.calibrate(noisy, problem, network, steps=3, epsilon=2.0)
report = jdfl.account(jdfl.run(private, problem, network, steps=3))
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Not tuned")
def test_a_script_of_a_newcomer_runs(tmp_path, monkeypatch):
    rng, n = np.random.default_rng(0), 2000
    table = pd.DataFrame({"hospital": rng.choice(["Bern", "Cairo", "Lima", "Oslo"], n), "age": rng.normal(60, 10, n)})
    table = table.assign(dose=rng.normal(2, 0.5, n), sex=rng.choice(["f", "m"], n))
    table["diagnosis"] = np.where(table["age"] + 10 * (table["sex"] == "f") > 65, "ill", "healthy")
    table.loc[rng.choice(n, 40), "dose"] = np.nan
    roads = [("Oslo", "Bern", 1440), ("Bern", "Cairo", 2820), ("Cairo", "Lima", 12420), ("Lima", "Oslo", 11000)]
    monkeypatch.chdir(tmp_path)
    table.to_csv("patients.csv", index=False)
    pd.DataFrame(roads, columns=["source", "target", "km"]).to_csv("roads.csv", index=False)
    scope = {"__name__": "newcomer"}
    exec(SCRIPT, scope)
    assert len(SCRIPT.splitlines()) <= 30
    assert scope["report"].epsilon <= 2.0
    assert scope["problem"].node_names == ("Bern", "Cairo", "Lima", "Oslo")
    assert scope["fig"].get_size_inches()[0] == pytest.approx(3.3, abs=0.05)
