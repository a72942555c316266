"""Wrong words on the command line, and wrong files of settings: refused in words, or what was asked for is done."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from jdfl.cli.sweep import Options as SweepOptions
from jdfl.engine import loop
from jdfl.lab import study
from tests.fuzz.test_fuzz_cli import SHORT, SPREAD, TINY, VALUES, flags, options
from tests.robustness.outcomes import BegunError, said
from tests.robustness.yamls import LOADED, text

REFUSED, DONE, BEGINS, FAILED = (
    "refused in words",
    "done",
    "taken, and work would begin",
    "done, with a status that says more",
)
MORE_VALUES = ["1_000", "0x10", "1e3", "٣", "1,2", "~", "null", "yes", "-0", "+1", "1.", ".5", "1e999", "0.1,0.2"]
MORE_VALUES += ["🙂", "\\", "'", '"', "<", "*", "&a", "!x", "file", "folder", "folder/../folder", "config.yaml/x"]
MORE_VALUES += ["=", "-h", "\t", "\n", "a\u0000b", "{a: 1}"]
OVER = ["algorithm.lr=0.1", "algorithm.lr=", "=", "x=1", "algorithm.lr=log:1:2", "algorithm.lr=log:2:1"]
OVER += ["steps=1,2", "seed=1", "lr", "network=ring,x", "algorithm.lr=nan", "problem.m=4,0", "algorithm=d-psgd,ceps"]
OVER += ["algorithm.lr=int:1:3", ""]
RUNS = ("run", "account", "audit", "bench", "sweep")
QUICK = ["every", "seed", "chunk", "repeats", "metrics", "diverged-above", "problem.noise", "algorithm.lr"]
QUICK += ["algorithm.batch", "algorithm.clip", "max-seconds", "out", "stop", "stop.value", "privacy.delta"]
QUICK += ["checkpoint-every", "key-file"]


def known() -> dict[str, list[str]]:
    """The flags of all commands by their names."""
    more = {"sweep": {*options()["sweep"], *flags(SweepOptions)}, "export": {"to", "json"}}
    return options() | {name: sorted(found) for name, found in more.items()}


def words(draw: Random) -> list[str]:
    """A command, and what may be typed after it."""
    command = draw.choice([*known(), "list", "completion", "", "rnu", "--help", "--version", "-h", "--x"])
    if command not in known():
        return [command, *(draw.choice(VALUES + MORE_VALUES) for _ in range(draw.randint(0, 2)))]
    typed = [command]
    if command in ("resume", "verify", "export", "report"):
        typed += draw.choice(
            [["folder"], ["whole"], ["missing"], ["file"], [""], [], ["whole", "whole"], ["/dev/null"]]
        )
    elif draw.random() < 0.5 and command in RUNS:
        typed += TINY
    if command == "sweep" and draw.random() < 0.8:
        typed += ["--over", *(draw.choice(OVER) for _ in range(draw.randint(1, 2)))]
    names = [name for name in known()[command] if name not in SPREAD and name != "engine"]
    for _ in range(draw.randint(0, 4)):
        name, value = f"--{draw.choice(names)}", draw.choice(VALUES + MORE_VALUES)
        if draw.random() < 0.1:
            name = draw.choice([name[:-1], name + "x", name.replace("-", "_"), name.upper(), "--", "-x", "--é"])
        typed += draw.choice(
            [
                [name, value],
                [f"{name}={value}"],
                [name],
                [value],
                [name, value, draw.choice(VALUES)],
                [f"{name}=", value],
            ]
        )
    return typed


def done(typed: list[str], *, really: bool) -> str:
    """What comes of a command; unless it is done `really`, work that would begin does not."""
    with ExitStack() as stack:
        if not really:
            for place, name in BEGINNINGS:
                stack.enter_context(mock.patch.object(place, name, _begin))
        try:
            status = said(typed).status
        except BegunError:
            return BEGINS
    return {0: DONE, 2: REFUSED}.get(status, FAILED)


def _begin(*_: Any, **__: Any) -> None:
    raise BegunError


BEGINNINGS: list[tuple[Any, str]] = [(loop, "start"), (loop, "lanes"), (study, "run_group")]


def typed(draw: Random) -> str:
    """Anything typed."""
    return done(words(draw), really=False)


def short(draw: Random) -> str:
    """A run of two rounds with odd settings, to its end."""
    odd = [word for name in draw.sample(QUICK, draw.randint(1, 2)) for word in (f"--{name}", draw.choice(SHORT))]
    return done(["run", *TINY, "--quiet", *odd], really=True)


def file(draw: Random) -> str:
    """A file of settings in which something is wrong."""
    command = draw.choice(list(LOADED))
    Path("odd.yaml").write_bytes(text(command, draw))
    how = ["--config", "odd.yaml"]
    if draw.random() < 0.2:
        how = ["--config=odd.yaml", "--steps", "2"]
    return done([command, *how, "--quiet"], really=False)


def one(draw: Random) -> str:
    """Words or a file, in a folder with a run that was finished, one without records, and a file."""
    for path in Path().iterdir():
        if path.is_dir() and path.name != "whole":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    Path("folder").mkdir()
    for name in ("config.yaml", "folder/config.yaml"):
        Path(name).write_text("steps: 2\nproblem: {kind: example1, m: 4, n: 6, s: 2, rows: [5, 9]}\n")
    Path("file").touch()
    return draw.choices([typed, file, short], [50, 45, 5])[0](draw)


def attacks(few: bool = False) -> Callable[[Random], str]:
    """An attack by words or a file."""
    assert said(["run", *TINY, "--quiet", "--folder", "whole"]).status == 0
    return one
