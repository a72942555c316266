"""Downloads continue, begin again where they must, and end as the file that was published or are kept aside."""

import bz2
import fcntl
import hashlib
import io
import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import requests
import urllib3

from jdfl.cli import main
from jdfl.problems import download, fetch, load, places
from jdfl.problems.download import Known
from tests.refused import refused

CONTENT = np.random.default_rng(0).bytes(300_000)
KNOWN = Known(hashlib.sha256(CONTENT).hexdigest(), "as the test says")
CUT, WHOLE = 100_000, len(CONTENT)
ADDRESS = "http://jdfl.invalid/file"


@dataclass
class Published:
    """What a server answers in the place of `requests.get`, how, and what was asked and sent, by request."""

    content: bytes
    continues: bool = True  # whether it knows Range
    length: bool = True  # whether it says the length beforehand
    cuts: list[int] = field(default_factory=list)  # bytes of the next bodies, after which the connection is lost
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # statuses and headers of the next answers
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def __call__(self, address: str, headers: dict[str, str], **_: object) -> requests.Response:
        self.asked.append(headers)
        asked, total = re.fullmatch(r"bytes=(\d+)-", headers.get("Range", "")), len(self.content)
        start = int(asked[1]) if asked and self.continues else 0
        body, answer = self.content[start:], requests.Response()
        answer.status_code, answer.reason = 206 if start else 200, "as told"
        if start:
            answer.headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
        if self.length:
            answer.headers["Content-Length"] = str(len(body))
        if self.answers:
            answer.status_code, other = self.answers.pop(0)
            answer.headers.update(other)
        body = body[: self.cuts.pop(0) if self.cuts else None]
        self.sent.append(len(body))
        answer.raw = urllib3.HTTPResponse(io.BytesIO(body), preload_content=False)
        return answer


@pytest.fixture
def serve(monkeypatch):
    """A function that publishes something in the place of everything else."""
    monkeypatch.setattr(download, "_WAITS", (0.0, 0.0))

    def published(content: bytes = CONTENT, **how: object) -> Published:
        monkeypatch.setattr(download.requests, "get", file := Published(content, **how))
        return file

    return published


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "file"


def fetched(file: Published, path, known: Known | None = KNOWN) -> str:
    """What was told of the download."""
    told: list[str] = []
    download.download(ADDRESS, path, known, told.append)
    assert path.read_bytes() == file.content
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # nothing else is left
    path.unlink()
    return "\n".join(told)


def interrupted(file: Published, path) -> None:
    """Download the first CUT bytes, with all tries."""
    file.cuts = [CUT, 0, 0]
    with refused(OSError, f"{CUT:,}"):
        download.download(ADDRESS, path, KNOWN, print)
    assert not path.exists()
    assert path.with_name("file.partial").read_bytes() == file.content[:CUT]
    file.asked.clear()
    file.sent.clear()


def test_only_what_is_missing_is_transferred(serve, path):
    file = serve()
    interrupted(file, path)
    assert f"continuing after {CUT:,}" in fetched(file, path)
    assert [one["Range"] for one in file.asked] == [f"bytes={CUT}-"]
    assert file.sent == [WHOLE - CUT]
    assert file.asked[0]["Accept-Encoding"] == "identity"
    file = serve(cuts=[50_000] * 5)  # in the same call, as long as the file grows
    fetched(file, path)
    assert (len(file.sent), sum(file.sent)) == (6, WHOLE)
    interrupted(file, path)
    path.with_name("file.partial").write_bytes(CONTENT)  # killed before the file had its name
    fetched(file, path)
    assert file.sent == []


def test_it_begins_again_and_says_so(serve, path):
    for continues, answer in (
        (False, None),
        (True, (416, {"Content-Length": "0"})),
        (True, (206, {"Content-Range": f"bytes {CUT - 9}-{WHOLE - 10}/{WHOLE}"})),
    ):
        file = serve()
        interrupted(file, path)
        file.continues, file.answers = continues, [answer] if answer else []
        assert "beginning again" in fetched(file, path)
        assert file.sent[-1] == WHOLE
        assert len(file.sent) == (2 if answer else 1)
    file = serve()
    interrupted(file, path)
    fetched(file, path, None)  # without a known hash
    assert ["Range" in one for one in file.asked] == [False]


def test_what_is_not_the_file_is_no_file_and_says_what_to_do(serve, path):
    fetched(serve(length=False), path)  # of unknown length
    for status, tries in ((404, 1), (206, 1), (503, 3)):
        file = serve(answers=[(status, {})] * 9)
        with refused(OSError, str(status), str(path)):
            download.download(ADDRESS, path, KNOWN, print)
        assert len(file.sent) == tries
        assert list(path.parent.iterdir()) == []
        file.answers = [(503, {})]  # a passing one
        fetched(file, path)
    with path.with_name("file.partial").open("ab") as partial, refused(BlockingIOError, str(path)):  # under way
        fcntl.flock(partial, fcntl.LOCK_EX)
        download.download(ADDRESS, path, KNOWN, print)


WORDS, OTHER = b"+1 3:1 11:1\n-1 5:1\n", b"+1 3:1 11:1\n-1 6:1\n"  # of the same shape


@pytest.fixture
def published(serve, tmp_path, monkeypatch):
    """A small phishing is published."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JDFL_DATA", raising=False)
    publish(monkeypatch, size=(2, 68), numbers="")
    return serve(WORDS)


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
    monkeypatch.setenv("JDFL_DATA", str(tmp_path / "there"))
    assert main(["data", "fetch", "phishing", "--json"]) == 0
    assert (tmp_path / "there" / "libsvm" / "phishing").is_file()


def test_what_is_not_the_data_set_is_kept_aside_with_both_digests(published, place, capsys, monkeypatch):
    kept = place.with_name("phishing.refused")
    for content in (b"+1 3:1\n", b""):
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
    with places.looked_for_in(place.parents[1]):
        found = load("phishing")
    place.unlink()
    publish(monkeypatch, files={"phishing": ""}, numbers=digest(found.features.tobytes() + found.labels.tobytes()))
    assert main(["data", "fetch", "phishing"]) == 2  # by its numbers alone
    published.content = WORDS.replace(b"\n", b"\r\n")
    assert main(["data", "fetch", "phishing"]) == 0


def test_without_a_known_hash_the_first_download_decides(published, place, capsys):
    assert main(["data", "fetch", "phishing"]) == 0
    place.write_bytes(OTHER)
    with pytest.warns(UserWarning, match=f"{digest(OTHER)}.*{digest(WORDS)}"):
        fetch.fetch("phishing")  # what is there and another file is kept
    assert place.read_bytes() == OTHER
    assert len(published.asked) == 1
    place.unlink()
    published.content = OTHER
    assert main(["data", "fetch", "phishing"]) == 2
    err = capsys.readouterr().err
    assert {digest(WORDS), digest(OTHER)} == set(re.findall(r"[0-9a-f]{64}", err))
    assert "SOURCES.txt" in err
    assert not place.exists()


def test_what_cannot_be_downloaded_is_told(published, capsys, monkeypatch):
    publish(monkeypatch, files={"phishing": digest(WORDS)})
    published.answers = [(503, {})] * 9
    for words, told in (
        ("fetch phishing", "put it at"),
        ("fetch", "none. Known: qsar"),
        ("fetch nothing", "nothing"),
        ("fetch digits", "comes with scikit-learn"),
        ("fetch epsilon_like", "is generated"),
        ("burn", "burn"),
    ):
        assert main(["data", *words.split()]) == 2
        assert told in capsys.readouterr().err
    assert main(["data", "list"]) == 0  # which has all, with a licence and something pinned
    out = capsys.readouterr().out
    assert all(name in out for name in places.NAMES)
    for source in fetch.SOURCES.values():
        pins = [*filter(None, source.files.values()), *filter(None, [source.numbers])]
        assert source.licence
        assert all(re.fullmatch(r"[0-9a-f]{64}", pin) for pin in pins)
        assert source.numbers or len(pins) == len(source.files)


def test_a_pinned_file_holds_what_the_studies_read(data_dir):
    """The file that comes with the studies has other labels and no spaces at the ends of lines."""
    with bz2.open(data_dir / "libsvm" / "mushrooms.bz2") as lines:
        rows = [line.split() for line in lines]
    labels = {b"-1": b"2", b"+1": b"1"}
    content = b"".join(b" ".join([labels[label], *numbers]) + b" \n" for label, *numbers in rows)
    assert digest(content) == fetch.SOURCES["mushrooms"].files["mushrooms"]
