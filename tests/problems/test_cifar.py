"""Readers of CIFAR-10: every form gives the same images; what is broken is named, and pickles run nothing."""

import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from jdfl.problems import load, read_cifar10
from tests.problems.test_images import write


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
        (lambda good: good[:-100], "data_batch_2: .*remain.*again"),
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
