"""Downloads continue, begin again where they must, and end as the file that was published or not at all."""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from jdfl.problems import download
from jdfl.problems.download import Known
from tests.problems.serving import OLD, Published, serving
from tests.refused import refused

CONTENT = np.random.default_rng(0).bytes(300_000)
KNOWN = Known(hashlib.sha256(CONTENT).hexdigest(), "as the test says")
CUT = 100_000
REST = f"bytes {CUT}-{len(CONTENT) - 1}/{len(CONTENT)}"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(download, "_WAITS", (0.0, 0.0))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "file"


def fetched(file: Published, path, known: Known | None = KNOWN) -> list[str]:
    """What was told of the download."""
    told: list[str] = []
    download.download(f"{file.address}/file", path, known, told.append)
    assert path.read_bytes() == file.content
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # nothing else is left
    return told


def interrupted(file: Published, path, cuts=(CUT, 0, 0)) -> None:
    """Download the first CUT bytes, with all tries."""
    file.cuts = list(cuts)
    with refused(OSError, f"{CUT:,}"):
        download.download(f"{file.address}/file", path, KNOWN, print)
    assert not path.exists()
    assert path.with_name("file.partial").read_bytes() == file.content[:CUT]
    for log in (file.asked, file.sent):
        log.clear()


@pytest.mark.parametrize("head", [{"ETag": '"1"'}, {"Last-Modified": OLD}, {"ETag": 'W/"1"', "Last-Modified": OLD}])
def test_only_what_is_missing_is_transferred(path, head):
    with serving(Published(CONTENT, head, chunked="Last-Modified" in head)) as file:
        interrupted(file, path)
        assert any("continuing" in line and f"{CUT:,}" in line for line in fetched(file, path))
        assert file.ranges == [f"bytes={CUT}-"]
        assert file.sent == [len(CONTENT) - CUT]
        assert file.asked[0]["Accept-Encoding"] == "identity"


def test_a_lost_connection_is_continued_in_the_same_call_as_long_as_the_file_grows(path):
    with serving(Published(CONTENT, cuts=[50_000] * 5)) as file:
        fetched(file, path)
        assert len(file.sent) == 6
        assert sum(file.sent) == len(CONTENT)


WHOLE = len(CONTENT)
OTHER_TAG, NO_RANGE = {"head": {"ETag": '"2"'}}, {"continues": False}


@pytest.mark.parametrize(
    ("change", "told", "answer"),
    [
        (NO_RANGE, "cannot continue", None),
        (OTHER_TAG, "changed", None),
        (OTHER_TAG | {"content": CONTENT[::-1][:-7]}, "changed", None),
        ({"head": {"Last-Modified": OLD}}, "changed", None),
        ({}, "again", (416, {"Content-Length": "0"})),
        ({}, "again", (206, {"Content-Range": f"bytes 0-{WHOLE - 1}/{WHOLE}"})),
        ({}, "again", (206, {"Content-Range": f"bytes {CUT - 9}-{WHOLE - 10}/{WHOLE}"})),
        ({}, "again", (206, {"Content-Range": f"bytes {CUT}-{WHOLE - 1}/{WHOLE + 1}"})),
        ({}, "again", (206, {"Content-Range": "some"})),
        ({}, "again", (206, {"ETag": '"2"'})),
        (NO_RANGE, "again", (206, {"Content-Range": REST})),  # and sends all
        (NO_RANGE | {"length": False}, "again", (206, {"Content-Range": REST})),
    ],
)
def test_it_begins_again_and_says_so(path, change, told, answer):
    with serving(Published(CONTENT)) as file:
        interrupted(file, path)
        for name, value in change.items():
            setattr(file, name, value)
        file.answers = [answer] if answer else []
        lines = fetched(file, path, KNOWN if file.content == CONTENT else None)
        assert any(told in line for line in lines)
        assert file.sent[-1] == len(file.content)
        assert len(file.sent) == (2 if answer else 1)


def test_what_has_no_validator_or_is_of_unknown_origin_is_not_continued(path):
    for head in ({}, {"ETag": 'W/"1"'}, {"Last-Modified": "yesterday"}):
        with serving(Published(CONTENT, head)) as file:
            interrupted(file, path, [CUT] * 3)
            assert any("beginning again" in line for line in fetched(file, path))
            assert file.ranges == [None]
            path.unlink()
    for about in ("", "null", '{"address": "http', "[1]", None, "elsewhere"):
        with serving(Published(CONTENT)) as file:
            interrupted(file, path)
            place = path.with_name("file.partial.json")
            told = json.loads(place.read_text())
            place.unlink()
            if about is not None:
                other = json.dumps({**told, "address": "http://127.0.0.1/other"})
                place.write_text(other if about == "elsewhere" else about)
            assert any("beginning again" in line for line in fetched(file, path))
            assert file.ranges == [None]
            path.unlink()


def test_what_was_complete_is_not_transferred_again(path):
    with serving(Published(CONTENT)) as file:
        interrupted(file, path)
        path.with_name("file.partial").write_bytes(CONTENT)  # killed before the file had its name
        fetched(file, path)
        assert file.sent == []


def test_without_a_length_the_connection_s_end_is_the_file_s_and_a_short_body_is_not_the_file(path):
    with serving(Published(CONTENT, length=False)) as file:
        fetched(file, path)
        path.unlink()
    for chunked in (False, True):
        with serving(Published(CONTENT, {}, chunked=chunked, cuts=[CUT, CUT, CUT])) as file:
            with refused(OSError, f"{file.address}/file"):
                download.download(f"{file.address}/file", path, None, print)
            assert not path.exists()
            assert len(file.sent) == 3


def test_compressed_answers_are_refused_but_for_files_that_are(path):
    with serving(Published(CONTENT, {"Content-Encoding": "gzip"})) as file:
        with refused(OSError, "gzip"):
            download.download(f"{file.address}/file", path, None, print)
        assert list(path.parent.iterdir()) == []
        fetched(file, path.with_name("file.gz"))


def test_other_answers_are_errors_with_a_remedy_and_passing_ones_are_asked_again(path):
    for status, tries in ((404, 1), (403, 1), (206, 1), (503, 3), (429, 3)):
        with serving(Published(CONTENT, answers=[(status, {})] * 9)) as file:
            with refused(OSError, str(status), str(path)):
                download.download(f"{file.address}/file", path, KNOWN, print)
            assert len(file.sent) == tries
            assert list(path.parent.iterdir()) == []
            file.answers = [(503, {})]
            fetched(file, path)
            path.unlink()


def test_another_file_is_refused_with_both_digests_and_kept_aside(path):
    with serving(Published(CONTENT[::-1])) as file:
        other = hashlib.sha256(file.content).hexdigest()
        with refused(KNOWN.sha256, KNOWN.source, other, "file.refused"):
            download.download(f"{file.address}/file", path, KNOWN, print)
        assert [one.name for one in path.parent.iterdir()] == ["file.refused"]
        assert path.with_name("file.refused").read_bytes() == file.content


def test_a_second_download_is_refused_by_name(path):
    with serving(Published(CONTENT, cuts=[CUT], hold=threading.Event())) as file:
        first = threading.Thread(target=fetched, args=(file, path))
        first.start()
        partial = path.with_name("file.partial")
        until(lambda: partial.exists() and partial.stat().st_size)
        with refused(BlockingIOError, str(path)):
            download.download(f"{file.address}/file", path, KNOWN, print)
        assert partial.read_bytes() == CONTENT[: partial.stat().st_size] != b""
        assert file.hold is not None
        file.hold.set()
        first.join()
        assert path.read_bytes() == CONTENT
        fetched(file, path)  # it is there
        assert len(file.sent) == 2


def test_a_killed_process_leaves_what_the_next_continues_from(path):
    code = "import sys; from pathlib import Path; from jdfl.problems import download as d; d.download(sys.argv[1], Path(sys.argv[2]), None, print)"  # noqa: E501
    with serving(Published(CONTENT, cuts=[CUT], hold=threading.Event())) as file:
        process = subprocess.Popen([sys.executable, "-P", "-c", code, f"{file.address}/file", str(path)])
        partial = path.with_name("file.partial")
        until(lambda: partial.exists() and partial.stat().st_size)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        there = partial.stat().st_size
        fetched(file, path)
        assert file.ranges == [None, f"bytes={there}-"]
        assert file.sent == [CUT, len(CONTENT) - there]


def test_a_full_disk_keeps_what_there_is(path, monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving(Published(CONTENT)) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (CUT, hard))
        try:
            with refused(OSError, f"{CUT:,} bytes are kept"):
                download.download(f"{file.address}/file", path, KNOWN, print)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert len(file.sent) == 1
        file.sent.clear()
        fetched(file, path)
        assert file.sent == [len(CONTENT) - CUT]
        path.unlink()
        monkeypatch.setattr(download.shutil, "disk_usage", lambda _: Free)
        with refused(OSError, f"{len(CONTENT):,}", "5"):
            download.download(f"{file.address}/file", path, KNOWN, print)
        assert list(path.parent.iterdir()) == []


class Free:
    free = 5


def until(holds) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
