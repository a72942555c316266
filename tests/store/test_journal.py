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
from tests.refused import refused
from tests.store.journals import COLUMNS, HEAD, ORIGIN, entry, expected, held, positions, small, split

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
def test_what_was_appended_comes_back_bit_for_bit_wherever_writing_stopped(given):
    with tempfile.TemporaryDirectory() as folder:
        made = written(Path(folder) / "journal", given)
        found = journal.read(Path(folder) / "journal")
        written(Path(folder) / "once", [(table, rows, "none") for table, rows, _ in given])
        assert (Path(folder) / "journal").read_bytes() == (Path(folder) / "once").read_bytes()
    want: dict[str, tuple[np.dtype, bytes]] = {}
    for table, rows, _ in given:
        want[table] = rows.dtype, want.get(table, (rows.dtype, b""))[1] + rows.tobytes()
    assert held(found.tables) == want
    assert (found.origin, found.end, found.damage) == (ORIGIN, made.position, "")
    assert found.rows("no such table " * 2).shape == (0,)


def test_every_prefix_is_read_as_far_as_it_is_whole(tmp_path):
    path = tmp_path / "journal"
    small(path).close()
    file = path.read_bytes()
    (first, entries), places = split(file), positions(file)
    assert len(entries) == 6
    for size in reversed(range(len(file) + 1)):
        os.truncate(path, size)
        if size < len(first):
            with refused(str(path)):
                journal.read(path)
            continue
        found = journal.read(path)
        whole = max(place for place in places if place.offset <= size)
        assert (found.origin, found.end) == (ORIGIN, whole)
        assert held(found.tables) == expected(entries[: whole.number])
        assert bool(found.damage) == (size > whole.offset)


def noticed(path: Path, entries: list[bytes], whole: int) -> bool:
    """Whether a journal that was changed in entry `whole` is none, or is read up to there, and said to be damaged."""
    try:
        found = journal.read(path)
    except ValueError:
        return whole == 0
    return found.end.number == whole and bool(found.damage) and held(found.tables) == expected(entries[:whole])


def test_every_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "journal"
    small(path).close()
    file = path.read_bytes()
    entries, ends = split(file)[1], [place.offset for place in positions(file)]
    with path.open("r+b", buffering=0) as changed:  # in place, which is fast
        for at, byte in enumerate(file):
            for flip in (1, 0x20, 0x80):
                os.pwrite(changed.fileno(), bytes([byte ^ flip]), at)
                assert noticed(path, entries, max(0, sum(end <= at for end in ends) - 1)), (at, flip)
            os.pwrite(changed.fileno(), bytes([byte]), at)


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


def test_entries_that_were_swapped_removed_doubled_or_are_of_another_journal_are_noticed(tmp_path):
    path, foreign = tmp_path / "journal", []
    for place, (origin, first) in enumerate([({**ORIGIN, "key": "l"}, 1), ({**ORIGIN, "key": "l"}, 2), (ORIGIN, 2)]):
        small(tmp_path / str(place), origin, first).close()
        foreign.append(split((tmp_path / str(place)).read_bytes())[1])
    small(path).close()
    begin, entries = split(path.read_bytes())
    for order, whole in [*rearranged(entries, *foreign[:2]), (entries[:2] + foreign[2][2:], 2)]:
        path.write_bytes(begin + b"".join(order))
        assert noticed(path, entries, whole)


def test_it_is_read_until_any_position_that_it_had_and_no_other(tmp_path):
    path = tmp_path / "journal"
    end = small(path).position
    small(tmp_path / "other", {**ORIGIN, "key": "l"}).close()
    file, places = path.read_bytes(), positions(path.read_bytes())
    assert places[-1] == end
    for place in places:
        found = journal.read(path, place)
        assert (found.end, held(found.tables)) == (place, expected(split(file)[1][: place.number]))
        others = [place._replace(digest=digest) for digest in ("", "00" * 16, place.digest.upper() + " ")]
        others += [place._replace(number=place.number + by) for by in (-1, 1)]
        others += [place._replace(offset=offset) for offset in (-1, 0, place.offset - 1, place.offset + 1, 2**70)]
        others += [positions((tmp_path / "other").read_bytes())[place.number]]
        for wrong in others:
            with pytest.raises(ValueError):
                journal.read(path, wrong)
            with pytest.raises(ValueError):
                Journal.resume(path, wrong)
        path.write_bytes(file[: place.offset] + b"x")  # what stands after a position may be damaged
        assert journal.read(path, place).end == place
        path.write_bytes(file)


DAMAGE: dict[str, Callable[[Position], bytes]] = {
    **{
        content[:30].decode(): lambda end, content=content: entry(end, COLUMNS + 2, content)
        for content in (
            *(b"3", b'["c", []]', b'["c", [["x", "<i8"], ["x", "<f8"]]]', b'["c", [["x"]]]', b"[" * 50_000),
            *(json.dumps(["c", [["x", kind]]]).encode() for kind in ("|O", "<U9", "<i4", ">f8", "no")),
        )
    },
    **{f"rows of {table}": lambda end, table=table: entry(end, table, b"123") for table in (0, 1, 7)},
    "long": lambda end: HEAD.pack(2**32 - 1, 0, end.number, bytes(16)) + bytes(100),
}


def test_what_no_writer_makes_is_damage_and_takes_no_memory(tmp_path):
    path = tmp_path / "journal"
    end = small(path).position
    before, file = journal.read(path), path.read_bytes()
    for name, make in DAMAGE.items():
        path.write_bytes(file + make(end))
        tracemalloc.start()
        found = journal.read(path)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 10_000_000, name
        assert found.damage, name
        assert (found.end, held(found.tables)) == (end, held(before.tables)), name


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "journal"
    small(path).close()
    other = path.read_bytes().replace(b'"jdfl journal": 1', b'"jdfl journal": 2')
    for line in (b"", b"\n", b"{}\n", b"3\n", b'"text"\n', b"\xff\n", b"[" * 50_000 + b"\n", b"null\n", other):
        path.write_bytes(line)
        with refused(str(path)):
            journal.read(path)
    for missing in (tmp_path / "none", tmp_path / "none" / "journal", path / "journal"):
        with pytest.raises(FileNotFoundError, match=str(missing)):
            journal.read(missing)
