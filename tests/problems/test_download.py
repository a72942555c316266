"""Downloads continue, begin again where they must, and end as the file that was published or are kept aside."""

import bz2
import contextlib
import hashlib
import http.server
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from jdfl.cli import main
from jdfl.problems import datasets, download, fetch, load
from jdfl.problems.download import Known
from tests.refused import refused

CONTENT = np.random.default_rng(0).bytes(300_000)
KNOWN = Known(hashlib.sha256(CONTENT).hexdigest(), "as the test says")
CUT, WHOLE = 100_000, len(CONTENT)
REST = f"bytes {CUT}-{WHOLE - 1}/{WHOLE}"
DATED = {"Last-Modified": "Mon, 01 Jan 2018 00:00:00 GMT"}


@dataclass
class Published:
    """What a server sends for any address, how, and what was asked and sent, one entry for every request."""

    content: bytes
    head: dict[str, str] = field(default_factory=lambda: {"ETag": '"1"'})
    continues: bool = True  # whether it knows Range
    length: bool = True  # whether it says the length beforehand
    cuts: list[int] = field(default_factory=list)  # bytes of the next bodies, after which the connection is lost
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # statuses and headers of the next answers
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    address: str = ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    published: Published

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        file = self.published
        file.asked.append(dict(self.headers.items()))
        asked, total = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")), len(file.content)
        same = self.headers.get("If-Range") in (None, file.head.get("ETag"), file.head.get("Last-Modified"))
        start = int(asked[1]) if asked and file.continues and same else 0
        status, head, body = 206 if start else 200, dict(file.head), file.content[start:]
        if start:
            head["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
        if file.length:
            head["Content-Length"] = str(len(body))
        if file.answers:
            status, other = file.answers.pop(0)
            head |= other
        cut = file.cuts.pop(0) if file.cuts else None
        file.sent.append(len(body[:cut]))
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        with contextlib.suppress(OSError):  # who asked is gone
            self.end_headers()
            self.wfile.write(body[:cut])
            if cut is not None or not file.length:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving(content: bytes, head: dict[str, str] | None = None, **how: object) -> Generator[Published]:
    """A server of one file, at `published.address`."""
    published = Published(content, {"ETag": '"1"'} if head is None else head, **how)
    handler = type("Its", (Handler,), {"published": published})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        published.address = f"http://127.0.0.1:{server.server_port}"
        yield published
        server.shutdown()


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_WAITS", (0.0, 0.0))
    return tmp_path / "data" / "file"


def fetched(file: Published, path, known: Known | None = KNOWN) -> str:
    """What was told of the download."""
    told: list[str] = []
    download.download(f"{file.address}/file", path, known, told.append)
    assert path.read_bytes() == file.content
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # nothing else is left
    path.unlink()
    return "\n".join(told)


def interrupted(file: Published, path, cuts=(CUT, 0, 0)) -> None:
    """Download the first CUT bytes, with all tries."""
    file.cuts = list(cuts)
    with refused(OSError, f"{CUT:,}"):
        download.download(f"{file.address}/file", path, KNOWN, print)
    assert not path.exists()
    assert path.with_name("file.partial").read_bytes() == file.content[:CUT]
    file.asked.clear()
    file.sent.clear()


def test_only_what_is_missing_is_transferred(path):
    for head in ({"ETag": '"1"'}, DATED, {"ETag": 'W/"1"'} | DATED):
        with serving(CONTENT, head) as file:
            interrupted(file, path)
            assert f"continuing after {CUT:,}" in fetched(file, path)
            assert [one["Range"] for one in file.asked] == [f"bytes={CUT}-"]
            assert file.sent == [WHOLE - CUT]
            assert file.asked[0]["Accept-Encoding"] == "identity"
    with serving(CONTENT, cuts=[50_000] * 5) as file:  # in the same call, as long as the file grows
        fetched(file, path)
        assert (len(file.sent), sum(file.sent)) == (6, WHOLE)
        interrupted(file, path)
        path.with_name("file.partial").write_bytes(CONTENT)  # killed before the file had its name
        fetched(file, path)
        assert file.sent == []


def test_it_begins_again_and_says_so(path):
    other, no_range = {"head": {"ETag": '"2"'}}, {"continues": False}
    for change, told, answer in (
        (no_range, "cannot continue", None),
        (other | {"content": CONTENT[::-1][:-7]}, "changed", None),
        ({"head": DATED}, "changed", None),
        ({}, "again", (416, {"Content-Length": "0"})),
        ({}, "again", (206, {"Content-Range": f"bytes {CUT - 9}-{WHOLE - 10}/{WHOLE}"})),
        ({}, "again", (206, {"Content-Range": f"bytes {CUT}-{WHOLE - 1}/{WHOLE + 1}"})),
        ({}, "again", (206, {"Content-Range": "some"})),
        ({}, "again", (206, {"ETag": '"2"'})),
        (no_range, "again", (206, {"Content-Range": REST})),  # and sends all
    ):
        with serving(CONTENT) as file:
            interrupted(file, path)
            for name, value in change.items():
                setattr(file, name, value)
            file.answers = [answer] if answer else []
            assert told in fetched(file, path, KNOWN if file.content == CONTENT else None)
            assert file.sent[-1] == len(file.content)
            assert len(file.sent) == (2 if answer else 1)


def test_what_has_no_validator_or_is_of_unknown_origin_is_not_continued(path):
    elsewhere = '{"address": "http://127.0.0.1/other", "validator": "\\"1\\"", "size": 300000}'
    for head, about in (({}, None), ({"ETag": 'W/"1"'}, None), (None, ""), (None, "[1]"), (None, elsewhere)):
        with serving(CONTENT, head) as file:
            interrupted(file, path, [CUT] * 3 if head is not None else (CUT, 0, 0))
            if about is not None:
                path.with_name("file.partial.json").write_text(about)
            assert "beginning again" in fetched(file, path)
            assert ["Range" in one for one in file.asked] == [False]


def test_a_short_or_compressed_body_is_not_the_file_but_one_of_unknown_length_is(path):
    with serving(CONTENT, length=False) as file:
        fetched(file, path)
    with serving(CONTENT, {}, cuts=[CUT] * 3) as file:
        with refused(OSError, f"{file.address}/file"):
            download.download(f"{file.address}/file", path, None, print)
        assert (path.exists(), len(file.sent)) == (False, 3)
    path.with_name("file.partial").unlink()
    path.with_name("file.partial.json").unlink()
    with serving(CONTENT, {"Content-Encoding": "gzip"}) as file:
        with refused(OSError, "gzip"):
            download.download(f"{file.address}/file", path, None, print)
        assert list(path.parent.iterdir()) == []
        fetched(file, path.with_name("file.gz"))


def test_other_answers_are_errors_with_a_remedy_and_passing_ones_are_asked_again(path):
    for status, tries in ((404, 1), (206, 1), (503, 3)):
        with serving(CONTENT, answers=[(status, {})] * 9) as file:
            with refused(OSError, str(status), str(path)):
                download.download(f"{file.address}/file", path, KNOWN, print)
            assert len(file.sent) == tries
            assert list(path.parent.iterdir()) == []
            file.answers = [(503, {})]
            fetched(file, path)


def test_a_second_download_is_refused_by_name_and_what_a_killed_one_leaves_is_continued(path):
    code = "import sys; from pathlib import Path; from jdfl.problems import download as d; "
    code += "d.download(sys.argv[1], Path(sys.argv[2]), None, print)"
    with serving(CONTENT, cuts=[CUT, 0, 0, 0]) as file:  # between which it waits for seconds
        process = subprocess.Popen([sys.executable, "-P", "-c", code, f"{file.address}/file", str(path)])
        partial, end = path.with_name("file.partial"), time.monotonic() + 60
        while not partial.exists() or partial.stat().st_size < CUT:
            assert time.monotonic() < end
            time.sleep(0.01)
        with refused(BlockingIOError, str(path)):
            download.download(f"{file.address}/file", path, KNOWN, print)
        process.kill()
        process.wait()
        file.cuts.clear()
        fetched(file, path)
        assert file.asked[-1]["Range"] == f"bytes={CUT}-"


def test_a_full_disk_keeps_what_there_is(path, monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving(CONTENT) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (CUT, hard))
        try:
            with refused(OSError, f"{CUT:,} bytes are kept"):
                download.download(f"{file.address}/file", path, KNOWN, print)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        fetched(file, path)
        assert file.sent[1:] == [WHOLE - CUT]
        monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Free", (), {"free": 5}))
        with refused(OSError, f"{WHOLE:,}", "5"):
            download.download(f"{file.address}/file", path, KNOWN, print)
        assert list(path.parent.iterdir()) == []


WORDS, OTHER = b"+1 3:1 11:1\n-1 5:1\n", b"+1 3:1 11:1\n-1 6:1\n"  # of the same shape


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A server that publishes a small phishing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JDFL_DATA", raising=False)
    monkeypatch.setattr(download, "_WAITS", ())
    with serving(WORDS) as file:
        publish(monkeypatch, base=file.address, size=(2, 68), numbers="")
        yield file


@pytest.fixture
def place(tmp_path):
    return tmp_path / "home" / "jdfl" / "libsvm" / "phishing"


def publish(monkeypatch, **changes: object) -> None:
    """Change what is known of phishing."""
    monkeypatch.setitem(fetch.SOURCES, "phishing", replace(fetch.SOURCES["phishing"], **changes))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_what_is_downloaded_is_found_without_more(published, place, tmp_path, capsys, monkeypatch):
    assert main(["data", "fetch", "phishing"]) == 0
    assert "CC BY 4.0" in capsys.readouterr().out
    assert place.read_bytes() == WORDS
    np.testing.assert_array_equal(load("phishing").labels, [1, 0])
    assert (place.parents[1] / "SOURCES.txt").read_text().split("  ")[1:3] == [digest(WORDS), "libsvm/phishing"]
    assert main(["data", "fetch", "phishing"]) == 0
    assert "there already" in capsys.readouterr().out
    assert len(published.asked) == 1
    assert main(["data", "fetch", "phishing", "--to", str(tmp_path / "here")]) == 0
    assert f"JDFL_DATA={tmp_path / 'here'}" in capsys.readouterr().out
    monkeypatch.setenv("JDFL_DATA", str(tmp_path / "there"))
    assert main(["data", "fetch", "phishing", "--json"]) == 0
    assert (tmp_path / "there" / "libsvm" / "phishing").is_file()


def test_what_is_not_the_data_set_is_kept_aside_with_both_digests(published, place, capsys, monkeypatch):
    kept = place.with_name("phishing.refused")
    for content in (b"+1 3:1\n", b"what is this\n", b""):
        published.content = content
        assert main(["data", "fetch", "phishing"]) == 2
        assert str(kept) in capsys.readouterr().err
        assert list(kept.parent.iterdir()) == [kept]
        assert kept.read_bytes() == content
    published.content = OTHER
    publish(monkeypatch, files={"phishing": digest(WORDS)})
    assert main(["data", "fetch", "phishing"]) == 2
    assert set(re.findall(r"[0-9a-f]{64}", capsys.readouterr().err)) == {digest(WORDS), digest(OTHER)}
    assert list(kept.parent.iterdir()) == [kept]
    place.write_bytes(WORDS)
    with datasets.looked_for_in(place.parents[1]):
        found = load("phishing")
    place.unlink()
    publish(monkeypatch, files={"phishing": ""}, numbers=fetch._digest(found.features, found.labels))
    assert main(["data", "fetch", "phishing"]) == 2  # by its numbers alone
    published.content = WORDS.replace(b"\n", b"\r\n")
    assert main(["data", "fetch", "phishing"]) == 0


def test_without_a_known_hash_the_first_download_decides(published, place, capsys):
    assert main(["data", "fetch", "phishing"]) == 0
    place.unlink()
    published.content = OTHER
    assert main(["data", "fetch", "phishing"]) == 2
    err = capsys.readouterr().err
    assert {digest(WORDS), digest(OTHER)} == set(re.findall(r"[0-9a-f]{64}", err))
    assert "SOURCES.txt" in err
    assert not place.exists()
    published.content = WORDS
    assert main(["data", "fetch", "phishing"]) == 0
    assert place.read_bytes() == WORDS


@pytest.mark.parametrize("pinned", [True, False])
def test_what_is_there_and_another_file_is_kept_with_a_warning(published, place, monkeypatch, pinned):
    if pinned:
        publish(monkeypatch, files={"phishing": digest(WORDS)})
    assert main(["data", "fetch", "phishing"]) == 0
    place.write_bytes(OTHER)
    with pytest.warns(UserWarning, match=f"{digest(OTHER)}.*{digest(WORDS)}"):
        fetch.fetch("phishing")
    assert place.read_bytes() == OTHER
    assert len(published.asked) == 1


def test_a_kill_before_the_check_does_not_spare_it(published, place, capsys):
    place.parent.mkdir(parents=True)
    place.write_bytes(b"+1 3:1\n")  # as it came, and nothing in SOURCES.txt
    place.with_name("phishing.partial.json").write_text("{}")
    assert main(["data", "fetch", "phishing"]) == 2
    assert str(place) in capsys.readouterr().err
    assert list(place.parent.iterdir()) == [place]


def test_what_cannot_be_downloaded_is_told(published, capsys, monkeypatch):
    publish(monkeypatch, base="http://127.0.0.1:1", files={"phishing": digest(WORDS)})  # without a network
    for words, told in (
        ("fetch phishing", "put it at"),
        ("fetch", "none. Known: qsar"),
        ("fetch nothing", "nothing"),
        ("fetch digits", "comes with scikit-learn"),
        ("fetch realsim_like", "generated"),
        ("fetch news20", "published nowhere"),
        ("burn", "burn"),
        ("list mnist", "nothing after"),
    ):
        assert main(["data", *words.split()]) == 2
        assert told in capsys.readouterr().err
    assert main(["data", "list"]) == 0  # which has all, with a licence and something pinned
    out = capsys.readouterr().out
    assert all(name in out for name in datasets.NAMES)
    for source in fetch.SOURCES.values():
        pins = [*filter(None, source.files.values()), *filter(None, [source.numbers])]
        assert source.licence
        assert all(re.fullmatch(r"[0-9a-f]{64}", pin) for pin in pins)
        assert source.numbers or len(pins) == len(source.files)


@pytest.mark.parametrize("file", [pytest.param("a9a", marks=pytest.mark.slow), "mushrooms"])
def test_pinned_files_hold_what_the_studies_read(data_dir, file):
    """The files that come with the studies have other labels and no spaces at the ends of lines."""
    labels = {b"-1": b"2", b"+1": b"1"} if file == "mushrooms" else {b"-1": b"-1", b"+1": b"+1"}
    with bz2.open(data_dir / "libsvm" / f"{file}.bz2") as lines:
        rows = [line.split() for line in lines]
    content = b"".join(b" ".join([labels[label], *numbers]) + b" \n" for label, *numbers in rows)
    assert digest(content) == fetch.SOURCES[file].files[file]
    found = load("phishing")
    assert fetch._digest(found.features, found.labels) == fetch.SOURCES["phishing"].numbers
