"""Files of settings in which something is wrong: types, keys, anchors, tags, depth, size, scalars of YAML 1.1."""

import contextlib
import copy
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

from jdfl import config
from jdfl.config import to_yaml
from tests.comparison.test_goes_on import SMALL
from tests.fuzz.strategies import ODD_FLOATS, ODD_INTS
from tests.fuzz.test_fuzz_config import COMPARED, ODD, SAME

PROBLEM = {"kind": "example1", "m": 4, "n": 6, "s": 2, "rows": [5, 9]}
NEEDED: dict[str, dict[str, Any]] = {"iht-d-psgd": {"s": 2}, "ceps": {"s": 2}}
SCALARS = [*SAME, *map(str, ODD_INTS), *map(str, ODD_FLOATS)]
SCALARS += ["1_000", "0777", "0o7", "190:20:30", "2001-12-14t21:59:43.10-05:00", "'3'", "*unknown", "{}", "[]"]
SCALARS += [".NaN", "-.INF", "+.inf", "1.", "!!float 1", "!!int '3'", '"\\x00"', "|\n  a", "!!str 3", "!!null x"]
SCALARS += ["!!binary aGk=", "!!set {a}", "&a 3", "!!python/name:os.system", "!!omap [a: 1]", "-", "?", ":", "#"]
SCALARS += ["%", "@x", "`"]
SCALARS += ["9" * 400]
LEAVES: list[Any] = [None, True, False, *ODD_INTS, *ODD_FLOATS, "", "x", "none", "é", "\0", "1", "d-psgd", "ring"]
LEAVES += [[], {}, [None], [[]], [1, "a"], {"a": {}}, {"kind": "x"}, {"kind": None}, {"kind": ["ring"]}, {1: 2}]
LEAVES += [list(range(50)), {"kind": "ring", "m": 3}]


def _base(command: str, draw: Random) -> Any:
    """Good settings as plain data."""
    if command == "compare":
        return yaml.safe_load(draw.choice([SMALL, COMPARED]))
    algorithm = draw.choice(list(config.ALGORITHMS.sources))
    network = draw.choice(["ring", "complete", "exponential", "random-links", "link-loss", "delays", "star"])
    told = {"steps": 2, "problem": dict(PROBLEM), "network": {"kind": network}, "stop": None}
    told["algorithm"] = {"kind": algorithm, **NEEDED.get(algorithm, {})}
    with contextlib.suppress(ValueError):  # a setting is missing
        told = yaml.safe_load(to_yaml(config.from_yaml(yaml.safe_dump(told))))  # with all settings
    return told if command == "run" else {"over": ["algorithm.lr=0.1,0.2"], "seeds": 1, "base": told}


LOADED: dict[str, Callable[[Random], Any]] = {
    name: lambda draw, name=name: _base(name, draw) for name in ("run", "compare", "sweep")
}


def text(command: str, draw: Random) -> bytes:
    """A file for this command's --config."""
    told = LOADED[command](draw)
    how = draw.choice([_swapped, _swapped, _unknown, _scalar, _scalar, _lines, _bytes, _anchors, _deep, _odd])
    return how(told, draw)


def _written(told: Any) -> bytes:
    return yaml.safe_dump(told, sort_keys=False, allow_unicode=True).encode()


def _places(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all parts, at any depth."""
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def _put(told: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    inside = told
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return told


def _at(told: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        told = told[key]
    return told


def _swapped(told: Any, draw: Random) -> bytes:
    """One to three parts in exchange for others, or for each other's."""
    for _ in range(draw.randint(1, 3)):
        places = _places(told)[1:] or [()]
        place = draw.choice(places)
        other = (
            copy.deepcopy(_at(told, draw.choice(places))) if draw.random() < 0.3 else copy.deepcopy(draw.choice(LEAVES))
        )
        told = _put(told, place, other)
        if not isinstance(told, dict | list):
            break
    return _written(told)


def _unknown(told: Any, draw: Random) -> bytes:
    """A key that is not known, is nearly right, or is none."""
    place = draw.choice([path for path in _places(told) if isinstance(_at(told, path), dict)])
    inside = _at(told, place)
    near = (
        [f"{key}s" for key in inside]
        + [str(key).upper() for key in inside]
        + [str(key).replace("_", "-") for key in inside]
    )
    odd = [*near, "", "kind", "x", "é", 3, None, True, 1.5, "a.b", "__class__", "<<"]
    inside[draw.choice(odd)] = copy.deepcopy(draw.choice(LEAVES))
    return _written(told)


def _scalar(told: Any, draw: Random) -> bytes:
    """A scalar as YAML 1.1 reads it, or with a tag, written as it is."""
    place = draw.choice(_places(told)[1:])
    return _written(_put(told, place, "HERE")).replace(b"HERE", draw.choice(SCALARS).encode("utf-8", "replace"))


def _lines(told: Any, draw: Random) -> bytes:
    """Lines twice, in another order, further in, or gone."""
    lines = _written(told).splitlines(keepends=True)
    for _ in range(draw.randint(1, 3)):
        i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
        how = draw.choice(["double", "swap", "indent", "tab", "drop", "comment"])
        if how == "double":
            lines.insert(j, lines[i])
        elif how == "swap":
            lines[i], lines[j] = lines[j], lines[i]
        elif how == "drop" and len(lines) > 1:
            del lines[i]
        else:
            lines[i] = {"indent": b"  ", "tab": b"\t"}.get(how, b"# ") + lines[i]
    return b"".join(lines)


def _bytes(told: Any, draw: Random) -> bytes:
    """Other encodings, and damaged bytes."""
    content = bytearray(_written(told))
    encoding = draw.choice(["", "", "utf-16", "utf-32", "utf-8-sig", "utf-16-le", "cp037"])
    if encoding:
        return content.decode().encode(encoding, "replace")
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(content))
        content[at : at + draw.randint(0, 3)] = draw.choice(
            [draw.randbytes(2), b"\0", b"\xff", b"\r", b":", b"{", b"'", b"\xc2\x85"]
        )
    return bytes(content)


def _anchors(told: Any, draw: Random) -> bytes:
    """Anchors, aliases, merges and several documents."""
    content = _written(told)
    key = draw.choice(list(told))
    return draw.choice(
        [
            b"base: &b {steps: 3}\n<<: *b\n" + content,
            content + b"---\n" + content,
            content + b"...\nx",
            content.replace(b": ", b": &a ", 1) + f"{key}: *a\n".encode(),
            b"&whole\n" + content + b"more: *whole\n",
            b"%YAML 1.1\n---\n" + content,
            b"%TAG ! tag:x,2000:\n---\n" + content,
            b"!!map\n" + content,
            b"- " + content.replace(b"\n", b"\n  "),
            f"{key}: &a [*a, *a]\n".encode(),
        ]
    )


def _deep(told: Any, draw: Random) -> bytes:
    """A value that is nested deeply, or is huge."""
    key, depth = draw.choice(list(told)), draw.choice([3, 50, 900, 5000])
    value = draw.choice(
        [
            "[" * depth + "]" * depth,
            "{a: " * depth + "}" * depth,
            "[" * depth,
            "x" * 10 * depth,
            "9" * depth,
            "- " * depth,
        ]
    )
    if draw.random() < 0.3:
        value = "".join(f"\n{' ' * i}a:" for i in range(1, min(depth, 900)))
    return _written({name: one for name, one in told.items() if name != key}) + f"{key}: {value}\n".encode()


def _odd(told: Any, draw: Random) -> bytes:
    return draw.choice(ODD).encode("utf-8", "surrogatepass")
