"""`jdfl account --observer`: what an observer of some of the messages learns in a planned run."""

from typing import Any

from jdfl.config import RunConfig, build, key_of
from jdfl.engine.accountant import account_plan
from jdfl.engine.compiling import use_cache
from jdfl.observers import (
    Coalition,
    Everyone,
    Exposure,
    FinalModels,
    Neighbour,
    Observer,
    Pairs,
    Server,
    observe,
    observe_pairs,
)


def check(options: Any) -> None:
    """Refuse flags that do not go with the observer: ValueError naming them."""
    observer, nodes = options.observer, options.nodes
    others = {"releases": options.releases is not None, "run": options.run is not None}
    if observer is not None and (clash := [name for name, given in others.items() if given]):
        raise ValueError(
            f"Expected --observer for a run that the flags describe, got it with --{clash[0]}. A finished run's "
            "settings are in its folder: --config FOLDER/config.yaml."
        )
    if options.figure is not None and observer != "pairs":
        raise ValueError(f"Expected --figure with --observer pairs, got observer = {observer!r}.")
    if options.sums and observer not in ("neighbour", "coalition", "server", "pairs"):
        raise ValueError(
            f"Expected --sums with an observer of messages that are added up, got observer = {observer!r}."
        )
    if nodes and observer not in ("neighbour", "coalition", "final-models"):
        raise ValueError(f"Expected --nodes with an observer that is some of them, got observer = {observer!r}.")
    if observer == "neighbour" and len(nodes) != 1:
        raise ValueError(f"Expected one node with --observer neighbour, got nodes = {nodes}. Several are a coalition.")


def observed(config: RunConfig, options: Any) -> Exposure | Pairs:
    """What is learnt in the run; a figure is drawn if one is wanted."""
    use_cache()
    algorithm, problem, network, stop = build(config)
    how: Any = {"steps": config.steps, "key": key_of(config), "delta": config.privacy.delta}
    account_plan(algorithm, problem, network, stop=stop, **how)  # which a stop rule on data is refused by
    if options.observer != "pairs":
        return observe(algorithm, problem, network, _observer(options), **how)
    found = observe_pairs(algorithm, problem, network, sums=options.sums, **how)
    if options.figure is not None:
        from jdfl.lab.drawing import heat_map

        heat_map(found, options.figure)
    return found


def _observer(options: Any) -> Observer:
    nodes, sums = options.nodes, options.sums
    return {
        "everyone": lambda: Everyone(),
        "neighbour": lambda: Neighbour(nodes[0], sums),
        "coalition": lambda: Coalition(nodes, sums),
        "final-models": lambda: FinalModels(nodes or None),
        "server": lambda: Server(sums),
    }[options.observer]()
