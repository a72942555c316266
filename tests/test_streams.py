"""Random streams: unique by construction, independent, and private where receivers must not know them."""

import pkgutil
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms.algorithm import _CODEC
from jdfl.algorithms.round import MODEL, TRACKER, RoundContext
from jdfl.base import streams
from jdfl.base.streams import Stream
from tests.algorithms.play import direct
from tests.later import Later
from tests.refused import refused

KEY, NODE = Later(jax.random.key, 3), np.arange(5, dtype=np.int32)
PROBLEM = Later(jdfl.problems.example1, m=4, n=12, s=2, rows=(8, 12), seed=5)
NETWORK = Later(jdfl.network.complete, 4)


def every_stream():
    """Those of all modules of the package."""
    for module in pkgutil.walk_packages(jdfl.__path__, "jdfl."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return [one for one in streams.declared().values() if not one.name.startswith(("toy.", "test."))]


def key_of(stream, now):
    """The stream's key at a moment."""
    return stream.of(getattr(now, stream.root))


def test_no_two_streams_give_a_node_the_same_key_or_numbers_that_go_together():
    known = every_stream()
    assert len({one.number for one in known}) == len(known) > 30
    run = streams.Keys.of(KEY())
    moments = [run.at_start(), run.at_round(0), run.at_round(1)]
    keys = [streams.each(key_of(one, now), NODE, i) for one in known for now in moments for i in (0, 1)]
    data = np.concatenate([np.asarray(jax.random.key_data(one)) for one in keys])
    assert len(np.unique(data, axis=0)) == len(data)
    x = jax.vmap(lambda key: jax.random.normal(key, (4096,)))(jnp.concatenate(keys)[:: len(NODE)])
    found = np.corrcoef(np.asarray(x)) - np.eye(len(x))
    assert np.abs(found).max() < 6 / np.sqrt(4096)  # of some 3e4 pairs the largest is near 4.2


def test_names_numbers_and_roots_are_declared_once(monkeypatch):
    every_stream()
    with refused("updates.noise"):
        Stream("updates.noise", "private")
    with refused("root"):
        Stream("test.root", "public")  # pyright: ignore[reportArgumentType]
    context = RoundContext(jnp.int32(0), KEY(), NETWORK().graph, NODE)
    with refused("network"):  # a network's stream in a round
        direct(context, PROBLEM()).keys(Stream.again("test.link", "network"))
    monkeypatch.setattr(streams, "_streams", {})
    monkeypatch.setattr(streams, "_number", lambda name: 33)
    Stream("test.one", "private")
    with refused("test.one"):  # or both would draw the same numbers
        Stream("test.two", "shared")


def test_all_noise_is_private_and_all_that_codecs_share_is_not():
    known = {one.name: one.root for one in every_stream()}
    noise = {root for name, root in known.items() if "noise" in name or "batch" in name}
    assert noise == {"private"}
    assert {known[one.name] for one in (_CODEC, MODEL.stream, TRACKER.stream)} == {"shared"}


def test_receivers_cannot_recompute_noise():
    """Normal numbers of any stream under the shared root, which they know, do not go together with it."""
    context = RoundContext(jnp.int32(3), KEY(), NETWORK().graph, jnp.arange(4, dtype=jnp.int32))
    round = direct(context, PROBLEM())
    sent = np.asarray(jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(1.0))(jnp.zeros((4, 500)), round))
    shared = streams.Keys.of(KEY()).shared
    keys = jnp.concatenate([one.keys(shared, round.node) for one in every_stream()])
    guessed = np.asarray(jax.vmap(lambda key: jax.random.normal(key, (500,)))(keys)).reshape(-1, 4, 500)
    lengths = np.linalg.norm(sent, axis=1) * np.linalg.norm(guessed, axis=2)
    assert np.abs(np.sum(sent * guessed, axis=2) / lengths).max() < 0.25  # 5.6 deviations
