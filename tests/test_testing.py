"""`jdfl.testing` passes what is sound, and every law of it is seen to fail."""

import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.base import struct
from tests.refused import refused

PRIVATE = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
_calls = itertools.count()


@struct.dataclass
class Sound(jdfl.Algorithm):
    """Decentralized gradient descent with noise."""

    lr: float = 0.02
    gradients: jdfl.Gradients = PRIVATE
    title: ClassVar[str] = "Sound"

    def init(self, round: jdfl.Round) -> Any:
        return round.problem.begin()

    def step(self, state: Any, round: jdfl.Round) -> Any:
        return round.mix(state) - self.lr * self.gradients(state, round)


def planted(change: Any) -> type[Sound]:
    """`Sound`, but for a change of what a step comes to, by the round."""

    class Planted(Sound):
        def step(self, state: Any, round: jdfl.Round) -> Any:
            return change(super().step(state, round), round)

    return struct.dataclass(Planted)


def counted(new: Any, round: jdfl.Round) -> Any:
    """Counts on the host how often it has been called."""
    shape = jax.ShapeDtypeStruct((), np.float32)
    return new + jax.pure_callback(lambda _: np.float32(next(_calls)), shape, round.k, vmap_method="sequential")


HostState = planted(counted)
Places = planted(lambda new, round: new + jnp.arange(round.m, dtype=new.dtype)[:, None])  # not the ids of nodes
CountsEmptyPlaces = planted(lambda new, round: new / round.graph.mask.shape[1])
Explodes = planted(lambda new, round: new * jnp.where(round.k > 20, 1e30, 1.0).astype(new.dtype))


def with_other(**methods: Any) -> type[Sound]:
    """`Sound` with some other methods."""
    return struct.dataclass(type("Planted", (Sound,), methods))


Foresight = with_other(plan=lambda self, problem, network, steps: np.full(steps, 1 / steps, np.float32))
Forgets = with_other(message_bits=lambda self, problem, codec: {})
Boasts = with_other(  # claims what its step does not do
    privacy=lambda self, problem, plan=None, steps=None: self.gradients.guarantee(problem),
    step=lambda self, state, round: round.mix(state) - self.lr * round.problem.gradients(state),
)


@struct.dataclass
class Compiled(Sound):
    """Its step length is a part of the program."""

    lr: float = struct.field(pytree_node=False, default=0.02)


PLANTED = {
    "chunks change nothing": HostState,
    "resumed runs are the same": HostState,
    "runs side by side equal single runs": HostState,
    "plans begin alike": Foresight,
    "one program for all values": Compiled,
    "relabelled nodes do the same": Places,
    "padding changes nothing": CountsEmptyPlaces,
    "runs stay finite": Explodes,
    "bits are those of the messages": Forgets,
    "claims rest on noise": Boasts,
}


@pytest.mark.slow
def test_an_algorithm_of_somebody_else_keeps_all_laws():
    testing.check_algorithm(Sound())


@pytest.mark.parametrize("law", testing.LAWS)
def test_every_law_is_seen_to_fail(law):
    with pytest.raises((AssertionError, KeyError, ValueError)):  # a run may refuse it before the law can
        testing.check_algorithm(PLANTED[law](), law)


def test_what_it_cannot_try_is_refused():
    with refused(law="be nice"):
        testing.check_algorithm(Sound(), law="be nice")
    with refused("network"):
        testing.check_algorithm(Sound(), network=jdfl.network.one_peer_exponential(6))
