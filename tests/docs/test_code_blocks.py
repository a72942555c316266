"""Every fenced block of the documentation does what its reader would see.

The blocks of a page are done in order, in one empty folder. Python shares one namespace; what a block prints is
compared with the `text` block after it that is marked `<!-- output -->`: words exactly, numbers within two percent,
`...` with any word. Commands `jdfl ...` run in this process, other commands must exist. A block that is marked
`<!-- slow -->` runs in the slow test alone, as all of the LONG pages does but what is done at once; one that is marked
`<!-- parsed -->` is read as Python or as flags and not run, as are the slow ones in the quick test.
"""

import ast
import contextlib
import io
import math
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jdfl import cli
from jdfl.cli import main
from tests.docs.blocks import ROOT, Block, blocks

GENERATED = ("algorithms", "reference")  # folders of docs that a program fills
PAGES = [ROOT / "README.md"]
PAGES += [one for one in sorted((ROOT / "docs").rglob("*.md")) if one.parent.name not in GENERATED]
AT_ONCE = ("list", "completion")  # commands of LONG pages that the quick test runs, too
LANGUAGES = {"python", "bash", "yaml", "toml", "diff", "text"}
LONG = [PAGES[0], *(ROOT / "docs" / f"{name}.md" for name in ("privacy", "privacy-attacks", "own-algorithm"))]


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JDFL_DATA", raising=False)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_quick_blocks(page: Path):
    play(page, slow=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page", [one for one in PAGES if one in LONG or any(block.mark == "slow" for block in blocks(one))],
    ids=lambda page: str(page.relative_to(ROOT)),
)  # fmt: skip
def test_all_blocks(page: Path):
    play(page, slow=True)


def test_scripts_that_are_named_are_there():
    """Also in running text."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for module in re.findall(r"python\s+-m\s+((?:experiments|benchmarks)\.\w+)", text):
            is_program(module)


def play(page: Path, *, slow: bool) -> None:
    """Do what the page says."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: a block of {block.language or 'no language'}"
        runs = block.mark != "parsed" and (slow or block.mark != "slow")
        if block.mark == "output":
            assert printed is None or same(printed, block.text), f"{where}: printed is\n{printed}"
        elif block.language == "python":
            printed = python(block, page, names, runs=runs and (slow or page not in LONG))
        elif block.language == "bash":
            printed = bash(block, where, runs=runs, parsed=page in LONG and not slow)
        elif block.language == "toml":
            assert tomllib.loads(block.text), where
        elif block.language == "yaml":
            assert list(yaml.safe_load_all(block.text)), where


def python(block: Block, page: Path, names: dict[str, Any], *, runs: bool) -> str | None:
    """What the block prints; None where it is not run."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    if not runs:
        return None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue()


def bash(block: Block, where: str, *, runs: bool, parsed: bool) -> str | None:
    """What the commands print; None where one is not run."""
    out = io.StringIO()
    for command in commands(block.text):
        match command:
            case ["jdfl", *args]:
                runs_now = runs and (not parsed or args[0] in AT_ONCE) and args[:2] != ["data", "fetch"]
                if not runs_now:
                    parse(args, where)
                    runs = False
                    continue
                with contextlib.redirect_stdout(out):
                    status = main(resolved(args))
                assert status == 0, f"{where}: jdfl {' '.join(args)} ends with status {status}"
            case ["python", "-m", module, *_] if module.startswith(("experiments.", "benchmarks.")):
                is_program(module)
            case ["python", "-m", "experiments", name, *_]:
                is_program("experiments.__main__" if name in ("all", "list", "index") else f"experiments.{name}")
            case ["make", target]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), f"{where}: make {target}"
            case ["pip", "install", what]:
                assert installable(what), f"{where}: pip install {what}"
            case ["pytest", *args]:
                paths = [one for one in args if one.startswith("tests/")]
                assert paths, where
                assert all((ROOT / one).exists() for one in paths), f"{where}: {' '.join(command)}"
            case _:
                raise AssertionError(f"{where}: what cannot be checked is a block of text: {' '.join(command)}")
    return out.getvalue() if runs else None


def commands(text: str) -> Iterator[list[str]]:
    """The words of every command, without comments."""
    for line in text.replace("\\\n", " ").splitlines():
        words = [word for word in shlex.split(line, comments=True) if word != "&"]
        if words:
            yield words


def parse(args: list[str], where: str) -> None:
    """The flags are known and fit together; files that they name need not be there."""
    name, *rest = args
    if name in AT_ONCE or "runs/NAME" in " ".join(rest) or name in ("resume", "verify"):
        return
    try:
        cli.parse(name, rest)
    except SystemExit as stop:
        raise AssertionError(f"{where}: jdfl {' '.join(args)}") from stop


def resolved(args: list[str]) -> list[str]:
    """runs/NAME is the newest run, which has a summary, and a star is what the shell makes of it."""
    done = [one.parent for one in Path("runs").glob("*/summary.json")]
    newest = max(done, key=lambda one: one.stat().st_mtime_ns, default=Path("runs/NAME"))
    found: list[str] = []
    for word in (one.replace("runs/NAME", str(newest)) for one in args):
        found += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return found


def is_program(module: str) -> None:
    """A file, or a package's `__main__`, with a `main` that `python -m` calls."""
    place = ROOT / module.replace(".", "/")
    source = (place / "__main__.py" if place.is_dir() else place.with_suffix(".py")).read_text(encoding="utf-8")
    assert any(isinstance(one, ast.FunctionDef) and one.name == "main" for one in ast.parse(source).body), module
    assert 'if __name__ == "__main__":' in source or "\n@experiment(" in source, module


def installable(what: str) -> bool:
    """jdfl from its folder, with extras that there are."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    asked = re.fullmatch(r"(?:\.|jdfl)(?:\[([\w,]+)\])?", what)
    return asked is not None and set((asked[1] or "").split(",")) - {""} <= set(extras)


def same(printed: str, shown: str, within: float = 0.02) -> bool:
    """Whether the words are the same, up to two percent of a number; `...` is any word."""
    words, wanted = printed.split(), shown.split()
    return len(words) == len(wanted) and all(_alike(*both, within) for both in zip(words, wanted))


def _alike(word: str, wanted: str, within: float) -> bool:
    if wanted in ("...", word):
        return True
    values = [re.fullmatch(r"(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)(\D*)", one) for one in (word, wanted)]
    if not all(values):
        return False
    (number, unit), (other, same_unit) = ((float(one[1].replace(",", "")), one[2]) for one in values if one)
    return unit == same_unit and math.isclose(number, other, rel_tol=within, abs_tol=2e-3)


def test_a_page_that_does_not_do_what_it_says_is_noticed(tmp_path):
    assert same("loss 0.1251 after 4,003 rounds in 3s\n", "loss 0.125 after 4,000 rounds in ...")
    for shown in ("loss 0.130", "loss 0.125 0.125", "gain 0.125", "loss x"):
        assert not same("loss 0.1251", shown)
    page, output = tmp_path / "page.md", "```python\nprint(3)\n```\n<!-- output -->\n```text\n4\n```\n"
    for text in ("```\nls\n```\n", "```bash\npip install .[no]\n```\n", "```bash\njdfl report nowhere\n```\n", output):
        page.write_text(text)
        with pytest.raises(AssertionError):
            play(page, slow=True)
