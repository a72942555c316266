"""Readers of images: what is written comes back from every form; what is broken is named, and nothing runs."""

import bz2
import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from jdfl.problems import SoftmaxRegression, classification, images, load, read_cifar10, read_idx, read_mnist
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
    ],
    ids=["empty", "magic", "type", "dimensions", "short", "long", "huge"],
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


def cifar_like(seed=0, count=4):
    """Images [count, 32, 32, 3] and labels of six batches."""
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, count).tolist())
        for _ in range(6)
    ]


NAMES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


def binary(batch):
    pictures, labels = batch
    return b"".join(bytes([label]) + one.transpose(2, 0, 1).tobytes() for one, label in zip(pictures, labels))


def pickled(batch, **more):
    pictures, labels = batch
    data = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2)).reshape(len(pictures), -1)
    return pickle.dumps({b"data": data, b"labels": labels, b"filenames": [b"a.png"], **more}, protocol=3)


def old_pickled(batch):
    """As Python 2 and its numpy wrote it, protocol 2, opcode by opcode."""
    pictures, labels = batch
    content = pictures.transpose(0, 3, 1, 2).tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1"
        + b"K%cM\0\x0c\x86" % len(pictures)
        + b"cnumpy\ndtype\nU\2u1K\0K\1\x87R(K\3U\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
        + b"T" + struct.pack("<I", len(content)) + content + b"tb"
    )  # fmt: skip
    return b"\x80\2}(U\4data" + array + b"U\6labels](" + b"".join(b"K%c" % label for label in labels) + b"eu."


def archived(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


WRITERS = {
    "pickled": lambda batch: ("", pickled(batch)),
    "old": lambda batch: ("", old_pickled(batch)),
    "binary": lambda batch: (".bin", binary(batch)),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("where", ["plain", "folder", "archive"])
def test_cifar10_in_all_forms(tmp_path, kind, where):
    batches = cifar_like()
    files = {}
    folder = "cifar-10-batches-bin" if kind == "binary" else "cifar-10-batches-py"
    for name, batch in zip(NAMES, batches):
        ending, content = WRITERS[kind](batch)
        files[f"{folder}/{name}{ending}"] = content
    place = tmp_path
    if where == "archive":
        name = "cifar-10-binary.tar.gz" if kind == "binary" else "cifar-10-python.tar.gz"
        write(tmp_path / name, archived(files | {f"{folder}/readme.html": b"words"}))
    else:
        for name, content in files.items():
            write(tmp_path / name, content)
        place = tmp_path / folder if where == "plain" else tmp_path
    found = read_cifar10(place)
    np.testing.assert_array_equal(found.images, np.concatenate([pictures for pictures, _ in batches[:5]]))
    np.testing.assert_array_equal(found.labels, np.concatenate([labels for _, labels in batches[:5]]))
    np.testing.assert_array_equal(found.test_images, batches[5][0])
    np.testing.assert_array_equal(found.test_labels, batches[5][1])
    assert not found.lossy


class Evil:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_pickles_run_nothing(tmp_path):
    for batch in zip(NAMES, cifar_like()):
        write(tmp_path / batch[0], pickled(batch[1]))
    trace = tmp_path / "trace"
    for function, argument, name in ((os.mkdir, str(trace), "mkdir"), (eval, "1", "eval"), (np.zeros, 3, "zeros")):
        write(tmp_path / "data_batch_3", pickled(cifar_like()[0], extra=Evil(function, argument)))
        with pytest.raises(
            ValueError, match=rf"numbers in .*data_batch_3: it asks for .*\.{name}, which is not loaded"
        ):
            read_cifar10(tmp_path)
    write(tmp_path / "data_batch_3", pickled(cifar_like()[0], extra=np.array([None, {}], object)))
    with pytest.raises(ValueError, match="dtype 'O8'"):
        read_cifar10(tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda good: good[:-100], "data_batch_2: .*truncated.*again"),
        (lambda good: b"", "data_batch_2.*damaged"),
        (lambda good: pickle.dumps([1, 2]), "dict with data and labels in .*data_batch_2, got list"),
        (lambda good: pickle.dumps({b"data": np.zeros((2, 3), np.uint8), b"labels": [1, 2]}), r"got uint8 \(2, 3\)"),
        (lambda good: pickle.dumps({b"data": [1], b"labels": [1]}), r"uint8 \[N, 3072\] in .*data_batch_2, got list"),
        (lambda good: pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": "1"}), "list of numbers"),
        (lambda good: pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1, 2]}), "each of 1 > 0"),
        (lambda good: pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [-1]}), "got -1 for image 1"),
        (
            lambda good: pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [2**70]}),
            r"list of numbers 0..9 in .*data_batch_2",
        ),
    ],
    ids=["cut", "empty", "list", "shape", "numbers", "text", "count", "label", "large"],
)
def test_broken_pickled_batches_are_named(tmp_path, content, message):
    for name, batch in zip(NAMES, cifar_like()):
        write(tmp_path / name, pickled(batch))
    write(tmp_path / "data_batch_2", content(pickled(cifar_like()[0])))
    with pytest.raises(ValueError, match=message):
        read_cifar10(tmp_path)


def test_broken_binary_batches_and_archives_are_named(tmp_path):
    files = {f"{name}.bin": binary(batch) for name, batch in zip(NAMES, cifar_like())}
    for name, content in files.items():
        write(tmp_path / name, content)
    good = files["data_batch_4.bin"]
    for bad, message in (
        (good[:-1], r"3073 bytes in .*data_batch_4\.bin, got 12291 bytes: 3072 after record 3"),
        (b"", r"data_batch_4\.bin, got 0 bytes"),
        (good[:3073] + b"\x0a" + good[3074:], r"0\.\.9 in .*data_batch_4\.bin, got 10 for image 2"),
    ):
        write(tmp_path / "data_batch_4.bin", bad)
        with pytest.raises(ValueError, match=message):
            read_cifar10(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"Expected data_batch_4 in .*kriz"):
        read_cifar10(tmp_path)
    whole = archived({name: os.urandom(1000) + content for name, content in files.items()})
    for content in (whole[: len(whole) // 2], b"nothing of the kind"):
        path = write(tmp_path / "cut.tar.gz", content)
        with pytest.raises(ValueError, match=r"cut\.tar\.gz"):
            read_cifar10(path)


def jpeg(picture, quality=75):
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def jpeg_like(folder, count=3, **changed):
    """Three .npz files of smooth images; `changed` replaces arrays of the second. Returns the images and labels."""
    rows, columns, colour = np.ogrid[:32, :32, :3]
    every = []
    for k, name in enumerate(("train_0", "train_1", "test")):
        pictures = [(rows * 3 + columns * (k + 2) + 20 * colour + 10 * j).astype(np.uint8) for j in range(count)]
        coded = [jpeg(picture) for picture in pictures]
        arrays = {
            "jpeg": np.frombuffer(b"".join(coded), np.uint8),
            "offsets": np.cumsum([0, *map(len, coded)]).astype(np.uint32),
            "y": (np.arange(count) + k).astype(np.uint8),
        }
        if k == 1:
            arrays = {key: changed.get(key, lambda old: old)(value) for key, value in arrays.items()}
            arrays = {key: value for key, value in arrays.items() if value is not None}
        np.savez(folder / f"cifar10_jpeg_{name}.npz", **arrays)
        every.append((np.array(pictures), arrays.get("y")))
    return every


def test_cifar10_from_jpeg(tmp_path, monkeypatch):
    first, second, test = jpeg_like(tmp_path)
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"cifar10_jpeg_train_0\.npz with SHA-256"):
        load("cifar10")
    found = read_cifar10(tmp_path, verify=False)
    assert found.lossy
    assert found.images.shape == (6, 32, 32, 3)
    expected = np.concatenate([first[0], second[0]]).astype(int)
    assert np.abs(found.images - expected).mean() < 4  # the same pictures, the right way up, in the same colours
    np.testing.assert_array_equal(found.labels, [0, 1, 2, 1, 2, 3])
    np.testing.assert_array_equal(found.test_labels, test[1])
    dataset = load("cifar10", verify=False)
    assert dataset.name == "CIFAR-10 (JPEG q75)"
    np.testing.assert_array_equal(dataset.features[1, :3], found.images[1, 0, 0] / np.float32(255))
    for name, batch in zip(NAMES, cifar_like()):
        write(tmp_path / f"{name}.bin", binary(batch))
    assert load("cifar10").name == "cifar10"  # the original comes first


def swap(offsets):
    return offsets[[0, 2, 1, 3]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"jpeg": lambda old: old[:-50]}, r"ascending offsets up to \d+ in .*train_1\.npz, got \d+, \d+ for image 3"),
        ({"offsets": swap}, r"ascending offsets .*train_1\.npz.*image 2"),
        ({"offsets": lambda old: old[:-1]}, r"4 whole offsets for 3 labels in .*train_1\.npz, got uint32 \(3,\)"),
        ({"offsets": lambda old: old.astype(float)}, "whole offsets"),
        ({"offsets": lambda old: old.astype(np.int64) - 5}, "got -5, .*image 1"),
        ({"y": lambda old: old + 8}, r"0\.\.9 in .*train_1\.npz, y, got 10 for image 2"),
        ({"y": lambda old: np.uint8(3)}, r"train_1\.npz, y"),
        ({"y": lambda old: None}, r"whole \.npz with jpeg, offsets and y at .*train_1\.npz"),
        ({"y": lambda old: np.array([None] * 3)}, r"train_1\.npz.*allow_pickle"),
        ({"jpeg": lambda old: old.reshape(1, -1)}, r"jpeg as bytes in .*train_1\.npz"),
        ({"jpeg": lambda old: old ^ 0xFF}, r"32 x 32 RGB JPEG in .*train_1\.npz, image 1"),
        ({"offsets": lambda old: old - [0, 0, 200, 0]}, r"32 x 32 RGB JPEG in .*train_1\.npz, image 2: .*[Tt]runcated"),
    ],
    ids=["end", "order", "fewer", "float", "below", "label", "one", "missing", "object", "flat", "bytes", "cut"],
)
def test_broken_jpeg_files_are_named(tmp_path, changed, message):
    jpeg_like(tmp_path, **changed)
    with pytest.raises(ValueError, match=message):
        read_cifar10(tmp_path, verify=False)


def test_jpeg_of_another_size_and_missing_or_cut_parts(tmp_path):
    small = np.frombuffer(jpeg(np.zeros((16, 32, 3), np.uint8)), np.uint8)
    jpeg_like(tmp_path, count=1, jpeg=lambda old: small, offsets=lambda old: np.array([0, len(small)]))
    with pytest.raises(ValueError, match=r"image 1: it is 32 x 16, RGB"):
        read_cifar10(tmp_path, verify=False)
    path = tmp_path / "cifar10_jpeg_train_1.npz"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"train_1\.npz"):
        read_cifar10(tmp_path, verify=False)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"train_1\.npz"):
        read_cifar10(tmp_path, verify=False)


MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
FACTS = {
    "mnist": ("mnist", 60_000, 784, MNIST_COUNTS, [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    "fashion_mnist": ("fashion_mnist", 60_000, 784, [6000] * 10, [1000] * 10),
    "cifar10": (None, 50_000, 3072, [5000] * 10, [1000] * 10),
}


@pytest.mark.parametrize("name", FACTS)
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
