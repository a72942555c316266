"""Readers of IDX and of the MNIST family, and the real images: what is written comes back; what is broken is named."""

import bz2
import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jdfl.problems import SoftmaxRegression, classification, images, load, read_idx, read_mnist
from jdfl.problems.datasets import locate

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


@given(
    st.sampled_from(sorted(CODES)).flatmap(
        lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3))
    )
)
def test_idx_round_trip(tmp_path_factory, array):
    path = write(tmp_path_factory.mktemp("idx") / "some-idx", idx(array))
    found = read_idx(path)
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_compressed_idx(tmp_path, ending):
    content = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    np.testing.assert_array_equal(read_idx(write(tmp_path / f"a{ending}", pack(idx(content)))), content)


GOOD = idx(np.arange(60, dtype=np.uint8).reshape(3, 4, 5))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"Expected 4 bytes of the magic number of .*bad, got 0"),
        (b"\0\1" + GOOD[2:], r"IDX file at .*bad.*got 00 01 08 03"),
        (b"\0\0\x0a" + GOOD[3:], r"IDX file at .*bad.*got 00 00 0a 03"),
        (GOOD[:9], r"Expected 12 bytes of the dimensions of .*bad, got 5"),
        (GOOD[:-1], r"Expected 60 bytes of the entries \(3, 4, 5\) of .*bad, got 59.*Download it again"),
        (GOOD + b"\0", r"Expected 60 bytes .*bad, got more"),
        (b"\0\0\x0e\4" + b"\xff" * 16 + GOOD, r"of the entries \(4294967295, .* of .*bad, got 76: .*cut short"),
        (b"\0\0\x08\x46" + b"\0\0\0\1" * 70 + b"\0", r"dimensions of an array in .*bad, got \(1, 1, "),
        (b"\0\0\x08\4" + b"\xff" * 12 + b"\0" * 4, r"dimensions of an array in .*bad, got \(4294967295, "),
    ],
    ids=["empty", "magic", "type", "dimensions", "short", "long", "huge", "many", "vast"],
)
def test_broken_idx_is_named(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_idx(write(tmp_path / "bad", content))


def test_cut_gz_and_missing_file_are_named(tmp_path):
    whole = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (50, 50), dtype=np.uint8)))
    with pytest.raises(ValueError, match=r"cut\.gz.*again"):
        read_idx(write(tmp_path / "cut.gz", whole[:-600]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_idx(tmp_path / "nowhere")


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


@pytest.mark.parametrize("joint", "-.")
@pytest.mark.parametrize(("pack", "ending"), [(gzip.compress, ".gz"), (bytes, "")], ids=["gz", "plain"])
def test_mnist_in_all_spellings(tmp_path, joint, pack, ending):
    parts = mnist_like(tmp_path, joint, pack, ending)
    found = read_mnist(tmp_path)
    for array, expected in zip(found, parts):
        np.testing.assert_array_equal(array, expected)
    assert found.labels.dtype == np.int32
    assert not found.lossy
    rows = images.pixels(found.images)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, parts[0].reshape(12, 12) / np.float32(255))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_labels": np.zeros(11, np.uint8)}, r"each of 12 > 0 images in .*train-labels.*got uint8 \(11,\)"),
        ({"t10k_labels": np.array([1, 2, 10, 3, 4], np.uint8)}, r"0\.\.9 in .*t10k-labels.*, got 10 for image 3"),
        ({"t10k_images": np.zeros((5, 3, 3), np.uint8)}, r"\(4, 3\) pixels in .*t10k-images.*\(3, 3\)"),
        ({"train_images": np.zeros((12, 4), np.uint8)}, r"3 dimensions of uint8 in .*train-images.*2 dimensions"),
        ({"train_labels": np.zeros(12, np.float32)}, r"got float32 \(12,\)"),
        (
            {"train_images": np.zeros((0, 4, 3), np.uint8), "train_labels": np.zeros(0, np.uint8)},
            "each of 0 > 0 images",
        ),
    ],
    ids=["count", "label", "size", "flat", "type", "none"],
)
def test_parts_that_do_not_belong_together(tmp_path, changed, message):
    mnist_like(tmp_path, **changed)
    with pytest.raises(ValueError, match=message):
        read_mnist(tmp_path)


def test_missing_parts_and_other_content(tmp_path, monkeypatch):
    parts = mnist_like(tmp_path / "mnist")
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"train-images of mnist, SHA-256 ba89.*verify=False"):
        load("mnist")
    dataset = load("mnist", verify=False)
    assert dataset.features.shape == (12, 12)
    np.testing.assert_array_equal(dataset.test_labels, parts[3])
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels\.idx1-ubyte.*mnist, found none.*yann\.lecun"):
        load("mnist", verify=False)
    for folder in ("FashionMNIST/raw", "fashion_mnist"):
        mnist_like(tmp_path / folder)
        assert locate("fashion_mnist").parent == tmp_path / folder
    with pytest.raises(FileNotFoundError, match=r"cifar10.*kriz"):
        load("cifar10")


MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
FACTS = {
    "mnist": ("mnist", 60_000, 784, MNIST_COUNTS, [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    "fashion_mnist": ("fashion_mnist", 60_000, 784, [6000] * 10, [1000] * 10),
    "cifar10": (None, 50_000, 3072, [5000] * 10, [1000] * 10),
}


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", pytest.param("cifar10", marks=pytest.mark.slow)])
def test_real_images(data_dir, name):
    known, count, p, per_class, per_test_class = FACTS[name]
    dataset = load(name)
    assert dataset.name == known if known else dataset.name in ("cifar10", "CIFAR-10 (JPEG q75)")
    assert dataset.features.shape == (count, p)
    assert dataset.features.dtype == dataset.test_features.dtype == np.float32
    assert (dataset.features.min(), dataset.features.max()) == (0, 1)
    np.testing.assert_array_equal(np.bincount(dataset.labels), per_class)
    np.testing.assert_array_equal(np.bincount(dataset.test_labels), per_test_class)
    assert "https://" in dataset.source or "http://" in dataset.source


def test_softmax_regression_of_mnist(data_dir):
    problem = classification("mnist", 100)
    assert isinstance(problem, SoftmaxRegression)
    assert (problem.m, problem.n, problem.classes) == (100, 7840, 10)
    assert len(problem.test[1]) == 10_000
