"""`jdfl choose`: which algorithms fit what you have, and why the others do not."""

import dataclasses
import json

from jdfl.cli import flags
from jdfl.lab.choosing import PROPERTIES
from jdfl.lab.choosing import choose as choices

_ABOUT = """List the algorithms that have all of the properties that you ask for, and for every other one what it lacks.

The answer is found by trying: every algorithm is given such a network and such settings, and its own message is the
reason. Nothing is run. What the methods reach is in the table of docs/choose.md."""

_EXAMPLES = """examples:
  jdfl choose --directed --lossy                       links run one way, and messages are lost
  jdfl choose --compressed --exact                     few bytes, and the optimum nevertheless
  jdfl choose --private --local-steps --json

exit status: 0 some fit, 1 none does, 2 a mistake in the flags
"""
_MOST = 100  # characters of a reason


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
    print(f"{len(fitting)} of {len(found)} algorithms fit" + (":" if fitting else "."))
    for one in fitting:
        print(f"  {one.name:<{width}}  {one.title}; tune {', '.join(one.tuned) or 'nothing'}")
    if len(fitting) < len(found):
        print("\nthe others, and what they lack:")
    for one in found[len(fitting) :]:
        reason = one.lacks if len(one.lacks) <= _MOST else one.lacks[: _MOST - 3].rsplit(" ", 1)[0] + "..."
        print(f"  {one.name:<{width}}  {reason}")
    return int(not fitting)
