"""Two wrappers of a network, in either order, keep every setting of both, or are refused."""

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

from jdfl import network as nw
from tests.later import Later

KEY, M, ROUNDS = jax.random.key(3), 5, 10
KEYS = Later(jax.random.split, KEY, ROUNDS)
WRAPPERS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {  # with two values of every setting
    "timed": (
        nw.timed,
        {"compute": nw.FixedTime(0.1), "latency": nw.FixedTime(0.2), "bandwidth": 10.0, "slowness": [1.0] * M},
        {"compute": nw.FixedTime(0.3), "latency": nw.FixedTime(0.4), "bandwidth": 20.0, "slowness": [2.0] * M}
        | {"first": True},
    ),
    "link_loss": (nw.link_loss, {"p": 0.3}, {"p": 0.7, "directed": True, "weights": "rescale"}),
    "bursty_loss": (
        nw.bursty_loss,
        {"to_bad": 0.3, "to_good": 0.4},
        {"to_bad": 0.9, "to_good": 0.9, "good": 0.5, "bad": 0.5, "directed": True, "weights": "rescale"},
    ),
    "node_participation": (nw.node_participation, {"p": 0.5}, {"p": 0.9, "weights": "rescale"}),
    "outages": (nw.outages, {"down": 0.3, "up": 0.4}, {"down": 0.6, "up": 0.9, "weights": "rescale"}),
    "membership": (
        nw.membership,
        {"joins": [0, 2, 0, 0, 1], "leaves": [7, 9, 9, 9, 9]},
        {"joins": [3, 0, 0, 0, 0], "leaves": [9, 9, 9, 5, 9], "weights": "rescale"},
    ),
    "partial_communication": (nw.partial_communication, {"rate": 0.5}, {"rate": 0.8, "include_self": False}),
    "synchronised": (nw.synchronised, {"every": 3}, {"every": 4}),
    "delays": (nw.delays, {"bound": 2, "p": 0.3}, {"bound": 3, "p": 0.8}),
}


def rounds(network: Any) -> list[np.ndarray]:
    """All numbers of some rounds of a network in a run."""
    inside = nw.in_run(network, KEY, 64)
    graphs = jax.vmap(inside.at)(np.arange(ROUNDS), KEYS())
    return [np.asarray(leaf) for leaf in jax.tree.leaves(graphs)]


def equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@pytest.mark.rotated(16)
@pytest.mark.parametrize(("outer", "inner"), list(product(WRAPPERS, WRAPPERS)))
def test_both_keep_their_settings_or_are_refused(outer: str, inner: str) -> None:
    (around, out, others_out), (within, own, others) = WRAPPERS[outer], WRAPPERS[inner]
    base = nw.complete(M)
    if outer == inner == "membership":  # other nodes, or nothing is missing for the second one
        out = out | {"joins": [1, 0, 0, 2, 0]}
    try:
        usual = rounds(around(within(base, **own), **out))
    except ValueError:
        assert (outer, inner) in REFUSED
        return
    assert (outer, inner) not in REFUSED
    for name, value in others.items():
        try:
            net = around(within(base, **own | {name: value}), **out)
        except ValueError:
            assert outer == "partial_communication"
            assert name in ("weights", "include_self")
            continue
        assert name == "first" or not equal(usual, rounds(net)), f"{inner}'s {name} is dropped"
    for name, value in others_out.items():
        net = around(within(base, **own), **out | {name: value})
        assert name == "first" or not equal(usual, rounds(net)), f"{outer}'s {name} is dropped"


REFUSED = {("timed", "timed")}
REFUSED |= {("delays", inner) for inner in WRAPPERS}
SURE = ("partial_communication", "node_participation", "outages", "membership")  # around no lost messages
REFUSED |= {(outer, inner) for outer in SURE for inner in ("link_loss", "bursty_loss")}
REFUSED |= {(outer, "synchronised") for outer in WRAPPERS}
REFUSED |= {(outer, "delays") for outer in ("synchronised", "node_participation", "outages", "membership")}
