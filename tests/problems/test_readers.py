"""Readers: what is written comes back in every compression; what is broken is named."""

import bz2
import gzip
import hashlib
import lzma
import zipfile

import numpy as np
import pytest

from jdfl.problems import files, readers
from jdfl.problems.readers import read_libsvm, read_qsar

TEXT = b"-1 1:0.5 3:-2\n+1 2:1\n-1 \n+1 1:1e-3 4:7\n"
FEATURES = np.array([[0.5, 0, -2, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1e-3, 0, 0, 7]], np.float32)
PACK = {"": bytes, ".gz": lambda data: gzip.compress(data, mtime=0), ".bz2": bz2.compress, ".xz": lzma.compress}
ENDINGS = pytest.mark.parametrize("ending", PACK)


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


@ENDINGS
def test_libsvm_round_trip(tmp_path, ending):
    features, labels = read_libsvm(write(tmp_path, "some.t" + ending, PACK[ending](TEXT)))
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features.toarray(), FEATURES)
    np.testing.assert_array_equal(labels, [0, 1, 0, 1])


def test_libsvm_width_and_labels(tmp_path):
    path = write(tmp_path, "data", b"3 1:1\n1 2:1\n7.5 1:2\n")
    features, labels = read_libsvm(path, n_features=6, binary=False)
    assert features.shape == (3, 6)
    np.testing.assert_array_equal(labels, [3, 1, 7.5])
    with pytest.raises(ValueError, match=r"two classes in .*data, got 3: 1, 3, 7\.5"):
        read_libsvm(path)
    with pytest.raises(ValueError, match=r"at most 1 features in .*data"):
        read_libsvm(path, n_features=1)
    np.testing.assert_array_equal(read_libsvm(write(tmp_path, "one_two", b"2 1:1\n1 1:1\n"))[1], [1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 1:1\n-1 2:1\n1 x:3\n", "bad, line 3"),
        (b"1 1:1\n-1 2:\n", "bad, line 2"),
        (b"1 1:1\n-1 5\n", "bad, line 2"),
        (b"one 1:1\n", "bad, line 1"),
        (b"1 0:1\n", "bad, line 1"),
        (b"1 1:1\n-1 4294967297:1\n", "bad, line 2"),
        (b"1 1:1\n-1 99999999999999999999:1\n", "bad, line 2"),
        (b"1 1:" + b"x" * 9000, "bad, line 1: .{,300}ascending indices from 1"),
        (b"1 2:1 1:1\n", "bad, line 1"),
        (b"1 1:1\n-1 1:1 3:nan\n", "nan in row 2, column 3"),
        (b"1 1:1 2:inf\n-1 1:1\n", "inf in row 1, column 2"),
        (b"1 1:1\nnan 1:1\n", "nan in row 2"),
        (b"", "empty"),
        (b"1 1:1\n1 1:2\n", "two classes"),
    ],
)
def test_broken_libsvm_text_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_libsvm(write(tmp_path, "bad", text))


def test_what_to_do_is_told_for_a_published_file_and_for_ones_own(tmp_path):
    for name, remedy in (("a9a.bz2", "again"), ("own.bz2", "ascending indices from 1")):
        with pytest.raises(ValueError, match=f"line 1: .*{remedy}"):
            read_libsvm(write(tmp_path, name, bz2.compress(b"one 1:1")), verify=False)


def test_missing_file_is_named(tmp_path):
    for read in (read_libsvm, read_qsar):
        with pytest.raises(FileNotFoundError, match=r"nowhere\.bz2.*download"):
            read(tmp_path / "nowhere.bz2")


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_cut_or_changed_archives_are_named(tmp_path, ending):
    rng = np.random.default_rng(0)
    whole = PACK[ending](b"".join(b"%d 1:%.17f\n" % (k % 2, x) for k, x in enumerate(rng.normal(size=2000))))
    inside = whole[: len(whole) // 2] + b"\0\0" + whole[len(whole) // 2 + 2 :]
    at_start = whole[:10] + b"\xff" + whole[11:]
    for name, content in (("cut", whole[: len(whole) * 2 // 3]), ("inside", inside), ("at_start", at_start)):
        with pytest.raises(ValueError, match=name + ending):
            read_libsvm(write(tmp_path, name + ending, content))
    assert read_libsvm(write(tmp_path, "whole" + ending, whole))[0].shape == (2000, 1)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_parts_that_follow_one_another_are_all_read(tmp_path, ending):
    rng = np.random.default_rng(0)
    part = PACK[ending](b"".join(b"%d 1:%.17f\n" % (k % 2, x) for k, x in enumerate(rng.normal(size=40_000))))
    assert len(part) > 2**17
    assert read_libsvm(write(tmp_path, "two" + ending, part * 2))[0].shape == (80_000, 1)
    for what in (b"\xff" + part[1:], part[:10] + b"\xff" + part[11:], part[:20_000], b"rubbish", part[:1]):
        with pytest.raises(ValueError, match=f"whole \\{ending} file"):
            read_libsvm(write(tmp_path, "damaged" + ending, part + what))


def test_zeros_after_a_part_of_xz_are_none_of_it(tmp_path):
    part, zeros = PACK[".xz"](TEXT), bytes(2**18)
    assert read_libsvm(write(tmp_path, "padded.xz", part + zeros + part + zeros))[0].shape == (8, 4)
    with pytest.raises(ValueError, match=r"whole \.bz2 file"):
        read_libsvm(write(tmp_path, "padded.bz2", PACK[".bz2"](TEXT) + zeros))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.bz2", TEXT, "Expected .bz2 data .*got something else"),
        ("a.gz", bz2.compress(TEXT), "Expected .gz data .*got .bz2 data"),
        ("a", gzip.compress(TEXT, mtime=0), "Expected plain text .*got .gz data"),
        ("a.zip", TEXT, "Expected .zip data"),
    ],
    ids=["bz2", "gz", "plain", "zip"],
)
def test_content_that_is_not_what_the_name_says(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_libsvm(write(tmp_path, name, content))


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


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_qsar_round_trip(tmp_path, newline):
    bits, positive, lines = qsar_text()
    text = (newline.join(lines) + newline).encode()
    paths = [write(tmp_path, "q.csv" + ending, pack(text)) for ending, pack in PACK.items()]
    paths.append(zipped(tmp_path / "q.zip", {"q.csv": text, "readme.txt": b"words"}))
    for path in paths:
        features, labels = read_qsar(path)
        assert features.dtype == np.float32
        np.testing.assert_array_equal(features, bits)
        np.testing.assert_array_equal(labels, positive)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line[2:], "1025 columns in .*line 2, got 1024"),
        (lambda line: "0;" + line, "1025 columns in .*line 2, got 1026"),
        (lambda line: line[: len(line) // 2], "1025 columns in .*line 2"),
        (lambda line: "2" + line[1:], "line 2, column 1, got '2'"),
        (lambda line: "0;nan" + line[3:], "line 2, column 2, got 'nan'"),
        (lambda line: "0,1" + line[3:], "line 2"),
        (lambda line: line + "ly", "positive or negative .*line 2, column 1025, got 'positively'"),
    ],
)
def test_broken_qsar_lines_are_named(tmp_path, change, message):
    lines = qsar_text()[2]
    lines[1] = change(lines[1])
    with pytest.raises(ValueError, match=message):
        read_qsar(write(tmp_path, "q.csv", "\n".join(lines).encode()))


def test_broken_zips_are_named(tmp_path):
    text = "\n".join(qsar_text(40)[2])
    whole = zipped(tmp_path / "whole.zip", {"q.csv": text}).read_bytes()
    with pytest.raises(ValueError, match=r"cut\.zip"):
        read_qsar(write(tmp_path, "cut.zip", whole[: len(whole) // 2]))
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 0xFF
    with pytest.raises(ValueError, match=r"changed\.zip"):
        read_qsar(write(tmp_path, "changed.zip", bytes(changed)))
    with pytest.raises(ValueError, match=r"one \.csv .*got 2"):
        read_qsar(zipped(tmp_path / "two.zip", {"a.csv": text, "b.csv": text}))
    with pytest.raises(ValueError, match="empty"):
        read_qsar(write(tmp_path, "empty.csv", b""))


def test_checksums(tmp_path, monkeypatch):
    path = write(tmp_path, "a9a.bz2", bz2.compress(TEXT))
    with pytest.raises(ValueError, match=r"SHA-256 .*verify=False"):
        read_libsvm(path)
    assert read_libsvm(path, verify=False)[0].shape == (4, 4)
    monkeypatch.setitem(readers.CHECKSUMS, "a9a.bz2", hashlib.sha256(path.read_bytes()).hexdigest())
    assert read_libsvm(path)[0].shape == (4, 4)


def test_what_unpacks_to_too_much_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_UNPACKED", 1000)
    text = b"1 1:1\n-1 1:2\n" * 2000
    assert read_libsvm(write(tmp_path, "few.bz2", bz2.compress(text[:988])))[0].shape == (152, 1)
    for name, content in (("d.gz", gzip.compress(bytes(300_000))), ("d.bz2", bz2.compress(text))):
        with pytest.raises(ValueError, match=rf"whole \{name[1:]} file at .*unpacks to more than \d+ bytes"):
            read_libsvm(write(tmp_path, name, content))


def test_a_zip_with_a_password_is_told(tmp_path):
    whole = bytearray(zipped(tmp_path / "q.zip", {"q.csv": "\n".join(qsar_text()[2])}).read_bytes())
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        whole[whole.index(mark) + place] |= 1  # encrypted
    with pytest.raises(ValueError, match=r"whole \.zip file at .*encrypted.*again"):
        read_qsar(write(tmp_path, "p.zip", bytes(whole)))
