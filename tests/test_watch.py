"""What nodes do in the course of a run is told as it was, of some nodes where there are many."""

import numpy as np

import jdfl
from jdfl.lab import watch
from jdfl.lab.watch import Watch, _links_of, _split_of
from jdfl.results.checkpoints import JOURNAL, history_of
from jdfl.results.folder import releases
from jdfl.store import journal
from tests.later import Later
from tests.toy import regression

PROBLEM, RING = Later(regression, 6, 4), Later(jdfl.network.ring, 6)
METHOD = jdfl.DPSGD(lr=0.05)
PRIVATE = jdfl.Gradients(clip=1.0, batch=1, mechanism=jdfl.Gaussian(multiplier=5.0))


def play(folder, network, steps, chunk=1, more=(), algorithm=METHOD):
    """A run that is watched."""
    store = jdfl.Checkpoints(folder)
    callbacks, options = [Watch(store, PROBLEM()), store, *more], jdfl.Options(chunk=chunk)
    return jdfl.run(algorithm, PROBLEM(), network, steps=steps, callbacks=callbacks, options=options)


def table(folder, name):
    return history_of(journal.read(folder / JOURNAL).rows(name))


def test_nodes_are_told_as_the_run_has_them(tmp_path):
    params = {}
    keep = lambda snapshot: params.__setitem__(snapshot.rounds, np.asarray(snapshot.params()))  # noqa: E731
    play(tmp_path, RING(), 6, chunk=2, more=[keep])
    nodes = table(tmp_path, "nodes")
    assert nodes["round"].tolist() == [k for k in (2, 4, 6) for _ in range(6)]
    for k, w in params.items():
        one = nodes[nodes["round"] == k]
        np.testing.assert_array_equal(one["node"], np.arange(6))
        np.testing.assert_allclose(one["distance"], np.linalg.norm(w - w.mean(0), axis=1), rtol=1e-5)
        np.testing.assert_allclose(one["value"], PROBLEM().values(w), rtol=1e-5)
        np.testing.assert_array_equal(one["communications"], k)


def test_links_are_those_of_the_round_and_told_when_they_change(tmp_path):
    network = jdfl.network.random_links(jdfl.network.complete(6), 0.3)
    seen, before = [], 0
    keep = lambda snapshot: seen.append((snapshot.rounds, snapshot.graph(), snapshot.row["messages"]))  # noqa: E731
    play(tmp_path, network, 5, more=[keep])
    links = table(tmp_path, "links")
    for k, graph, messages in seen:
        pairs = links.loc[links["round"] == k, ["node", "hears"]].to_numpy()
        np.testing.assert_array_equal(pairs, _links_of(graph, np.arange(6)))
        assert len(pairs) == messages - before  # one message a link: the very graph that the run had
        before = messages
    silent = jdfl.network.random_links(jdfl.network.complete(6), 1e-9)  # nobody hears anybody
    play(tmp_path / "silent", silent, 2)
    assert table(tmp_path / "silent", "links").to_numpy().tolist() == [[1, -1, -1]]


def test_links_of_some_nodes_are_those_among_them():
    assert sorted(_links_of(jdfl.network.ring(1000).graph, np.arange(11)).tolist()) == [
        pair for i in range(11) for pair in ([i, i - 1], [i, i + 1]) if 0 <= pair[1] < 11
    ]
    together = jdfl.network.synchronised(jdfl.network.ring(4), 1).at(0, None)
    assert len(_links_of(together, np.arange(4))) == 12


def test_the_split_counts_every_example_once():
    problem = jdfl.problems.classification("digits", 8, partition="dirichlet", alpha=0.3, seed=1)
    split = _split_of(problem, np.arange(8))
    assert split["examples"].sum() == int(np.sum(np.asarray(problem.weight) > 0))
    classes = [f"class_{k}" for k in range(10)]
    np.testing.assert_array_equal(split[classes].sum(axis=1), split["examples"])
    assert list(_split_of(PROBLEM(), np.arange(6))) == ["node", "examples"]


def test_releases_by_round_are_those_of_shorter_runs_and_have_no_curve_without_an_epsilon(tmp_path):
    algorithm = jdfl.DPSGD(lr=0.05, gradients=PRIVATE)
    told = releases(play(tmp_path, RING(), 30, algorithm=algorithm))
    assert 10 <= len(told) <= 20
    options = jdfl.Options(chunk=1)
    part = jdfl.run(algorithm, PROBLEM(), RING(), key=0, steps=int(told["round"].iloc[3]), options=options)
    assert told["most_releases"].iloc[3] == part.releases.max() > 0
    assert told["most_releases"].is_monotonic_increasing
    run = lambda algorithm: jdfl.run(algorithm, PROBLEM(), RING(), steps=3, options=jdfl.Options(chunk=1))  # noqa: E731
    assert releases(run(METHOD)).empty
    result = run(jdfl.DOADP(lr=0.05, gradients=PRIVATE))
    assert releases(result, accounting="paper").empty
    assert not releases(result).empty


def test_large_models_are_told_without_their_parameters(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "_LARGE", 10)
    play(tmp_path, RING(), 2)
    assert list(table(tmp_path, "nodes")) == ["round", "node", "communications", "releases"]
