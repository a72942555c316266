"""Bad input of every kind: bytes that were damaged, texts that are nearly YAML, settings of the wrong type and size."""

import dataclasses
import math
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from jdfl.base.arguments import options_of
from jdfl.config.kinds import members

ODD_FLOATS = (math.nan, math.inf, -math.inf, -1.0, 0.0, -0.0, 1e-320, 1e-9, 0.5, 1.0, 1.5, 3.0, 1e9, 1e300)
ODD_INTS = (-(2**63), -1, 0, 1, 2, 3, 5, 7, 2**31 - 1, 2**31, 2**32, 2**63, 10**30)
LIMITED: dict[str, Any] = dict.fromkeys(
    ("tries", "local_steps", "gossip_steps"), (-1, 0, 1, 3)
)  # take as long as asked
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = st.sampled_from(
    ["", "0", "1", ".nan", "ring", "ceps", "none", "all", "x.*", "*", "a,b", "lr=1", "=", "\0", "é"]
)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes that were cut, flipped, repeated, overwritten, or that have something in front or behind."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from(["cut", "flip", "write", "insert", "drop", "double", "front", "behind", "fill"]))
        size = len(content)
        at = draw(st.integers(0, max(0, size - 1)))
        some = draw(st.binary(min_size=1, max_size=9) | st.sampled_from([b"\xff" * 4, b"\0" * 8, b"nan", b"-1", b"\n"]))
        if how == "cut":
            del content[at:]
        elif how == "flip" and size:
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "write":
            content[at : at + len(some)] = some
        elif how == "insert":
            content[at:at] = some
        elif how == "drop":
            del content[at : at + draw(st.integers(1, 40))]
        elif how == "double":
            content[at:at] = content[at : at + 200]
        elif how == "front":
            content[:0] = some
        elif how == "behind":
            content += some
        elif how == "fill":
            content[at:] = some * (1 + (size - at) // len(some))
    return bytes(content)


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of the type that a setting has, of any size."""
    if choices := members(annotation):
        absent = [st.none()] if NoneType in options_of(annotation) else []
        return st.one_of(*map(configs, choices.values()), *absent)
    if get_origin(annotation) is Annotated:
        return values(annotation.__origin__)
    if dataclasses.is_dataclass(annotation):
        return configs(annotation)
    if annotation is int:
        return st.sampled_from(ODD_INTS)
    if annotation is float:
        return st.sampled_from(ODD_FLOATS)
    if annotation is bool:
        return st.booleans()
    if annotation is str:
        return WORDS | TEXTS
    if annotation is NoneType:
        return st.none()
    options = get_args(annotation)
    if get_origin(annotation) is tuple:
        if options[-1] is Ellipsis:
            return st.lists(values(options[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, options))
    if get_origin(annotation) in (Union, UnionType):
        return st.one_of(*map(values, options))
    assert get_origin(annotation) is Literal, annotation
    return st.sampled_from(options)


@st.composite
def configs(draw: st.DrawFn, kind: Any, changed: int = 3, **given: Any) -> Any:
    """A setting of this class with a few odd fields beside those `given`."""
    types = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    needed = [name for name, field in fields.items() if field.default is field.default_factory and name not in given]
    types |= {name: Literal[numbers] for name, numbers in LIMITED.items() if name in types}
    free = sorted(set(fields) - set(given))
    chosen = draw(st.lists(st.sampled_from(free), max_size=changed, unique=True)) if free else []
    return kind(**given | {name: draw(values(types[name])) for name in sorted({*needed, *chosen})})


COMPARED = "steps: 3\nby: bytes\nalgorithms:\n- d-psgd\n- {kind: entry, label: a, algorithm: ceps, grids: ['s=1,2']}\n"
DEEP = "[" * 1_000
NESTED = "".join(f"{'  ' * i}a:\n" for i in range(400))
LAUGHS = "- &a0 [x]\n" + "".join(f"- &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40))
LAUGHING = LAUGHS.replace("- &a0 [x]", "steps:\n- &a0 [x]")
LAUGHING_KEY = "steps: 3\n" + LAUGHS.replace("- &a0 [x]", "stepz:\n- &a0 [x]")
MERGES = "a0: &a0 {x: 1}\n"
MERGES += "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 40))
ODD = [
    *("", "null", "~", "[]", "3", "a", "- 1", "? ", ": 1", "? [1]\n: 2", "? {a: 1}\n: 2", "a: !!bool x", "@", "`", "!"),
    *("steps: !!int x", "steps: !!float x", "steps: !!timestamp x", "steps: 2001-13-45", "steps: 2001-02-03"),
    *("steps: 2001-02-30 12:00:00", "steps: 1:60:99", "steps: 0x", "steps: 0b2", "steps: 09", "steps: 1_000"),
    *("steps: !!binary x", "steps: !!set {a}", "steps: !!python/object:os.system x", "steps: !!python/tuple [1]"),
    *("steps: !!omap [a: 1]", "steps: &a [*a]", "&a [*a]", "steps: *a", "&a {steps: *a}", "%YAML 3.0\n---\nsteps: 1"),
    *("--- 1\n--- 2", "steps: 1\n...\nsteps: 2", "steps: 1\nsteps: 1", "a: {b: 1, b: 2}", "<<: {steps: 3}", "=: 3"),
    *("steps: =", "\ufeffsteps: 3", "steps: \0", "\t", "steps: .inf", "seed: .nan", "steps: " + "9" * 5000),
    *("problem: {noise: " + "9" * 400 + "}", "stop: {kind: objective, value: 1e999}", "x" * 3000 + ": 1"),
    *(DEEP, NESTED, LAUGHS, LAUGHING, LAUGHING_KEY, MERGES, "steps: 0x" + "f" * 4000, "? 0x" + "f" * 4000 + "\n: 1"),
    *("{" * 1000, "- " * 1000, "steps: '" + "x" * 30_000 + "'", "".join(f"k{i}: 1\n" for i in range(5_000))),
    *("metrics: [" + "a, " * 5_000 + "]", "network: {kind: edge-list-file, path: ''}"),
]
SAME = ["=", "<<", "yes", "No", "on", "~", "null", "0100", "0o10", "0b1", "0x1", "1_0", "1:30", "1e5", ".inf", ".5_5"]
SAME += ["2001-01-01", "2001-02-03 01:02:03", "=\n", " =", "", "- =", "!x", "&a", "*a", "\x85", "\ufeff=", "true"]
