"""The pages of the algorithms: module docstrings, fields and costs.json as Markdown."""

import inspect
import json
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import algorithm_fields
import formulas
from examples import command, example, python

from jdfl.algorithms import GROUPS, REGISTRY

_LINKS = {  # parts of an annotation -> what the reference has of it
    "Gradients": "jdfl.algorithms.gradients.Gradients",
    "Updates": "jdfl.algorithms.updates.Updates",
    "DPPS": "jdfl.algorithms.dpps.DPPS",
    "Codec": "jdfl.codecs.base.Codec",
    "Mechanism": "jdfl.privacy.mechanisms.Mechanism",
}
_COLUMNS = 88  # of shown code
_PROVENANCE = {  # what the formulas of a method were written from, as a sentence
    "paper read": "the paper was read",
    "authors' code read": "the authors' code was read",
    "other code read": "code by others was read",
    "abstract only": "only the paper's abstract was read",
    "described by others": "descriptions by others were read",
    "from memory": "the formulas are from memory",
    "no paper": "there is no paper",
}
_SEE_ALSO = (
    "[Choosing a method](../choose.md), [the papers' numbers](../papers/index.md), [errata](../errata.md), "
    "[parts that algorithms share](../reference/parts.md)."
)


@dataclass(frozen=True)
class Parts:
    """A module docstring, taken apart; every part is Markdown as it stands."""

    title: str
    paper: str  # what stands before the update
    update: str  # the first indented blocks
    reading: str  # what stands after them
    privacy: str  # what begins with "Privacy:", up to the next label
    missing: str  # what begins with "Missing neighbours:"
    axes: str  # those of most algorithms where it says nothing


def parts_of(docstring: str) -> Parts:
    """The parts of a docstring; ValueError where one is missing that every algorithm has."""
    title, *rest = inspect.cleandoc(docstring).split("\n\n")
    starts = {"Privacy: ": "", "Missing neighbours: ": "", "Axes: ": ""}
    prose, label = list[str](), ""
    for one in rest:
        label = next((word for word in starts if one.startswith(word)), label)
        if not label:
            prose.append(one)
        elif starts[label]:
            starts[label] += f"\n\n{one}"
        else:
            starts[label] = _sentence(one.removeprefix(label))
    blocks = [i for i, one in enumerate(prose) if one.startswith("    ")]
    needed = {"an indented block": blocks, "Missing neighbours:": starts["Missing neighbours: "]}
    lacking = [what for what, found in needed.items() if not found]
    if lacking:
        raise ValueError(f"Expected {lacking[0]} in the docstring of an algorithm, got none in that of {title!r}.")
    first = last = blocks[0]
    while last + 1 < len(prose) and prose[last + 1].startswith("    "):
        last += 1
    parts = prose[:first], prose[first : last + 1], prose[last + 1 :]
    starts["Axes: "] = starts["Axes: "] or "m nodes, n parameters."
    return Parts(title.rstrip("."), *("\n\n".join(part) for part in parts), *starts.values())


def page(name: str) -> str:
    """The page of the algorithm with this name in the registry."""
    kind, costs = REGISTRY[name], known_costs()[name]
    module = _module(kind)
    parts, (title, about) = parts_of(module.__doc__ or ""), _about(kind)
    head = f"# {title[0].upper()}{title[1:]}\n\n{_sentence(about)}\n\n"
    head += f"`jdfl.{kind.__name__}`, on the command line `--algorithm {name}`."
    if sum(_module(one) is module for one in REGISTRY.values()) > 1:
        head += f" The formulas below are those of a family: {parts.title}."
    read = "; ".join(_PROVENANCE[one] for one in kind.provenance)
    above = {"Source": " ".join(parts.paper.split()), "Provenance": f"{_sentence(read)}.", "Cost": _cost(costs)}
    head += "\n\n" + "\n".join(f"- **{name}.** {text}" for name, text in above.items() if text)
    sections = {
        "Update": f"$$\n{formulas.tex(parts.update)}\n$$\n\nAxes: {parts.axes[0].lower()}{parts.axes[1:]}",
        "As computed here": parts.reading,
        "Missing neighbours": parts.missing,
        "Options": _options(kind),
        "Example": _example(name, kind.__name__),
        "Privacy": _privacy(name, kind, parts.privacy, costs),
        "In the library": _library(name),
        "See also": _SEE_ALSO,
    }
    return "\n\n".join([head, *(f"## {title}\n\n{text}" for title, text in sections.items() if text)]) + "\n"


def table() -> str:
    """The index of all algorithms."""
    rows = ["| algorithm | class | what a node sends in a round | gradients of a node |", "| --- | --- | --- | --- |"]
    known = known_costs()
    for name, kind in REGISTRY.items():
        costs = known[name]
        link = f"[{_cell(': '.join(_about(kind)).rstrip('.'))}](algorithms/{name}.md)"
        rows.append(f"| {link} | `{kind.__name__}` | {_sent(costs)} | {costs['gradients']:g} |")
    return "\n".join(rows)


def groups() -> str:
    """All algorithms by the groups of `jdfl list`."""
    rows = ["| group | methods |", "| --- | --- |"]
    for group, kinds in GROUPS.items():
        links = (f"[{_cell(REGISTRY[name]().title)}](algorithms/{name}.md)" for name in kinds.split())
        rows.append(f"| {group} | {', '.join(links)} |")
    return "\n".join(rows)


def known_costs() -> dict[str, Any]:
    """What `docs/_site/costs.py` has measured, by algorithm."""
    return json.loads(Path(__file__).with_name("costs.json").read_text(encoding="utf-8"))


def options(kind: type) -> list[tuple[algorithm_fields.Field, str]]:
    """The fields that users may set, with their documentation."""
    return [(field, field.comment) for field in algorithm_fields.fields(kind)]


def _options(kind: type) -> str:
    rows = ["| option | default | |", "| --- | --- | --- |"]
    for field, said in options(kind):
        default = f"`{field.default}`" if field.default is not None else "must be given"
        links = [f"[{part}][{place}]" for part, place in _LINKS.items() if part in field.annotation]
        rows.append(f"| `{field.name}` | {default} | {_cell(said)}{f' See {links[0]}.' if links else ''} |")
    return "\n".join(rows)


def _example(name: str, kind: str) -> str:
    lines = " \\\n    ".join(command(name))
    return f"```python\n{python(name, kind)}```\n\nThe same from the command line:\n\n```bash\n{lines}\n```"


def _laid(call: str) -> str:
    """A call, on one line or with a line for every argument."""
    if len(call) <= _COLUMNS:
        return call
    head, _, arguments = call.removesuffix(")").partition("(")
    lines, depth = [""], 0
    for letter in arguments:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            lines.append("")
        else:
            lines[-1] += letter
    return f"{head}(\n" + "".join(f"    {line.strip()},\n" for line in lines) + ")"


def _sent(costs: dict[str, Any]) -> str:
    return (
        ", ".join(
            f"{count:g} `{channel}` of {costs['bits'][channel]} bits" for channel, count in costs["messages"].items()
        )
        or "nothing"
    )


def _cost(costs: dict[str, Any]) -> str:
    gradients, before = costs["gradients"], costs["gradients_before"]
    sent = _sent(costs).replace("` of", "` messages of")
    return (
        f"In a round of the [example](#example) a node sends {sent}, on average, "
        f"and computes {gradients:g} gradient{'s' * (gradients != 1)} of its loss"
        f"{f', and {before:g} before the first round' if before else ''}. "
        f"In {costs['rounds']} rounds all nodes together send {costs['bytes']:,.0f} bytes."
    )


def _privacy(name: str, kind: type, prose: str, costs: dict[str, Any]) -> str:
    promised = " ".join((inspect.getdoc(kind.privacy) or "").partition("\n\n")[0].split())
    parts = [prose, f"Nothing is claimed for the example above: {costs['reason']}. {costs['remedy']}".rstrip()]
    if costs["private"]:
        parts += [
            f"{promised} With a clip and noise, as in",
            f"```python\n{_laid(example(name).algorithm(kind.__name__, private=True))}\n```",
            f"the {costs['rounds']} rounds of the example have this statement (`jdfl.account_plan`):",
            costs["private"],
        ]
    return "\n\n".join(part for part in parts if part)


def _library(name: str) -> str:
    """Classes and functions of the module; those that another page documents are linked, since a name has one place."""
    module = _module(REGISTRY[name])
    here, elsewhere = list[str](), list[str]()
    for one in public(module):
        place = f"{module.__name__}.{one}"
        (here if page_of(module, one) == name else elsewhere).append(place)
    parts = [f"::: {place}\n    options:\n      heading_level: 3" for place in here]
    if elsewhere:
        links = ", ".join(f"[`{place.rpartition('.')[2]}`][{place}]" for place in elsewhere)
        parts.append(f"Of the same file: {links}.")
    return "\n\n".join(parts)


def page_of(module: ModuleType, name: str) -> str:
    """The algorithm on whose page a public name of a module is documented: its own, or the first of the module."""
    mine = {kind.__name__: registered for registered, kind in REGISTRY.items() if _module(kind) is module}
    return mine.get(name) or next(iter(mine.values()))


def public(module: ModuleType) -> list[str]:
    """Names of the public functions and classes that a module defines, states of algorithms left out."""
    mine = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in mine if not name.startswith("_") and name != "State"]


def listed(module: str) -> list[str]:
    """What `<!-- names: MODULE -->` stands for: all that the module says is public, or what it defines."""
    found = import_module(module)
    return getattr(found, "__all__", None) or public(found)


def _module(kind: type) -> ModuleType:
    return sys.modules[kind.__module__]


def _about(kind: type) -> tuple[str, str]:
    """A method's name, and the rest of the first line of its docstring."""
    title, _, about = (inspect.getdoc(kind) or "").splitlines()[0].partition(": ")
    return title, about


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
