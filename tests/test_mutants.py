"""The table of planted bugs; they themselves are planted by `python -m tests.mutants`."""

from pathlib import Path

from tests.mutants import mutants, planted

TESTS = Path(__file__).parent


def test_every_planted_bug_has_its_place_and_two_tests_that_are_there():
    for name, one in mutants().items():
        planted(one)
        assert len(set(one.killers)) >= 2, name
        for file, _, test in (killer.partition("::") for killer in one.killers):
            assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8"), (name, file, test)
