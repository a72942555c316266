"""Columns that are named by y and clients give the problem of the arrays in them, of pandas and of Hugging Face."""

import numpy as np
import pandas as pd
import pytest

import jdfl
from tests.refused import refused

ROWS = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 2))
KINDS, USERS = np.arange(ROWS) % 3, np.array(["ann", "bob"])[np.arange(ROWS) // (ROWS // 2)]
WORDS = np.array(["wolf", "cat", "dog"])[KINDS]


def equal(one: jdfl.problems.Problem, other: jdfl.problems.Problem) -> None:
    for leaf, like in zip((*one.data, *one.test), (*other.data, *other.test)):
        np.testing.assert_array_equal(leaf, like)
    assert one.class_names == other.class_names
    assert one.node_names == other.node_names


def test_columns_of_pandas():
    table = pd.DataFrame({"a": X[:, 0], "kind": WORDS, "b": X[:, 1], "user": USERS})
    features = table[["a", "b"]]
    equal(jdfl.from_arrays(table, "kind", clients="user"), jdfl.from_arrays(features, WORDS, clients=USERS))
    named = jdfl.from_arrays(table[9:], "kind", clients="user", test=(table[:9], "kind"))
    equal(named, jdfl.from_arrays(features[9:], WORDS[9:], clients=USERS[9:], test=(features[:9], WORDS[:9])))
    with refused(y="kinds"):
        jdfl.from_arrays(table, "kinds")


def test_columns_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    pictures = RNG.integers(0, 256, (ROWS, 4, 4)).astype(np.uint8)
    kind = datasets.ClassLabel(names=["wolf", "cat", "dog"])
    plain = {"a": X[:, 0], "kind": KINDS, "b": X[:, 1], "user": USERS}
    types = {
        "a": datasets.Value("float64"),
        "kind": kind,
        "b": datasets.Value("float64"),
        "user": datasets.Value("string"),
    }
    table = datasets.Dataset.from_dict(plain, features=datasets.Features(types))
    features = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    equal(jdfl.from_arrays(table, "kind", clients="user"), jdfl.from_arrays(features, WORDS, clients=USERS))

    types = {"image": datasets.Image(), "kind": kind}
    seen = datasets.Dataset.from_dict({"image": list(pictures), "kind": KINDS}, features=datasets.Features(types))
    both = [jdfl.from_model("mlp", *given, nodes=2) for given in ((seen, "kind"), (pictures, WORDS))]
    equal(*both)
    assert both[0].data[0].dtype == np.uint8
    wide = datasets.Dataset.from_dict({"x": X.tolist(), "y": WORDS})
    equal(jdfl.from_arrays(wide, "y", 2), jdfl.from_arrays(X, WORDS, 2))

    unknown = datasets.Dataset.from_dict({"a": [1.0, 2.0], "kind": [0, -1]}).cast_column("kind", kind)
    for bad, names in ((unknown, ["y", "-1"]), (datasets.DatasetDict(train=table), ["'train'"]), (table, ["user"])):
        with refused(*names):
            jdfl.from_arrays(bad, "kind", 2)
