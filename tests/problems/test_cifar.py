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
from tests.refused import refused


def cifar_like(seed=0, count=4):
    """Images [count, 32, 32, 3] and labels of six batches."""
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, count).tolist())
        for _ in range(6)
    ]


NAMES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


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


@pytest.mark.parametrize(("writer", "archive"), [(pickled, ""), (old_pickled, "cifar-10-python.tar.gz")])
def test_cifar10_in_all_forms(tmp_path, writer, archive):
    batches, folder = cifar_like(), "cifar-10-batches-py"
    files = {f"{folder}/{name}": writer(batch) for name, batch in zip(NAMES, batches)}
    if archive:
        files = {archive: archived(files | {f"{folder}/readme.html": b"words"})}
    for name, content in files.items():
        write(tmp_path / name, content)
    found = read_cifar10(tmp_path)
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


def test_pickles_run_nothing_and_broken_ones_are_named(tmp_path):
    batches, trace = cifar_like(), tmp_path / "trace"
    for name, batch in zip(NAMES, batches):
        write(tmp_path / name, pickled(batch))
    one = np.zeros((1, 3072), np.uint8)
    for content, *words in (
        (pickled(batches[0], extra=Evil(os.mkdir, str(trace))), "mkdir"),
        (pickled(batches[0], extra=np.array([None, {}], object)), "O8"),
        (pickled(batches[0])[:-100], "again"),
        (pickle.dumps({b"data": one[:, :3], b"labels": [1]}), "uint8 (1, 3)"),
        (pickle.dumps({b"data": one, b"labels": [1, 2]}), "1"),
        (pickle.dumps({b"data": one, b"labels": [2**70]}), "list of numbers"),
        (pickle.dumps({b"data": one, b"labels": [10]}), "list of numbers 0..9"),
    ):
        write(tmp_path / "data_batch_2", content)
        with refused("data_batch_2", *words):
            read_cifar10(tmp_path)
    assert not trace.exists()


def test_missing_batches_and_broken_archives_are_named(tmp_path):
    files = {name: pickled(batch) for name, batch in zip(NAMES, cifar_like())}
    for name, content in files.items():
        write(tmp_path / name, content)
    (tmp_path / "data_batch_4").unlink()
    with refused(FileNotFoundError, "data_batch_4"):
        read_cifar10(tmp_path)
    del files["data_batch_4"]
    with refused("lacking.tar.gz", "data_batch_4"):
        read_cifar10(write(tmp_path / "lacking.tar.gz", archived(files)))
    whole = archived({name: os.urandom(1000) + content for name, content in files.items()})
    with refused("cut.tar.gz"):
        read_cifar10(write(tmp_path / "cut.tar.gz", whole[: len(whole) // 2]))


def jpeg_like(folder, **changed):
    """Three .npz files of three smooth images; `changed` replaces arrays of the second. Returns the images."""
    rows, columns, colour = np.ogrid[:32, :32, :3]
    every = []
    for k, name in enumerate(("train_0", "train_1", "test")):
        every += [(rows * 3 + columns * (k + 2) + 20 * colour + 10 * j).astype(np.uint8) for j in range(3)]
        stream, offsets = io.BytesIO(), [0]
        for picture in every[-3:]:
            Image.fromarray(picture).save(stream, "JPEG", quality=75)
            offsets.append(stream.tell())
        jpeg = np.frombuffer(stream.getvalue(), np.uint8)
        arrays = {"jpeg": jpeg, "offsets": np.array(offsets), "y": np.arange(k, k + 3)}
        if k == 1:
            arrays |= {key: change(arrays[key]) for key, change in changed.items()}
        np.savez(folder / f"cifar10_jpeg_{name}.npz", **arrays)
    return np.array(every)


def test_cifar10_from_jpeg_where_there_is_nothing_else_and_broken_files_are_named(tmp_path, monkeypatch):
    expected = jpeg_like(tmp_path)[:6].astype(int)
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    with refused("cifar10_jpeg_train_0.npz", "SHA-256"):
        load("cifar10")
    found = read_cifar10(tmp_path, verify=False)
    assert found.lossy
    assert np.abs(found.images - expected).mean() < 4  # the same pictures, the right way up, in the same colours
    np.testing.assert_array_equal(found.labels, [0, 1, 2, 1, 2, 3])
    np.testing.assert_array_equal(found.test_labels, [2, 3, 4])
    dataset = load("cifar10", verify=False)
    assert dataset.name == "CIFAR-10 (JPEG q75)"
    np.testing.assert_array_equal(dataset.features[1, :3], found.images[1, 0, 0] / np.float32(255))
    for changed, *words in (
        ({"jpeg": lambda old: old[:-50]}, "offsets", "image 3"),
        ({"offsets": lambda old: old[:-1]}, "offsets (3,) for 3 labels"),
        ({"y": lambda old: np.array([None] * 3)}, "allow_pickle"),
        ({"offsets": lambda old: old - [0, 0, 200, 0]}, "image 2"),
    ):
        jpeg_like(tmp_path, **changed)
        with refused("cifar10_jpeg_train_1.npz", *words):
            read_cifar10(tmp_path, verify=False)
    for name, batch in zip(NAMES, cifar_like()):
        write(tmp_path / name, pickled(batch))
    assert load("cifar10").name == "cifar10"  # the original comes first
