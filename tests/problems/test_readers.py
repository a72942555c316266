"""Readers: what is written comes back in every compression; what is broken is named."""

import bz2
import gzip
import hashlib
import lzma
import zipfile

import numpy as np

from jdfl.problems import readers
from jdfl.problems.readers import read_libsvm, read_qsar
from tests.refused import refused

TEXT = b"-1 1:0.5 3:-2\n+1 2:1\n-1 \n+1 1:1e-3 4:7\n"
FEATURES = np.array([[0.5, 0, -2, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1e-3, 0, 0, 7]], np.float32)
PACK = {"": bytes, ".gz": lambda data: gzip.compress(data, mtime=0), ".bz2": bz2.compress, ".xz": lzma.compress}


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def test_libsvm_round_trip(tmp_path):
    for ending, pack in PACK.items():
        features, labels = read_libsvm(write(tmp_path, "some.t" + ending, pack(TEXT)))
        assert features.dtype == np.float32
        np.testing.assert_array_equal(features.toarray(), FEATURES)
        np.testing.assert_array_equal(labels, [0, 1, 0, 1])
    path = write(tmp_path, "data", b"3 1:1\n1 2:1\n7.5 1:2\n")
    features, labels = read_libsvm(path, n_features=6, binary=False)
    assert features.shape == (3, 6)
    np.testing.assert_array_equal(labels, [3, 1, 7.5])
    np.testing.assert_array_equal(read_libsvm(write(tmp_path, "one_two", b"2 1:1\n1 1:1\n"))[1], [1, 0])
    for wrong in ({}, {"n_features": 1}):
        with refused("data"):
            read_libsvm(path, **wrong)


def test_broken_libsvm_text_is_named(tmp_path):
    for text, where in {
        b"1 1:1\n-1 2:1\n1 x:3\n": "line 3",
        b"one 1:1\n": "line 1",
        b"1 0:1\n": "line 1",
        b"1 1:1\n-1 99999999999999999999:1\n": "line 2",
        b"1 2:1 1:1\n": "line 1",
        b"1 1:1\n-1 1:1 3:nan\n": "not finite in row 2",
        b"1 1:1\nnan 1:1\n": "not finite in row 2",
        b"": "empty",
        b"1 1:1\n1 1:2\n": "1 classes",
    }.items():
        with refused("bad", where):
            read_libsvm(write(tmp_path, "bad", text))
    for name, remedy in (("a9a.bz2", "again"), ("own.bz2", "ascending indices from 1")):  # published, and one's own
        with refused(name, "line 1", remedy):
            read_libsvm(write(tmp_path, name, bz2.compress(b"one 1:1")), verify=False)
    with refused(FileNotFoundError, "nowhere.bz2"):
        read_libsvm(tmp_path / "nowhere.bz2")


def test_what_is_not_what_its_name_says_or_is_damaged_after_a_whole_part_is_named(tmp_path):
    for name, content in (("a.bz2", TEXT), ("a.gz", bz2.compress(TEXT)), ("a", gzip.compress(TEXT))):
        with refused(name):
            read_libsvm(write(tmp_path, name, content))
    rng = np.random.default_rng(0)
    text = b"".join(b"%d 1:%.17f\n" % (k % 2, x) for k, x in enumerate(rng.normal(size=14_000)))
    for ending in (".gz", ".bz2", ".xz"):
        part = PACK[ending](text)
        assert len(part) > 2**16
        assert read_libsvm(write(tmp_path, "two" + ending, part * 2))[0].shape == (28_000, 1)
        for what in (b"\xff" + part[1:], part[:10] + b"\xff" + part[11:], part[:20_000], b"rubbish", part[:1]):
            with refused("damaged" + ending):
                read_libsvm(write(tmp_path, "damaged" + ending, part + what))
    part, zeros = PACK[".xz"](TEXT), bytes(2**18)
    assert read_libsvm(write(tmp_path, "padded.xz", part + zeros + part + zeros))[0].shape == (8, 4)


def test_checksums(tmp_path, monkeypatch):
    path = write(tmp_path, "a9a.bz2", bz2.compress(TEXT))
    with refused("a9a.bz2", "SHA-256", "verify=False"):
        read_libsvm(path)
    assert read_libsvm(path, verify=False)[0].shape == (4, 4)
    monkeypatch.setitem(readers.CHECKSUMS, "a9a.bz2", hashlib.sha256(path.read_bytes()).hexdigest())
    assert read_libsvm(path)[0].shape == (4, 4)


def qsar_text(n=6, seed=0):
    bits = np.random.default_rng(seed).integers(0, 2, (n, 1024))
    words = [("negative", "positive")[k % 3 == 1] for k in range(n)]
    lines = [";".join(map(str, row)) + ";" + word for row, word in zip(bits, words)]
    return bits, np.array([word == "positive" for word in words]), lines


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_qsar_round_trip(tmp_path):
    bits, positive, lines = qsar_text()
    text = "\r\n".join([*lines, ""]).encode()
    paths = [write(tmp_path, "q.csv" + ending, pack(text)) for ending, pack in PACK.items()]
    paths.append(zipped(tmp_path / "q.zip", {"q.csv": "\n".join(lines), "readme.txt": b"words"}))
    for path in paths:
        features, labels = read_qsar(path)
        assert features.dtype == np.float32
        np.testing.assert_array_equal(features, bits)
        np.testing.assert_array_equal(labels, positive)


def test_broken_qsar_lines_and_zips_are_named(tmp_path):
    lines = qsar_text(40)[2]
    for line, where in (
        (lines[1][2:], "1024 columns in line 2"),
        ("2" + lines[1][1:], "'2' in line 2"),
        (lines[1] + "ly", "'positively' in line 2"),
    ):
        with refused("q.csv", where):
            read_qsar(write(tmp_path, "q.csv", "\n".join([lines[0], line, *lines[2:]]).encode()))
    text = "\n".join(lines)
    whole = zipped(tmp_path / "whole.zip", {"q.csv": text}).read_bytes()
    locked = bytearray(whole)
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        locked[locked.index(mark) + place] |= 1  # encrypted
    two = zipped(tmp_path / "both.zip", {"a.csv": text, "b.csv": text}).read_bytes()
    for name, content, *words in (
        ("cut.zip", whole[: len(whole) // 2]),
        ("locked.zip", locked, "encrypted"),
        ("two.zip", two),
    ):
        with refused(name, *words):
            read_qsar(write(tmp_path, name, bytes(content)))
