"""`jdfl choose`: which algorithms fit what you have, and why the others do not."""

import dataclasses
import json
import textwrap

from jdfl.cli import flags
from jdfl.lab.choosing import PROPERTIES, Choice
from jdfl.lab.choosing import choose as choices

_ABOUT = """List the algorithms that have all of the properties that you ask for, and what the others lack.

Without properties, algorithms are listed by how many they have; --json has the reason of every single one.

The answer is found by trying: every algorithm is given such a network and such settings, and its own message is the
reason. Nothing is run. What the methods reach is in the table of docs/algorithms.md."""

_EXAMPLES = """examples:
  jdfl choose --directed --lossy                       links run one way, and messages are lost
  jdfl choose --compressed --exact                     few bytes, and the optimum nevertheless
  jdfl choose --private --local-steps --json

exit status: 0 some fit, 1 none does, 2 a mistake in the flags
"""
_WIDTH = 80  # columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What an algorithm has to cope with."""

    directed: bool = False
    """Links run one way, and every node knows only its own out-degree."""
    changing: bool = False
    """The links are others in every round."""
    lossy: bool = False
    """Messages are lost."""
    late: bool = False
    """Messages arrive in later rounds."""
    compressed: bool = False
    """Messages lose part of what they carry."""
    exact: bool = False
    """The optimum is reached with a constant step size, whatever the nodes' data are."""
    local_steps: bool = False
    """Several gradient steps, or rounds, lie between two exchanges."""
    private: bool = False
    """Noise gives a guarantee that the library derives."""
    robust: bool = False
    """Some nodes send what they like."""
    personal: bool = False
    """Every node learns a model of its own."""
    json: bool = False
    """Print JSON."""


def parse(args: list[str]) -> tuple[Options]:
    """The options behind the arguments of `jdfl choose`."""
    return (flags.parse_options(args, Options, prog="jdfl choose", about=_ABOUT, examples=_EXAMPLES),)


def choose(options: Options) -> int:
    """Print what fits and what does not; returns the exit status."""
    found = choices(*(name for name in PROPERTIES if getattr(options, name)))
    if options.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=2))
        return int(not any(one.fits for one in found))
    width = max(len(one.name) for one in found)
    fitting = [one for one in found if one.fits]
    if any(one.has for one in found):
        print(f"{len(found)} algorithms, by how many of {len(PROPERTIES)} properties they have:")
        for one in found:
            print(_wrapped(f"  {one.name:<{width}}  {len(one.has):>2}  ", ", ".join(one.has)))
        return 0
    print(f"{len(fitting)} of {len(found)} algorithms fit" + (":" if fitting else "."))
    for one in fitting:
        print(_wrapped(f"  {one.name:<{width}}  ", f"{one.title}; tune {', '.join(one.tuned) or 'nothing'}"))
    if len(fitting) < len(found):
        print("\nthe others, by the first property that they lack:")
    groups: dict[str, list[Choice]] = {}
    for one in found[len(fitting) :]:
        groups.setdefault(one.lacks.partition(":")[0], []).append(one)
    for lacking, members in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(_wrapped(f"  {lacking} ({len(members)}): ", ", ".join(one.name for one in members), "    "))
        print(_wrapped("    ", f"{members[0].name}: {members[0].lacks.partition(': ')[2]}"))
    return int(not fitting)


def _wrapped(lead: str, text: str, indent: str | None = None) -> str:
    """Text after a lead, in lines that fit a terminal."""
    later = " " * len(lead) if indent is None else indent
    return textwrap.fill(text, _WIDTH, initial_indent=lead, subsequent_indent=later, break_on_hyphens=False)
