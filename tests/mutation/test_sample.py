"""What is mutated, and how a sample is counted; the mutants themselves are tried by `python -m tests.mutation`."""

from pathlib import Path

import pytest

from tests.mutants import mutants, planted
from tests.mutation.left_out import inside, left_out
from tests.mutation.report import Mutant, wilson, write
from tests.mutation.table import TABLE

TESTS = Path(__file__).parents[1]
SOURCE = '''"""One - two."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    hidden = 1
Alias = int | str
__all__ = ["a"] + ["b"]
number = 2 | 4 - 1
@wraps(5)
def f(x: int | None = 6, *, y: "int" = 7) -> int | None:
    """Says 8 - 1."""
    z: int | str = x - 9
    café = "é"; w = 10
    if x > 11:
        raise ValueError(f"got {x - 12}") if x < 13 else KeyError(14)
    return 15 - z  # pragma: no mutate
'''


def found(what: str, times: int = 1) -> bool:
    """Whether the part of SOURCE is left out."""
    lines = SOURCE.split("\n")
    line = next(i for i, text in enumerate(lines) if what in text)
    column = -1
    for _ in range(times):
        column = lines[line].index(what, column + 1)
    return inside(left_out(SOURCE), SOURCE, (line + 1, column), (line + 1, column + len(what)))


def test_what_no_test_could_see_is_left_out():
    names = ("1", "| str", "+", "5", "| None", "12", "15", "- z")
    assert {name: found(name) for name in names} == dict.fromkeys(names, True)
    assert found("| None", 2)
    assert found("8 - 1")


def test_everything_else_is_mutated():
    names = ("2 | 4", "6", "7", "- 9", "10", "11", "13", "14")
    assert {name: found(name) for name in names} == dict.fromkeys(names, False)


def test_the_interval_is_wilsons():
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)  # R: prop.test(8, 10, correct = FALSE)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(5, 5)[1] == pytest.approx(1.0)


def test_the_report_counts_and_names_survivors(tmp_path):
    mutants = [
        Mutant("a.py", 3, "x | y", "x & y", verdict) for verdict in ("killed", "killed", "timed out", "survived")
    ]
    text = write(tmp_path / "some", "some", mutants, 90, 7)
    assert text == (tmp_path / "some.md").read_text()
    assert "4 of 90 mutants, seed 7: 2 killed, 1 timed out, 1 survived, of which 0 are equivalent." in text
    assert "Score 75.0%" in text
    assert "| a.py:3 | `x \\| y` | `x & y` |" in text


def test_every_row_names_modules_and_tests_that_are_there():
    for module, row in TABLE.items():
        assert Path(module).is_file(), module
        assert all(Path(name).exists() for name in row if name.startswith("tests/")), row
    modules = {path for name in ("privacy", "codecs", "algorithms") for path in Path("jdfl", name).glob("*.py")}
    assert {path.as_posix() for path in modules if path.name != "__init__.py"} == set(TABLE)


def test_every_planted_bug_has_its_place_and_two_tests_that_are_there():
    for name, one in mutants().items():
        planted(one)
        assert len(set(one.killers)) >= 2, name
        for file, _, test in (killer.partition("::") for killer in one.killers):
            assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8"), (name, file, test)
