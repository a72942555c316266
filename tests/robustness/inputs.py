"""Wrong words on the command line, and wrong files of settings: refused in words, or what was asked for is done."""

import copy
import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, get_type_hints
from unittest import mock

import yaml

from jdfl import config
from jdfl.cli import account, audit, compare, looking, runs, sweep, verify
from jdfl.config import RunConfig, to_yaml
from jdfl.config.kinds import members
from jdfl.engine import loop
from jdfl.lab import study
from jdfl.lab.settings import CompareConfig
from tests.comparison.test_goes_on import SMALL
from tests.fuzz.judge import BegunError, begin
from tests.fuzz.strategies import COMPARED, ODD, ODD_FLOATS, ODD_INTS, SAME
from tests.robustness.outcomes import said

REFUSED, DONE, BEGINS = "refused in words", "done", "taken, and work would begin"
FAILED = "done, with a status that says more"
TINY = ["--problem.m", "4", "--problem.n", "6", "--problem.s", "2", "--problem.rows", "5", "9", "--steps", "2"]
TINY += ["--network", "complete", "--algorithm", "d-psgd"]
VALUES = [".nan", ".inf", "-.inf", "inf", "-1", "0", "1", "2", "3", "0.5", "1e-320", "1e300", "4294967296", "1" * 30]
VALUES += ["9" * 5000, "", " ", "x", "none", "None", "True", "ring", "dense", "ceps", "auto", "[1, 2]", "{}", "é"]
VALUES += ["/", ".", "/dev/null", "missing", "lr=1", "config.yaml", "../config.yaml", "%s", "$(x)", "--", "-", "a=b"]
VALUES += ["\ud800", "a" * 300]
OF_RUNS = {"run": runs.Options, "resume": runs.Resuming, "verify": verify.Options, "account": account.Options}
OF_RUNS |= {"audit": audit.Options, "sweep": sweep.Options}
SPREAD = ("devices", "distributed", "coordinator", "processes", "process")  # other processes would be waited for
SHORT = [".nan", ".inf", "-1", "0", "1", "2", "0.5", "1e300", "x", "", "none", "file", "1" * 30]
TYPED = [*VALUES, "1_000", "0x10", "1e3", "٣", "1,2", "~", "null", "-0", "+1", ".5", "1e999", "\\", "'", "*"]
TYPED += ["🙂", "&a", "!x", "file", "folder", "folder/../folder", "config.yaml/x", "=", "-h", "\n", "a\u0000b"]
OVER = ["algorithm.lr=0.1", "algorithm.lr=", "=", "x=1", "algorithm.lr=log:1:2", "algorithm.lr=log:2:1", ""]
OVER += ["steps=1,2", "seed=1", "lr", "network=ring,x", "algorithm.lr=nan", "algorithm=d-psgd,ceps"]
QUICK = ["every", "seed", "chunk", "repeats", "metrics", "diverged-above", "problem.noise", "algorithm.lr", "key-file"]
QUICK += ["algorithm.batch", "algorithm.clip", "max-seconds", "out", "stop", "stop.value", "checkpoint-every"]
BEGINNINGS: list[tuple[Any, str]] = [(loop, "start"), (loop, "lanes"), (study, "run_group")]


def flags(kind: Any, path: str = "") -> Iterator[str]:
    """The names of all settings of a class, also those of the kinds that its settings may be of."""
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        if name not in {field.name for field in dataclasses.fields(kind)}:
            continue
        yield path + name.replace("_", "-")
        for inner in members(annotation).values():
            if path.count(".") < 2:
                yield from flags(inner, f"{path}{name}.")


@functools.cache
def options() -> dict[str, list[str]]:
    """The names of all options by command."""
    ran = set(flags(RunConfig)) | set(flags(config.StudyConfig)) - {"base"}
    known = {
        **{name: ran | set(flags(kind)) for name, kind in OF_RUNS.items()},
        "export": set(flags(looking.Export)),
        "compare": {*flags(CompareConfig), *flags(compare.Options)},
        "report": set(flags(looking.Report)),
        "data": set(flags(looking.Data)),
    }
    return {name: sorted(found) for name, found in known.items()}


def words(draw: Random) -> list[str]:
    """A command, and what may be typed after it."""
    known = options()
    command = draw.choice([*known, "list", "completion", "", "rnu", "--help", "--version", "-h", "--x"])
    if command not in known:
        return [command, *(draw.choice(TYPED) for _ in range(draw.randint(0, 2)))]
    typed = [command]
    if command in ("resume", "verify", "export", "report"):
        typed += draw.choice(
            [["folder"], ["whole"], ["missing"], ["file"], [""], [], ["whole", "whole"], ["/dev/null"]]
        )
    elif draw.random() < 0.5 and command in ("run", "account", "audit", "sweep"):
        typed += TINY
    if command == "sweep" and draw.random() < 0.8:
        typed += ["--over", *(draw.choice(OVER) for _ in range(draw.randint(1, 2)))]
    names = [name for name in known[command] if name not in SPREAD and name != "engine"]
    for _ in range(draw.randint(0, 4)):
        name, value = f"--{draw.choice(names)}", draw.choice(TYPED)
        if draw.random() < 0.1:
            name = draw.choice([name[:-1], name + "x", name.replace("-", "_"), name.upper(), "--", "-x", "--é"])
        typed += draw.choice([[name, value], [f"{name}={value}"], [name], [value], [name, value, value], [f"{name}="]])
    return typed


def done(typed: list[str], *, really: bool) -> str:
    """What comes of a command; unless it is done `really`, work that would begin does not."""
    with ExitStack() as stack:
        for place, name in [] if really else BEGINNINGS:
            stack.enter_context(mock.patch.object(place, name, begin))
        try:
            return {0: DONE, 2: REFUSED}.get(said(typed).status, FAILED)
        except BegunError:
            return BEGINS


def one(draw: Random) -> str:
    """Words, or a file of settings, in a folder with a run that was finished, one without records, and a file."""
    for path in Path().iterdir():
        if path.is_dir() and path.name != "whole":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    Path("folder").mkdir()
    for name in ("config.yaml", "folder/config.yaml"):
        Path(name).write_text("steps: 2\nproblem: {kind: example1, m: 4, n: 6, s: 2, rows: [5, 9]}\n")
    Path("file").touch()
    kind = draw.choices(["words", "file", "short"], [45, 40, 15])[0]
    if kind == "words":
        return done(words(draw), really=False)
    if kind == "short":  # a run of two rounds with odd settings, to its end
        odd = [word for name in draw.sample(QUICK, draw.randint(1, 2)) for word in (f"--{name}", draw.choice(SHORT))]
        return done(["run", *TINY, "--quiet", *odd], really=True)
    command = draw.choice(COMMANDS)
    Path("odd.yaml").write_bytes(file(command, draw))
    return done([command, "--config", "odd.yaml", "--quiet"], really=False)


def attacks(few: bool = False) -> Callable[[Random], str]:
    """An attack by words or a file."""
    assert said(["run", *TINY, "--quiet", "--folder", "whole"]).status == 0
    return one


# ---------------------------------------------------------------- files of settings

NEEDED: dict[str, dict[str, Any]] = {"iht-d-psgd": {"s": 2}, "ceps": {"s": 2}}
SCALARS = [*SAME, *map(str, ODD_INTS), *map(str, ODD_FLOATS), "0o7", "190:20:30", "2001-12-14t21:59:43.10-05:00"]
SCALARS += ["'3'", "*unknown", "{}", "[]", ".NaN", "-.INF", "!!float 1", "!!int '3'", '"\\x00"', "|\n  a", "!!str 3"]
SCALARS += ["!!binary aGk=", "!!set {a}", "&a 3", "!!python/name:os.system", "!!omap [a: 1]", "-", "?", "%", "9" * 400]
LEAVES: list[Any] = [None, True, False, *ODD_INTS, *ODD_FLOATS, "", "x", "none", "é", "\0", "1", "d-psgd", [], {}]
LEAVES += [[None], [[]], [1, "a"], {"a": {}}, {"kind": "x"}, {"kind": ["ring"]}, {1: 2}, {"kind": "ring", "m": 3}]


COMMANDS = ("run", "compare", "sweep")


def file(command: str, draw: Random) -> bytes:
    """Settings of a command in which something is wrong."""
    how = draw.choice([_swapped, _swapped, _unknown, _scalar, _scalar, _bytes, _anchors, _deep])
    return draw.choice(ODD).encode("utf-8", "surrogatepass") if draw.random() < 0.1 else how(_base(command, draw), draw)


def _base(command: str, draw: Random) -> Any:
    """Good settings as plain data."""
    if command == "compare":
        return yaml.safe_load(draw.choice([SMALL, COMPARED]))
    algorithm = draw.choice(list(config.ALGORITHMS.sources))
    network = draw.choice(["ring", "complete", "exponential", "random-links", "link-loss", "delays", "star"])
    told = {"steps": 2, "network": {"kind": network}, "stop": None, "algorithm": {"kind": algorithm}}
    told["problem"] = {"kind": "example1", "m": 4, "n": 6, "s": 2, "rows": [5, 9]}
    told["algorithm"] |= NEEDED.get(algorithm, {})
    with suppress(ValueError):  # a setting is missing
        told = yaml.safe_load(to_yaml(config.from_yaml(yaml.safe_dump(told))))  # with all settings
    return told if command == "run" else {"over": ["algorithm.lr=0.1,0.2"], "seeds": 1, "base": told}


def _written(told: Any) -> bytes:
    return yaml.safe_dump(told, sort_keys=False, allow_unicode=True).encode()


def _places(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all parts, at any depth."""
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def _at(told: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        told = told[key]
    return told


def _swapped(told: Any, draw: Random) -> bytes:
    """One to three parts in exchange for others, or for each other's."""
    for _ in range(draw.randint(1, 3)):
        places = _places(told)[1:]
        if not places:
            break
        *inside, key = draw.choice(places)
        other = _at(told, draw.choice(places)) if draw.random() < 0.3 else draw.choice(LEAVES)
        _at(told, tuple(inside))[key] = copy.deepcopy(other)
    return _written(told)


def _unknown(told: Any, draw: Random) -> bytes:
    """A key that is not known, is nearly right, or is none."""
    inside = draw.choice([part for path in _places(told) if isinstance(part := _at(told, path), dict)])
    near = [make(str(key)) for key in inside for make in (str.upper, lambda key: f"{key}s")]
    odd = [*near, "", "kind", "x", "é", 3, None, True, 1.5, "a.b", "__class__", "<<"]
    inside[draw.choice(odd)] = copy.deepcopy(draw.choice(LEAVES))
    return _written(told)


def _scalar(told: Any, draw: Random) -> bytes:
    """A scalar as YAML 1.1 reads it, or with a tag, written as it is."""
    *inside, key = draw.choice(_places(told)[1:])
    _at(told, tuple(inside))[key] = "HERE"
    return _written(told).replace(b"HERE", draw.choice(SCALARS).encode("utf-8", "replace"))


def _bytes(told: Any, draw: Random) -> bytes:
    """Other encodings, and damaged bytes."""
    content = bytearray(_written(told))
    if encoding := draw.choice(["", "", "utf-16", "utf-32", "utf-8-sig", "utf-16-le", "cp037"]):
        return content.decode().encode(encoding, "replace")
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(content))
        content[at : at + draw.randint(0, 3)] = draw.choice(
            [draw.randbytes(2), b"\0", b"\xff", b"\r", b":", b"{", b"'"]
        )
    return bytes(content)


def _anchors(told: Any, draw: Random) -> bytes:
    """Anchors, aliases, merges and several documents."""
    content, key = _written(told), draw.choice(list(told))
    odd = [b"base: &b {steps: 3}\n<<: *b\n" + content, content + b"---\n" + content, content + b"...\nx"]
    odd += [content.replace(b": ", b": &a ", 1) + f"{key}: *a\n".encode(), b"&whole\n" + content + b"more: *whole\n"]
    odd += [b"%TAG ! tag:x,2000:\n---\n" + content, b"!!map\n" + content, f"{key}: &a [*a, *a]\n".encode()]
    return draw.choice(odd)


def _deep(told: Any, draw: Random) -> bytes:
    """A value that is nested deeply, or is huge."""
    key, depth = draw.choice(list(told)), draw.choice([3, 50, 900, 5000])
    nested = ["[" * depth + "]" * depth, "{a: " * depth + "}" * depth, "[" * depth, "- " * depth]
    value = draw.choice([*nested, "x" * 10 * depth, "9" * depth])
    return _written({name: one for name, one in told.items() if name != key}) + f"{key}: {value}\n".encode()
