"""docs/errata.md: each finding has one of the four kinds and a command that exists."""

import re
import shlex
from pathlib import Path

import pytest

from experiments.gallery import experiments

ROOT = Path(__file__).parents[2]
KINDS = {"False as stated", "Proof fails", "Constants fail", "Not reproduced"}
COMMANDS = {"run", "account", "list"}  # of jdfl, that the page uses
HEADER = "| What the paper has | Kind | What was found | Shown by | In jdfl |"


def wrong(text: str) -> list[str]:
    """The lines of findings without a kind or without a command that exists, and tables of neither sort."""
    known, found, within = {one.name for one in experiments()}, [], ""
    for line in text.splitlines():
        if not line.startswith("|"):
            within = ""
            continue
        if not within:
            within = line
            if line != HEADER and not line.startswith("| Place |"):
                found.append(line)
            continue
        if set(line) <= set("|- "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        command = cells[3 if within == HEADER else 2]
        if (within == HEADER and (len(cells) != 5 or cells[1] not in KINDS)) or not exists(command, known):
            found.append(line)
    return found


def exists(command: str, known: set[str]) -> bool:
    """Whether a cell is one command in backquotes, of an experiment or of jdfl."""
    told = re.fullmatch(r"`(.*)`", command)
    words = shlex.split(told[1]) if told else []
    if words[:2] == ["python", "-m"]:
        package, _, name = words[2].partition(".")
        return package == "experiments" and name in known
    return words[:1] == ["jdfl"] and words[1] in COMMANDS


def test_every_finding_has_a_kind_and_a_command_that_exists():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    assert wrong(text) == []
    for kind in KINDS:
        assert f"**{kind}**" in text  # is explained
        assert f"| {kind} |" in text
    assert text.count("`python -m experiments.") > 30


@pytest.mark.parametrize(
    "line",
    [
        "| Lemma 2 | Wrong | no bound | `python -m experiments.lemma2_counterexample` | |",
        "| Lemma 2 | Proof fails | a row is cancelled | `python -m experiments.no_such_script` | |",
        "| Lemma 2 | Proof fails | a row is cancelled | see the paper | |",
        "| Lemma 2 | a row is cancelled | `python -m experiments.lemma2_counterexample` | |",
        "| Lemma 2 | Proof fails | a row is cancelled | `jdfl refute` | |",
    ],
)
def test_a_finding_without_them_is_noticed(line):
    assert wrong(f"{HEADER}\n|---|---|---|---|---|\n{line}\n") == [line]


def test_a_table_without_kinds_is_noticed():
    assert wrong("| What the paper has | What is wrong with it |\n|---|---|\n") != []


@pytest.mark.parametrize("page", ["README.md", "docs/privacy.md", "docs/errata.md", "docs/papers/push-sum.md"])
def test_lemma_2_is_never_called_wrong(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert not re.search(r"Lemma 2[^.|]{0,80}\b(is wrong|is no bound)", text)
    assert "Theorem 1 is wrong" not in text
