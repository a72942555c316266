"""Readers of IDX and of the MNIST family, and the real images: what is written comes back; what is broken is named."""

import gzip
import struct
from itertools import product

import numpy as np
import pytest

from jdfl.problems import load, read_idx, read_mnist
from jdfl.problems.datasets import locate
from tests.refused import refused

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array, code=None):
    """The bytes of an IDX file."""
    array = np.asarray(array)
    code = CODES[array.dtype.str[1:]] if code is None else code
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_idx_round_trip(tmp_path):
    for kind, shape in product(CODES, ((3,), (2, 0), (4, 3, 2), (1, 2, 3, 2))):
        array = np.random.default_rng(0).integers(0, 100, shape).astype(kind)
        found = read_idx(write(tmp_path / "some-idx", idx(array)))
        assert found.dtype == array.dtype
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, array)


def test_broken_idx_is_named(tmp_path):
    good = idx(np.arange(60, dtype=np.uint8).reshape(3, 4, 5))
    for content, words in (
        (b"\0\1" + good[2:], "00 01 08 03"),
        (b"\0\0\x0a" + good[3:], "00 00 0a 03"),
        (good[:9], "bad"),
        (good[:-1], "(3,4,5)"),
        (good + b"\0", "(3,4,5)"),
        (b"\0\0\x08\x46" + b"\0\0\0\1" * 70 + b"\0", "dimensions"),
    ):
        with refused("bad", words):
            read_idx(write(tmp_path / "bad", content))
    with refused("cut.gz"):
        read_idx(write(tmp_path / "cut.gz", gzip.compress(np.random.default_rng(0).bytes(2500))[:-600]))


def mnist_like(folder, joint="-", pack=gzip.compress, ending=".gz", **changed):
    """Four small files; `changed` replaces the array of a part."""
    rng = np.random.default_rng(0)
    parts = {
        "train-images": rng.integers(0, 256, (12, 4, 3), dtype=np.uint8),
        "train-labels": (np.arange(12) % 10).astype(np.uint8),
        "t10k-images": rng.integers(0, 256, (5, 4, 3), dtype=np.uint8),
        "t10k-labels": np.arange(5, 10).astype(np.uint8),
    }
    parts |= {name.replace("_", "-"): array for name, array in changed.items()}
    for name, array in parts.items():
        kind = "idx3" if name.endswith("images") else "idx1"
        write(folder / f"{name}{joint}{kind}-ubyte{ending}", pack(idx(array)))
    return list(parts.values())


def test_mnist_in_all_spellings_and_parts_that_do_not_belong_together(tmp_path):
    for joint, pack, ending in (("-", gzip.compress, ".gz"), (".", bytes, "")):
        parts = mnist_like(tmp_path / ending, joint, pack, ending)
        found = read_mnist(tmp_path / ending)
        for array, expected in zip(found, parts):
            np.testing.assert_array_equal(array, expected)
        assert found.labels.dtype == np.int32
        assert not found.lossy
    for k, (changed, *words) in enumerate((
        ({"train_labels": np.zeros(11, np.uint8)}, "train-labels", "(11,)"),
        ({"t10k_labels": np.array([1, 2, 10, 3, 4], np.uint8)}, "t10k-labels", "10 for image 3"),
        ({"t10k_images": np.zeros((5, 3, 3), np.uint8)}, "t10k-images", "(3, 3)"),
        ({"train_labels": np.zeros(12, np.float32)}, "train-labels", "float32"),
    )):  # fmt: skip
        mnist_like(tmp_path / str(k), **changed)
        with refused(*words):
            read_mnist(tmp_path / str(k))


def test_missing_parts_and_other_content(tmp_path, monkeypatch):
    parts = mnist_like(tmp_path / "mnist")
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    with refused("train-images", "SHA-256", "verify=False"):
        load("mnist")
    dataset = load("mnist", verify=False)
    assert dataset.features.dtype == np.float32
    np.testing.assert_array_equal(dataset.features, parts[0].reshape(12, 12) / np.float32(255))
    np.testing.assert_array_equal(dataset.test_labels, parts[3])
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with refused(FileNotFoundError, "t10k-labels"):
        load("mnist", verify=False)
    for folder in ("FashionMNIST/raw", "fashion_mnist"):
        mnist_like(tmp_path / folder)
        assert locate("fashion_mnist").parent == tmp_path / folder
    with refused(FileNotFoundError, "cifar10"):
        load("cifar10")


@pytest.mark.parametrize("name", ["mnist", pytest.param("cifar10", marks=pytest.mark.slow)])
def test_real_images(data_dir, name):
    digits = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    dataset, counts, p = load(name), *((digits, 784) if name == "mnist" else ([5000] * 10, 3072))
    assert (dataset.features.shape, dataset.test_features.shape) == ((sum(counts), p), (10_000, p))
    assert dataset.features.dtype == dataset.test_features.dtype == np.float32
    assert (dataset.features.min(), dataset.features.max()) == (0, 1)
    np.testing.assert_array_equal(np.bincount(dataset.labels), counts)
