"""Downloads are what they should be, or leave nothing."""

import functools
import http.server
import threading
from dataclasses import replace

import numpy as np
import pytest

from jdfl.cli import main
from jdfl.problems import datasets, fetch, load

WORDS = b"+1 3:1 11:1\n-1 5:1\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A server that publishes a small phishing, and the folder it is served from."""
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "phishing").write_bytes(WORDS)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    source = replace(fetch.SOURCES["phishing"], base=f"http://127.0.0.1:{server.server_port}", size=(2, 68))
    monkeypatch.setitem(fetch.SOURCES, "phishing", source)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JDFL_DATA", raising=False)
    yield folder
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_is_downloaded_is_found_without_more(published, tmp_path, capsys):
    assert main(["data", "fetch", "phishing"]) == 0
    assert "CC BY 4.0" in capsys.readouterr().out
    place = tmp_path / "home" / "jdfl"
    assert (place / "libsvm" / "phishing").read_bytes() == WORDS
    np.testing.assert_array_equal(load("phishing").labels, [1, 0])
    note = (place / "SOURCES.txt").read_text()
    assert "libsvm/phishing" in note
    assert len(note.split("  ")[1]) == 64
    (published / "phishing").unlink()
    assert main(["data", "fetch", "phishing"]) == 0  # there already
    assert "there already" in capsys.readouterr().out


def test_it_goes_where_it_is_told_to(published, tmp_path, capsys, monkeypatch):
    assert main(["data", "fetch", "phishing", "--to", str(tmp_path / "here")]) == 0
    assert f"JDFL_DATA={tmp_path / 'here'}" in capsys.readouterr().out
    monkeypatch.setenv("JDFL_DATA", str(tmp_path / "there"))
    assert main(["data", "fetch", "phishing", "--json"]) == 0
    assert (tmp_path / "there" / "libsvm" / "phishing").is_file()


@pytest.mark.parametrize("content", [b"+1 3:1\n", b"what is this\n", b""])
def test_what_is_not_the_data_set_is_not_kept(published, tmp_path, capsys, content):
    (published / "phishing").write_bytes(content)
    assert main(["data", "fetch", "phishing"]) == 2
    assert "Expected" in capsys.readouterr().err
    assert not list((tmp_path / "home").rglob("phishing"))


def test_another_checksum_is_refused(published, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(fetch.SOURCES, "phishing", replace(fetch.SOURCES["phishing"], hashes=("md5:" + "0" * 32,)))
    assert main(["data", "fetch", "phishing"]) == 2
    assert not list((tmp_path / "home").rglob("phishing"))


def test_without_a_network_the_way_round_is_told(published, capsys, monkeypatch):
    nowhere = replace(fetch.SOURCES["phishing"], base="http://127.0.0.1:1")
    monkeypatch.setitem(fetch.SOURCES, "phishing", nowhere)
    assert main(["data", "fetch", "phishing"]) == 2
    err = capsys.readouterr().err
    assert "Could not download http://127.0.0.1:1/phishing" in err
    assert "put it at" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fetch"], "none. Known: qsar"),
        (["fetch", "nothing"], "nothing"),
        (["fetch", "digits"], "comes with scikit-learn"),
        (["fetch", "realsim_like"], "generated"),
        (["fetch", "news20"], "published nowhere"),
        (["burn"], "burn"),
        (["list", "mnist"], "nothing after"),
    ],
)
def test_what_cannot_be_downloaded_is_told(words, told, capsys):
    assert main(["data", *words]) == 2
    assert told in capsys.readouterr().err


def test_all_data_sets_are_listed(capsys):
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in datasets.NAMES)
    assert "generated" in out


def test_sources_are_data_sets_with_a_licence_each():
    assert set(fetch.SOURCES) <= set(datasets.NAMES)
    for source in fetch.SOURCES.values():
        assert source.licence
        assert len(source.hashes) in (0, len(source.files))
