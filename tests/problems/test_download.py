"""Downloads continue after an interruption, and end as the file that was published or are kept aside."""

import bz2
import hashlib
import io
import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import requests
import urllib3

from jdfl.cli import main
from jdfl.problems import datasets, fetch, load, places
from tests.refused import refused

WORDS, OTHER = b"+1 3:1 11:1\n-1 5:1\n", b"+1 3:1 11:1\n-1 6:1\n"  # of the same shape


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Published:
    """What a server answers in the place of `requests.get`, how, and what was asked, by request."""

    content: bytes
    status: int = 200
    continues: bool = True  # whether it knows Range
    cut: int | None = None  # bytes of the next body, after which the connection is lost
    asked: list[dict[str, str]] = field(default_factory=list)

    def __call__(self, address: str, headers: dict[str, str], **_: object) -> requests.Response:
        self.asked.append(headers)
        asked, answer = re.fullmatch(r"bytes=(\d+)-", headers.get("Range", "")), requests.Response()
        start = int(asked[1]) if asked and self.continues else 0
        answer.status_code = self.status if not start else 206 if start < len(self.content) else 416
        if start:
            answer.headers["Content-Range"] = f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"
        body, self.cut = self.content[start:][: self.cut], None
        length = {"content-length": str(len(self.content) - start)}
        answer.raw = urllib3.HTTPResponse(io.BytesIO(body), headers=length, preload_content=False)
        return answer


def publish(monkeypatch, **changes: object) -> None:
    """Change what is known of phishing."""
    monkeypatch.setitem(fetch.SOURCES, "phishing", replace(fetch.SOURCES["phishing"], **changes))


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small phishing is published."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JDFL_DATA", raising=False)
    publish(monkeypatch, files={"phishing": digest(WORDS)}, numbers="")
    monkeypatch.setattr(requests, "get", file := Published(WORDS))
    return file


@pytest.fixture
def place(tmp_path):
    return tmp_path / "home" / "jdfl" / "libsvm" / "phishing"


def test_what_is_downloaded_is_found_without_more(published, place, tmp_path, capsys, monkeypatch):
    assert main(["data", "fetch", "phishing"]) == 0
    assert "CC BY 4.0" in capsys.readouterr().out
    assert place.read_bytes() == WORDS
    np.testing.assert_array_equal(load("phishing").labels, [1, 0])
    assert main(["data", "fetch", "phishing"]) == 0
    assert "there already" in capsys.readouterr().out
    assert [one["Accept-Encoding"] for one in published.asked] == ["identity"]
    monkeypatch.setenv("JDFL_DATA", str(tmp_path / "there"))
    assert main(["data", "fetch", "phishing", "--json"]) == 0
    assert (tmp_path / "there" / "libsvm" / "phishing").is_file()


def test_an_interrupted_download_continues_or_begins_again_where_the_server_cannot(published, place):
    partial = place.with_name("phishing.partial")
    for published.continues in (True, False):
        published.cut = 9
        with refused(OSError, str(place), str(partial)):
            fetch.fetch("phishing")
        assert partial.read_bytes() == WORDS[:9]
        assert not place.exists()
        fetch.fetch("phishing")
        assert published.asked[-1]["Range"] == "bytes=9-"
        assert place.read_bytes() == WORDS
        assert not partial.exists()
        place.unlink()
    partial.write_bytes(WORDS)  # it was killed before the last step
    published.continues = True
    fetch.fetch("phishing")
    assert place.read_bytes() == WORDS
    place.unlink()
    for published.status in (404, 503):
        with refused(OSError, str(published.status), str(place)):
            fetch.fetch("phishing")


def test_what_is_not_the_data_set_is_kept_aside_with_both_digests(published, place, capsys, monkeypatch):
    kept = place.with_name("phishing.refused")
    published.content = OTHER
    assert main(["data", "fetch", "phishing"]) == 2
    assert set(re.findall(r"[0-9a-f]{64}", capsys.readouterr().err)) == {digest(WORDS), digest(OTHER)}
    assert list(kept.parent.iterdir()) == [kept]
    place.write_bytes(OTHER)  # what was there is kept
    assert main(["data", "fetch", "phishing"]) == 2
    assert set(re.findall(r"[0-9a-f]{64}", capsys.readouterr().err)) == {digest(WORDS), digest(OTHER)}
    assert place.read_bytes() == OTHER
    place.write_bytes(WORDS)
    found = datasets.unscaled("phishing", root=place.parents[1])
    place.unlink()
    publish(monkeypatch, files={"phishing": ""}, numbers=digest(found.features.tobytes() + found.labels.tobytes()))
    for published.content in (OTHER, b"+1 3:1\n", b""):
        assert main(["data", "fetch", "phishing"]) == 2  # by its numbers alone
        assert kept.read_bytes() == published.content
        assert not place.exists()
    published.content = WORDS.replace(b"\n", b"\r\n")
    assert main(["data", "fetch", "phishing"]) == 0


def test_what_cannot_be_downloaded_is_told(published, capsys):
    published.status = 503
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
