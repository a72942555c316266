"""Downloads are what they should be, or are kept aside."""

import bz2
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from jdfl.cli import main
from jdfl.problems import datasets, download, fetch, load
from tests.problems.serving import Published, serving

WORDS = b"+1 3:1 11:1\n-1 5:1\n"
OTHER = b"+1 3:1 11:1\n-1 6:1\n"  # of the same shape
HASH = re.compile(r"[0-9a-f]{64}")


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A server that publishes a small phishing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JDFL_DATA", raising=False)
    monkeypatch.setattr(download, "_WAITS", ())
    with serving(Published(WORDS)) as file:
        publish(monkeypatch, "phishing", base=file.address, size=(2, 68), numbers="")
        yield file


def publish(monkeypatch, name: str, **changes: object) -> None:
    """Change what is known of a dataset."""
    monkeypatch.setitem(fetch.SOURCES, name, replace(fetch.SOURCES[name], **changes))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_what_is_downloaded_is_found_without_more(published, tmp_path, capsys):
    assert main(["data", "fetch", "phishing"]) == 0
    assert "CC BY 4.0" in capsys.readouterr().out
    place = tmp_path / "home" / "jdfl"
    assert (place / "libsvm" / "phishing").read_bytes() == WORDS
    np.testing.assert_array_equal(load("phishing").labels, [1, 0])
    note = (place / "SOURCES.txt").read_text()
    assert "libsvm/phishing" in note
    assert note.split("  ")[1] == digest(WORDS)
    assert main(["data", "fetch", "phishing"]) == 0
    assert "there already" in capsys.readouterr().out
    assert len(published.asked) == 1


def test_it_goes_where_it_is_told_to(published, tmp_path, capsys, monkeypatch):
    assert main(["data", "fetch", "phishing", "--to", str(tmp_path / "here")]) == 0
    assert f"JDFL_DATA={tmp_path / 'here'}" in capsys.readouterr().out
    monkeypatch.setenv("JDFL_DATA", str(tmp_path / "there"))
    assert main(["data", "fetch", "phishing", "--json"]) == 0
    assert (tmp_path / "there" / "libsvm" / "phishing").is_file()


def test_what_is_not_the_data_set_is_kept_aside(published, tmp_path, capsys):
    kept = tmp_path / "home" / "jdfl" / "libsvm" / "phishing.refused"
    for content in (b"+1 3:1\n", b"what is this\n", b""):
        published.content = content
        assert main(["data", "fetch", "phishing"]) == 2
        assert str(kept) in capsys.readouterr().err
        assert list(kept.parent.iterdir()) == [kept]
        assert kept.read_bytes() == content
    published.content = WORDS
    assert main(["data", "fetch", "phishing"]) == 0


def test_a_file_of_the_same_shape_is_refused_with_both_digests(published, tmp_path, capsys, monkeypatch):
    content = b"".join(b"%d %d:1 112:1\n" % (1 + k % 2, 1 + k % 111) for k in range(8_124))
    published.content = content
    publish(monkeypatch, "mushrooms", base=published.address)
    assert main(["data", "fetch", "mushrooms"]) == 2
    err = capsys.readouterr().err
    assert digest(content) in err
    assert fetch.SOURCES["mushrooms"].files["mushrooms"] in err
    folder = tmp_path / "home" / "jdfl" / "libsvm"
    assert [one.name for one in folder.iterdir()] == ["mushrooms.refused"]
    publish(monkeypatch, "mushrooms", files={"mushrooms": ""})
    assert main(["data", "fetch", "mushrooms"]) == 0  # its shape would be right


def test_numbers_are_compared_where_no_file_is_known(published, tmp_path, capsys, monkeypatch):
    publish(monkeypatch, "phishing", numbers=numbers(WORDS, tmp_path))
    assert main(["data", "fetch", "phishing", "--to", str(tmp_path / "one")]) == 0
    published.content = WORDS.replace(b"\n", b"\r\n")  # the same numbers
    assert main(["data", "fetch", "phishing", "--to", str(tmp_path / "two")]) == 0
    published.content = OTHER
    assert main(["data", "fetch", "phishing", "--to", str(tmp_path / "three")]) == 2
    assert len(HASH.findall(capsys.readouterr().err)) == 2


def numbers(content: bytes, folder) -> str:
    """The digest of what is read from a phishing of this content."""
    (folder / "phishing").write_bytes(content)
    with datasets.looked_for_in(folder):
        found = load("phishing")
    (folder / "phishing").unlink()
    return fetch._digest(found.features, found.labels)


def test_without_a_known_hash_the_first_download_decides(published, tmp_path, capsys):
    assert main(["data", "fetch", "phishing"]) == 0
    place = tmp_path / "home" / "jdfl" / "libsvm" / "phishing"
    place.unlink()
    published.content = OTHER
    assert main(["data", "fetch", "phishing"]) == 2
    err = capsys.readouterr().err
    assert {digest(WORDS), digest(OTHER)} == set(HASH.findall(err))
    assert "SOURCES.txt" in err
    assert not place.exists()
    note = tmp_path / "home" / "jdfl" / "SOURCES.txt"
    note.write_text(f"{note.read_text()}2020-01-01  {digest(OTHER)}  libsvm/phishing  later\nsome other line\n")
    assert main(["data", "fetch", "phishing"]) == 2
    published.content = WORDS
    assert main(["data", "fetch", "phishing"]) == 0
    assert place.read_bytes() == WORDS


@pytest.mark.parametrize("pinned", [True, False])
def test_what_is_there_and_another_file_is_kept_with_a_warning(published, tmp_path, monkeypatch, pinned):
    if pinned:
        publish(monkeypatch, "phishing", files={"phishing": digest(WORDS)})
    assert main(["data", "fetch", "phishing"]) == 0
    place = tmp_path / "home" / "jdfl" / "libsvm" / "phishing"
    place.write_bytes(OTHER)
    with pytest.warns(UserWarning, match=f"{digest(OTHER)}.*{digest(WORDS)}"):
        fetch.fetch("phishing")
    assert place.read_bytes() == OTHER
    assert len(published.asked) == 1


def test_a_kill_before_the_check_does_not_spare_it(published, tmp_path, capsys):
    place = tmp_path / "home" / "jdfl" / "libsvm" / "phishing"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"+1 3:1\n")  # as it came, and nothing in SOURCES.txt
    place.with_name("phishing.partial.json").write_text("{}")
    assert main(["data", "fetch", "phishing"]) == 2
    assert str(place) in capsys.readouterr().err
    assert [one.name for one in place.parent.iterdir()] == ["phishing"]


def test_an_interruption_continues_and_says_where(published, tmp_path, capsys):
    published.content = b"".join(b"%+d %d:1\n" % (1 - 2 * (k % 2), 1 + k % 68) for k in range(20_000))
    published.cuts = [70_000]
    fetch.SOURCES["phishing"] = replace(fetch.SOURCES["phishing"], size=(20_000, 68))  # undone with the fixture's
    assert main(["data", "fetch", "phishing"]) == 2
    assert "continues" in capsys.readouterr().err
    assert main(["data", "fetch", "phishing"]) == 0
    assert "70,000" in capsys.readouterr().out
    assert sum(published.sent) == len(published.content)


def test_what_cannot_be_downloaded_is_told(published, capsys, monkeypatch):
    publish(monkeypatch, "phishing", base="http://127.0.0.1:1")  # without a network
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


def test_all_data_sets_are_listed_with_a_licence_and_something_pinned_each(capsys):
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in datasets.NAMES)
    assert set(fetch.SOURCES) <= set(datasets.NAMES)
    for source in fetch.SOURCES.values():
        assert source.licence
        pins = [*filter(None, source.files.values()), *filter(None, [source.numbers])]
        assert all(map(HASH.fullmatch, pins))
        assert source.numbers or len(pins) == len(source.files)


@pytest.mark.parametrize(
    "file", [pytest.param(name, marks=pytest.mark.slow) for name in ("a9a", "w8a")] + ["a9a.t", "mushrooms"]
)
def test_pinned_files_hold_what_the_studies_read(data_dir, file):
    """The files that come with the studies have other labels and no spaces at the ends of lines."""
    labels = {b"-1": b"2", b"+1": b"1"} if file == "mushrooms" else {b"-1": b"-1", b"+1": b"+1"}
    with bz2.open(data_dir / "libsvm" / f"{file}.bz2") as lines:
        rows = [line.split() for line in lines]
    content = b"".join(b" ".join([labels[label], *numbers]) + b" \n" for label, *numbers in rows)
    assert digest(content) == fetch.SOURCES[file.removesuffix(".t")].files[file]


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("name", ["phishing", pytest.param("qsar", marks=pytest.mark.slow)])
def test_pinned_numbers_are_those_that_the_studies_read(name):
    found = load(name)
    assert fetch._digest(found.features, found.labels) == fetch.SOURCES[name].numbers
