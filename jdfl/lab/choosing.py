"""Which registered algorithms have all of some properties, found by trying them, and why the others do not.

Nothing is run: an algorithm fits if it accepts the network and the settings that the properties ask for, and is refused
with its own message otherwise.

Axes: m nodes.
"""

import dataclasses
import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jdfl import network as networks
from jdfl.algorithms import REGISTRY, Gradients
from jdfl.algorithms.dpps import DPPS
from jdfl.algorithms.gradients import takes_noise
from jdfl.base import checks
from jdfl.codecs import Sparse
from jdfl.engine.start import check_run, check_settings
from jdfl.privacy import Gaussian
from jdfl.problems import Problem, example1

PROPERTIES = {
    "directed": "links run one way, and every node knows only its own out-degree",
    "changing": "the links are others in every round",
    "lossy": "messages are lost",
    "late": "messages arrive in later rounds",
    "compressed": "messages lose part of what they carry",
    "exact": "the optimum is reached with a constant step size, whatever the nodes' data are",
    "local_steps": "several gradient steps, or rounds, lie between two exchanges",
    "private": "noise gives a guarantee that the library derives",
    "robust": "some nodes send what they like",
    "personal": "every node learns a model of its own",
}
"""What a network or a method may have to cope with, in words; the names are those of `jdfl choose`."""
_M, _ROUNDS = 8, 5
_STEPS = {"local_steps": 3, "periods": (2, 4), "period": 3}  # settings for more than one step between two exchanges
_LINKS = ("directed", "changing", "lossy", "late")  # properties of networks
_CODEC = "sends its models"  # how warnings of codecs begin


@dataclass(frozen=True)
class Choice:
    """An algorithm, and whether it fits."""

    name: str  # in the registry and on the command line
    title: str  # in messages and papers
    tuned: tuple[str, ...]  # the settings that a comparison tunes
    channels: tuple[str, ...]  # the kinds of messages that it sends
    lacks: str  # the first property that is missing, and why; empty where it fits
    has: tuple[str, ...] = ()  # of a choice without properties: those that its settings and requirements allow

    @property
    def fits(self) -> bool:
        """Whether it has all properties."""
        return not self.lacks


def choose(*properties: str) -> list[Choice]:
    """Every registered algorithm, those that have all of the properties first; without any, by how many they have."""
    for name in properties:
        checks.one_of(PROPERTIES, properties=name)
    asked, found = frozenset(properties), list[Choice]()
    for name in REGISTRY:
        made = _smallest(name)
        channels = tuple(channel.name for channel in made.channels)
        has = () if asked else tuple(one for one in PROPERTIES if not _lacks(made, frozenset({one}), traced=False))
        found.append(Choice(name, made.title, tuple(made.tuned), channels, _lacks(made, asked) if asked else "", has))
    return sorted(found, key=lambda one: (not one.fits, -len(one.has)))


def _smallest(name: str) -> Any:
    """The algorithm with its defaults, and sparse models of two entries where it keeps them sparse."""
    kind = REGISTRY[name]
    return kind(**({"s": 2} if "s" in {one.name for one in dataclasses.fields(kind)} else {}))


@cache
def _problem() -> Problem:
    return example1(m=_M, n=12, s=2, rows=(12, 16))


def _lacks(made: Any, asked: frozenset[str], traced: bool = True) -> str:
    """The first property that an algorithm lacks, and why; without tracing it where its requirements say enough."""
    try:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            _check(_with(made, asked), asked, traced or bool(asked & {"directed", "late"}))
    except ValueError as error:
        return str(error)
    lossy = next((one for one in raised if _CODEC in str(one.message)), None) if "compressed" in asked else None
    return "" if lossy is None else f"compressed: {lossy.message}"


def _check(algorithm: Any, asked: frozenset[str], traced: bool) -> None:
    """Raise ValueError for the first property that the algorithm lacks, with the property's name."""
    links = [one for one in _LINKS if one in asked]
    accepted: Any = None
    for some in (*([one] for one in links), links):  # each alone first, so that the first that is missing is named
        networks = _networks(frozenset(some))
        reasons = [_reason(algorithm, network, traced) for network in networks]
        if "" not in reasons:  # one that is accepted is enough
            raise ValueError(f"{' and '.join(some) or 'network'}: {reasons[0]}")
        accepted = networks[reasons.index("")]
    if "private" in asked and traced:
        guarantee = check_run(algorithm, _problem(), accepted, _ROUNDS, 1, None).privacy(_problem())
        if not guarantee.claimed:
            raise ValueError(f"private: no guarantee is derived, because {guarantee.reason}.")


def _reason(algorithm: Any, network: Any, traced: bool) -> str:
    try:
        check_settings(algorithm, _problem(), network, _ROUNDS)
        if traced:
            check_run(algorithm, _problem(), network, _ROUNDS, 1, None)
    except ValueError as error:
        return str(error)
    return ""


def _with(algorithm: Any, asked: frozenset[str]) -> Any:
    """The algorithm with the settings that these properties ask for; ValueError naming one for which it has none."""
    fields = {one.name for one in dataclasses.fields(algorithm)}
    for one in ("exact", "personal"):
        if one in asked and not getattr(algorithm, one):
            raise ValueError(f"{one}: {algorithm.title} is not a method with which {PROPERTIES[one]}.")
    if "robust" in asked and "rule" not in fields:
        raise ValueError(f"robust: {algorithm.title} averages what it receives, so one node can move it anywhere.")
    if "local_steps" in asked:
        steps = next((name for name in _STEPS if name in fields), None)
        if steps is None:
            raise ValueError(f"local_steps: {algorithm.title} exchanges messages after every gradient.")
        algorithm = replace(algorithm, **{steps: _STEPS[steps]})
    if "compressed" in asked:
        if "codec" not in fields:
            raise ValueError(f"compressed: {algorithm.title} has no codec.")
        algorithm = replace(algorithm, codec=Sparse(share=0.25))
    if "private" in asked:
        algorithm = _private(algorithm, fields)
    return algorithm


def _private(algorithm: Any, fields: set[str]) -> Any:
    """The algorithm with noise and what bounds its effect."""
    if takes_noise(type(algorithm)):
        return replace(algorithm, gradients=Gradients(clip=1.0, mechanism=Gaussian(2.0)))
    clipped = Gradients(clip=1.0, per="batch", norm="l1")
    if "dpps" in fields:
        bound = {"gradients": clipped} if "gradients" in fields else {"clip": 1.0}
        return replace(algorithm, dpps=DPPS(b=1.0, noise_rate=0.01), **bound)
    if {"mechanism", "clip", "sigma"} <= fields:
        return replace(algorithm, mechanism=Gaussian(2.0), clip=1.0, sigma=1.0)
    for noise in ({"noise_x": 20.0, "noise_y": 20.0}, {"epsilon": 1.0}):
        if set(noise) <= fields:
            return replace(algorithm, gradients=replace(clipped, norm="l2"), **noise)
    raise ValueError(f"private: {algorithm.title} has no noise.")


@cache
def _networks(asked: frozenset[str]) -> tuple[Any, ...]:
    """Networks with what is asked for."""
    if "directed" in asked:
        some, other = (networks.erdos_renyi(_M, 0.4, directed=True, weights="out-degree", seed=seed) for seed in (0, 1))
        base = networks.periodic([some, other]) if "changing" in asked else some
    else:
        base = networks.erdos_renyi_rounds(_M, 0.6) if "changing" in asked else networks.ring(_M)
    if "late" in asked and "changing" in asked:
        raise ValueError("late: delayed messages are simulated on fixed networks only.")
    if "late" in asked:
        return (networks.delays(base, 2),)
    if "lossy" in asked:
        rules = ("sender",) if "directed" in asked else ("own", "sender")
        return tuple(networks.link_loss(base, 0.1, weights=one) for one in rules)
    return (base,)
