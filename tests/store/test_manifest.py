"""The manifest of a folder tells every file that is not as it was, and is itself whole or refused."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from jdfl.store import lease, manifest
from tests.fuzz.judge import tried
from tests.refused import refused

FILES = {
    "a": b"some bytes",
    "empty": b"",
    "deep/er/b": bytes(range(16)),
    "deep/lease": b"another",
    "deep/manifest.json": b"{}",
    "é ü\n'": b"odd",
    ".hidden": b"1",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files and their manifest."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "no files").mkdir()
    sign(tmp_path)
    return tmp_path


def sign(folder: Path) -> None:
    (folder / manifest.NAME).write_text(json.dumps(manifest.of(folder)))


def test_a_whole_folder_has_no_differences_and_the_lease_and_the_manifest_do_not_count(folder):
    assert set(manifest.of(folder)["files"]) == set(FILES)
    assert manifest.differences(folder) == ([], [])
    held = lease.Lease.take(folder)
    assert manifest.differences(folder) == ([], [])
    before = manifest.of(folder)
    held.release()
    sign(folder)
    assert manifest.of(folder) == before


def tells(folder: Path, name: str) -> bool:
    """Whether one file, and no other, is told."""
    found, _ = manifest.differences(folder)
    return len(found) == 1 and found[0].startswith(name)


def test_every_change_of_a_file_is_told_by_its_name(folder):
    for name, content in FILES.items():
        path, flipped = folder / name, bytes([content[0] ^ 1]) + content[1:] if content else b"1"
        for other in (flipped, content[:-1] + b"\0\0", content + b"\0", content[:-1], content[1:], b""):
            path.write_bytes(other)
            assert tells(folder, name) or other == content
        path.unlink()
        assert tells(folder, name)
        path.mkdir()
        assert tells(folder, name)
        path.rmdir()
        path.write_bytes(content)
        assert manifest.differences(folder) == ([], [])


@pytest.mark.parametrize("name", ["events", "runs/events"])
def test_the_log_of_events_may_grow_and_nothing_else_may_happen_to_it(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"begun\n")
    sign(folder)
    for content, named in ((b"begun\nresumed\n", []), (b"begin\nresumed\n", [name]), (b"begun", [name])):
        (folder / name).write_bytes(content)
        assert [one.split()[0] for one in manifest.differences(folder)[0]] == named
        with refused(name) if named else nullcontext():
            manifest.check(folder)


def test_added_files_and_all_differences_are_told(folder):
    for name in ("c", "deep/c", "no files/lease", "no files/manifest.json", "manifest.json.tmp"):
        (folder / name).write_bytes(b"")
        assert manifest.differences(folder) == ([], [name])
        (folder / name).unlink()
    (folder / "a").rename(folder / "c")
    (folder / "empty").write_bytes(b"1")
    (folder / ".hidden").write_bytes(b"2")
    changed, added = manifest.differences(folder)
    assert sorted(one.split()[0] for one in changed) == [".hidden", "a", "empty"]
    assert added == ["c"]
    for missing in (folder / "no files", folder / "none"):  # was not finished
        with pytest.raises(FileNotFoundError, match=str(missing)):
            manifest.differences(missing)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "a").write_bytes(b"some")
    (folder / "b").write_bytes(b"")
    return folder


DAMAGED = [b'{"format": NaN, "files": {}}', b'{"format": 1, "files": {"a": %b}}' % (b"[" * 50_000)]
DAMAGED += [b'{"format": 1, "files": [["a", {"bytes": "4", "sha256": null}]]}', b"[]", b"{", b"\xff", b""]
DAMAGED += [
    b'{"format": 1, "files": {"a": {"bytes": %b, "sha256": ""}}}' % one for one in (b"Infinity", b"1" + b"0" * 400)
]


def test_damaged_manifests_are_refused_or_tell_differences(small):
    sign(small)
    whole = (small / manifest.NAME).read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in (*DAMAGED, *flipped):
        (small / manifest.NAME).write_bytes(content)
        found = tried(lambda: manifest.differences(small), content)
        assert manifest.NAME in str(found) if isinstance(found, ValueError) else any(found), content
