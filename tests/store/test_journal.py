"""What a journal gives back: what was appended, bit for bit, up to the first byte that is not as it was written."""

import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jdfl.store import journal
from jdfl.store.journal import Journal, Position
from tests.store.journals import COLUMNS, HEAD, ORIGIN, A, entry, expected, held, positions, small, split

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
TYPES = st.lists(
    st.tuples(NAMES, st.sampled_from(["<i8", "<f8", "<f4"])), min_size=1, max_size=3, unique_by=lambda c: c[0]
)
TABLES = st.dictionaries(NAMES, TYPES.map(np.dtype), min_size=1, max_size=3)
STOPS = ["flush", "sync", "close", "none"]


@st.composite
def appends(draw: st.DrawFn) -> list[tuple[str, np.ndarray, str]]:
    """Rows for several tables by turns, of any bits, and what is done after each append."""
    tables, made = draw(TABLES), []
    for name in draw(st.lists(st.sampled_from(sorted(tables)), max_size=7)):
        size = tables[name].itemsize * draw(st.integers(0, 4))
        rows = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), tables[name])
        made.append((name, rows, draw(st.sampled_from(STOPS))))
    return made


def written(path: Path, given: list[tuple[str, np.ndarray, str]]) -> Journal:
    made = Journal.create(path, ORIGIN)
    for table, rows, then in given:
        made.append(table, rows)
        if then != "none":
            made.sync() if then == "sync" else made.flush()
        if then == "close":
            made.close()
            made = Journal.resume(path, made.position)
    made.flush()
    made.close()
    return made


@given(given=appends())
def test_what_was_appended_comes_back_bit_for_bit(given: list[tuple[str, np.ndarray, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = written(Path(folder) / "journal", given)
        found = journal.read(Path(folder) / "journal")
    want: dict[str, tuple[np.dtype, bytes]] = {}
    for table, rows, _ in given:
        want[table] = rows.dtype, want.get(table, (rows.dtype, b""))[1] + rows.tobytes()
    assert held(found.tables) == want
    assert (found.origin, found.end, found.damage) == (ORIGIN, made.position, "")
    assert found.rows("no such table " * 2).shape == (0,)


def as_at_once(given: list[tuple[str, np.ndarray, str]]) -> bool:
    """Whether the bytes are those that are written without a stop."""
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder) / "stops", given)
        written(Path(folder) / "once", [(table, rows, "none") for table, rows, _ in given])
        return (Path(folder) / "stops").read_bytes() == (Path(folder) / "once").read_bytes()


@given(given=appends())
def test_the_bytes_are_the_same_wherever_writing_stopped(given: list[tuple[str, np.ndarray, str]]) -> None:
    assert as_at_once(given)


def test_a_writer_that_forgets_its_tables_would_write_other_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [("a", np.ones(1, A), "close"), ("a", np.ones(1, A), "flush")]
    assert as_at_once(given)
    monkeypatch.setattr(Journal, "resume", lambda path, at: Journal(path, at, {}))
    assert not as_at_once(given)


def test_every_prefix_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    small(path).close()
    file = path.read_bytes()
    (first, entries), places = split(file), positions(file)
    assert len(entries) == 6
    for size in reversed(range(len(file) + 1)):
        os.truncate(path, size)
        if size < len(first):
            with pytest.raises(ValueError, match=str(path)):
                journal.read(path)
            continue
        found = journal.read(path)
        whole = max(place for place in places if place.offset <= size)
        assert (found.origin, found.end) == (ORIGIN, whole)
        assert held(found.tables) == expected(entries[: whole.number])
        assert bool(found.damage) == (size > whole.offset)


def noticed(path: Path, entries: list[bytes], whole: int) -> bool:
    """Whether a journal that was changed in entry `whole` is none, or is read up to there, and told to be damaged."""
    try:
        found = journal.read(path)
    except ValueError:
        return whole == 0
    return found.end.number == whole and bool(found.damage) and held(found.tables) == expected(entries[:whole])


def unnoticed(path: Path) -> list[tuple[int, int]]:
    """Every byte of a journal, and what of it can be flipped so that it is read as if it were whole."""
    small(path.with_name("whole")).close()
    file = path.with_name("whole").read_bytes()
    entries, ends = split(file)[1], [place.offset for place in positions(file)]
    path.write_bytes(file)
    found = []
    with path.open("r+b", buffering=0) as changed:  # in place, which is fast
        for at, byte in enumerate(file):
            for flip in (1, 2, 0x20, 0x80, 0xFF):
                os.pwrite(changed.fileno(), bytes([byte ^ flip]), at)
                if not noticed(path, entries, max(0, sum(end <= at for end in ends) - 1)):
                    found.append((at, flip))
            os.pwrite(changed.fileno(), bytes([byte]), at)
    return found


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    assert unnoticed(tmp_path / "journal") == []


class Anything(bytes):
    """A digest that is never another one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def test_a_reader_without_the_digest_would_give_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_digest", lambda before, table, number, content: Anything(before))
    assert unnoticed(tmp_path / "journal")


def rearranged(entries: list[bytes], *foreign: list[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """What is not as it was written although every entry is, each with the number of entries before that."""
    for one, two in combinations(range(len(entries)), 2):
        order = list(entries)
        order[one], order[two] = order[two], order[one]
        yield order, one
    for place in range(len(entries)):
        yield entries[: place + 1] + entries[place:], place + 1
        if place < len(entries) - 1:  # without the last it is a whole journal, which only `until` refuses
            yield entries[:place] + entries[place + 1 :], place
        for other in foreign:
            if other[place] != entries[place]:
                yield entries[:place] + other[place:], place
                yield [*entries[:place], other[place], *entries[place + 1 :]], place


def all_noticed(folder: Path) -> bool:
    """Whether every other order of the entries, and every foreign entry, is noticed."""
    small(folder / "other origin", {**ORIGIN, "key": "l"}).close()
    small(folder / "other rows", {**ORIGIN, "key": "l"}, first=2).close()
    small(folder / "journal").close()
    foreign = [split((folder / name).read_bytes())[1] for name in ("other origin", "other rows")]
    path = folder / "journal"
    first, entries = split(path.read_bytes())
    for order, whole in rearranged(entries, *foreign):
        path.write_bytes(first + b"".join(order))
        if not noticed(path, entries, whole):
            return False
    return True


def test_entries_that_were_swapped_removed_doubled_or_are_of_another_journal_are_noticed(tmp_path: Path) -> None:
    assert all_noticed(tmp_path)


def test_digests_of_the_entries_alone_would_not_notice_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = journal._digest
    monkeypatch.setattr(journal, "_digest", lambda before, table, number, content: real(b"", table, number, content))
    assert not all_noticed(tmp_path)


def test_the_end_of_a_run_with_another_beginning_is_noticed(tmp_path: Path) -> None:
    small(tmp_path / "journal").close()
    small(tmp_path / "other", first=2).close()
    (first, entries), (_, others) = (split((tmp_path / name).read_bytes()) for name in ("journal", "other"))
    (tmp_path / "journal").write_bytes(first + b"".join(entries[:2] + others[2:]))
    assert noticed(tmp_path / "journal", entries, 2)


def test_it_is_read_until_any_position_that_it_had_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    end = small(path).position
    small(tmp_path / "other", {**ORIGIN, "key": "l"}).close()
    places = positions(path.read_bytes())
    assert places[-1] == end
    for place in places:
        found = journal.read(path, place)
        assert (found.end, held(found.tables)) == (place, expected(split(path.read_bytes())[1][: place.number]))
        others = [place._replace(digest=digest) for digest in ("", "00" * 16, place.digest.upper() + " ")]
        others += [place._replace(number=place.number + by) for by in (-1, 1)]
        others += [place._replace(offset=offset) for offset in (-1, 0, place.offset - 1, place.offset + 1, 2**70)]
        others += [positions((tmp_path / "other").read_bytes())[place.number]]
        for wrong in others:
            with pytest.raises(ValueError):
                journal.read(path, wrong)
            with pytest.raises(ValueError):
                Journal.resume(path, wrong)


def test_what_stands_after_a_position_may_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    small(path).close()
    file, place = path.read_bytes(), positions(path.read_bytes())[3]
    for after in (b"", b"x", file[place.offset :][::-1]):
        path.write_bytes(file[: place.offset] + after)
        assert journal.read(path, place).end == place
        with pytest.raises(ValueError):
            journal.read(path, positions(file)[4])


COLUMNS_THAT_ARE_NONE: dict[str, bytes] = {
    "no JSON": b"[",
    "a number": b"3",
    "no columns": json.dumps(["c", []]).encode(),
    "one name twice": json.dumps(["c", [["x", "<i8"], ["x", "<f8"]]]).encode(),
    "parts missing": json.dumps(["c", [["x"]]]).encode(),
    "nested": b"[" * 50_000,
} | {
    kind: json.dumps(["c", [["x", kind]]]).encode() for kind in ("|O", "<U9", "<i4", "<f2", ">f8", "|V3", "no", "<c16")
}


def damaged(path: Path, make: Callable[[Position], bytes]) -> None:
    """What comes after a whole journal is told to be damaged, and takes no memory."""
    end = small(path).position
    before, file = journal.read(path), path.read_bytes()
    path.write_bytes(file + make(end))
    tracemalloc.start()
    found = journal.read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10_000_000
    assert found.damage
    assert (found.end, held(found.tables)) == (end, held(before.tables))


@pytest.mark.parametrize("name", COLUMNS_THAT_ARE_NONE)
def test_columns_that_no_writer_makes_are_damage(tmp_path: Path, name: str) -> None:
    damaged(tmp_path / "journal", lambda end: entry(end, COLUMNS + 2, COLUMNS_THAT_ARE_NONE[name]))


@pytest.mark.parametrize("table", [0, 1, 7])
def test_rows_that_no_writer_makes_are_damage(tmp_path: Path, table: int) -> None:
    damaged(tmp_path / "journal", lambda end: entry(end, table, b"123"))


@pytest.mark.parametrize("size", [2**20, 2**30, 2**31, 2**32 - 1])
def test_lengths_that_are_not_there_are_damage(tmp_path: Path, size: int) -> None:
    damaged(tmp_path / "journal", lambda end: HEAD.pack(size, 0, end.number, bytes(16)) + bytes(100))


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"{}\n", b"3\n", b'"text"\n', b"\xff\n", b"[" * 50_000 + b"\n", b"null\n"]
)
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "journal").write_bytes(line)
    with pytest.raises(ValueError, match=str(tmp_path / "journal")):
        journal.read(tmp_path / "journal")


def test_another_format_and_no_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    small(path).close()
    path.write_bytes(path.read_bytes().replace(b'"jdfl journal": 1', b'"jdfl journal": 2'))
    with pytest.raises(ValueError, match=r"format 1.*got 2"):
        journal.read(path)
    for missing in (tmp_path / "none", tmp_path / "none" / "journal", path / "journal"):
        with pytest.raises(FileNotFoundError, match=str(missing)):
            journal.read(missing)
