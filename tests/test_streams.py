"""Random streams: unique by construction, independent, and private where receivers must not know them."""

import itertools
import pkgutil
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jdfl
from jdfl.algorithms.algorithm import _CODEC
from jdfl.algorithms.book import MODEL, TRACKER
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.program import Program
from jdfl.base import streams, struct
from jdfl.base.streams import Stream
from jdfl.engine import provenance, stepping
from tests.algorithms.play import direct
from tests.later import Later

KEY, NODE = jax.random.key(3), jnp.arange(5, dtype=jnp.int32)
PROBLEM = Later(jdfl.problems.example1, m=4, n=12, s=2, rows=(8, 12), seed=5)
NETWORK = Later(jdfl.network.complete, 4)
NOISY = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.5)))


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
    run = streams.Keys.of(KEY)
    moments = [run.at_start(), run.at_round(0), run.at_round(1)]
    keys = [streams.each(key_of(one, now), NODE, i) for one in known for now in moments for i in (0, 1)]
    data = np.concatenate([np.asarray(jax.random.key_data(one)) for one in keys])
    assert len(np.unique(data, axis=0)) == len(data)
    x = jax.vmap(lambda key: jax.random.normal(key, (4096,)))(jnp.concatenate(keys)[:: len(NODE)])
    found = np.corrcoef(np.asarray(x)) - np.eye(len(x))
    assert np.abs(found).max() < 6 / np.sqrt(4096)  # of some 3e4 pairs the largest is near 4.2


@pytest.mark.parametrize("name", ["updates.noise", "codec"])
def test_a_name_is_declared_once(name):
    every_stream()
    with pytest.raises(ValueError, match=name):
        Stream(name, "private")
    assert Stream.again(name, streams.declared()[name].root) is streams.declared()[name]


def test_two_names_of_one_number_are_refused(monkeypatch):
    """Without the check both would draw the same numbers."""
    monkeypatch.setattr(streams, "_streams", {})
    monkeypatch.setattr(streams, "_number", lambda name: 33)
    Stream("test.one", "private")
    with pytest.raises(ValueError, match=r"test\.one"):
        Stream("test.two", "shared")


def test_an_unknown_root_and_a_networks_stream_in_a_round_are_refused():
    with pytest.raises(ValueError, match="root"):
        Stream("test.root", "public")  # pyright: ignore[reportArgumentType]
    moment = Moment(jnp.int32(0), KEY, NETWORK().graph, NODE)
    with pytest.raises(ValueError, match="network"):
        direct(moment, PROBLEM()).keys(Stream.again("test.link", "network"))


def test_all_noise_is_private_and_all_that_codecs_share_is_not():
    known = {one.name: one.root for one in every_stream()}
    noise = {name: root for name, root in known.items() if "noise" in name or "batch" in name}
    assert len(noise) > 6
    assert set(noise.values()) == {"private"}
    assert {known[one.name] for one in (_CODEC, MODEL.stream, TRACKER.stream)} == {"shared"}


def cosine(stream):
    """Of a node's noise, and of what a receiver can compute: normal numbers of a stream under the shared root."""
    moment = Moment(jnp.int32(3), KEY, NETWORK().graph, jnp.arange(4, dtype=jnp.int32))
    round = direct(moment, PROBLEM())
    sent = np.asarray(jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(1.0))(jnp.zeros((4, 500)), round))
    keys = stream.keys(streams.Keys.of(KEY).shared, round.node)
    guessed = np.asarray(jax.vmap(lambda key: jax.random.normal(key, (500,)))(keys))
    lengths = np.linalg.norm(sent, axis=1) * np.linalg.norm(guessed, axis=1)
    return float(np.abs(np.sum(sent * guessed, axis=1) / lengths).max())


def test_receivers_cannot_recompute_noise_and_could_where_codecs_draw_from_its_stream(monkeypatch):
    """The old bug, one number of two streams under one root. Planted, it is seen."""
    assert max(cosine(one) for one in every_stream()) < 0.25  # 5.6 deviations
    monkeypatch.setattr(Stream, "number", 33)
    monkeypatch.setattr(streams, "_ROOTS", dict.fromkeys(streams._ROOTS, 1))
    assert cosine(MODEL.stream) > 0.99


def run(algorithm, problem, network, steps=1):
    return np.asarray(jdfl.run(algorithm, problem, network, key=0, steps=steps, metrics=[]).params)


def noise_of(algorithm, problem, network):
    """The noise of one round, in units of its scale."""
    quiet = algorithm.replace(gradients=algorithm.gradients.replace(mechanism=None))
    scale = algorithm.lr * algorithm.gradients.clip * algorithm.gradients.mechanism.multiplier
    return (run(algorithm, problem, network) - run(quiet, problem, network)) / scale


@pytest.fixture(scope="module")
def reference():
    return noise_of(NOISY, PROBLEM(), NETWORK()).ravel()


def changed(what):
    """A run that differs from `NOISY` on PROBLEM and NETWORK in one thing."""
    data = PROBLEM().data
    other = PROBLEM().replace(data=(data[0].at[1, 2].multiply(-1.0), data[1]))
    clip = NOISY.replace(gradients=NOISY.gradients.replace(clip=2.0))
    steps = [NOISY.replace(optimizer=lambda lr, times=times: optax.sgd(times * lr)) for times in (1.0, 2.0)]
    return {
        "a function": (steps[0], PROBLEM(), NETWORK()),
        "what a function holds": (steps[1], PROBLEM(), NETWORK()),
        "a class": (struct.dataclass(type("DPSGD", (jdfl.DPSGD,), {}))(**vars(NOISY)), PROBLEM(), NETWORK()),
        "clip": (clip, PROBLEM(), NETWORK()),
        "multiplier": (
            NOISY.replace(gradients=NOISY.gradients.replace(mechanism=jdfl.Gaussian(0.6))),
            PROBLEM(),
            NETWORK(),
        ),
        "lr": (NOISY.replace(lr=0.06), PROBLEM(), NETWORK()),
        "one record": (NOISY, other, NETWORK()),
        "network": (NOISY, PROBLEM(), jdfl.network.ring(4)),
    }[what]


@pytest.mark.parametrize("what", ["clip", "multiplier", "lr", "one record", "network", "a function", "a class"])
def test_runs_that_differ_share_no_noise(what, reference):
    assert abs(np.corrcoef(noise_of(*changed(what)).ravel(), reference)[0, 1]) < 0.6  # 4.1 deviations of 48 numbers


def test_runs_that_differ_would_share_their_noise_without_the_fingerprint(monkeypatch):
    monkeypatch.setattr(stepping, "fingerprint", lambda *_, **__: ())
    one, other = noise_of(NOISY, PROBLEM(), NETWORK()).ravel(), noise_of(*changed("clip")).ravel()
    assert np.corrcoef(one, other)[0, 1] > 0.99


def test_functions_that_hold_other_values_share_no_noise():
    one, other = (changed(what)[0] for what in ("a function", "what a function holds"))

    def words(algorithm):
        return stepping.run_words(Program(algorithm), PROBLEM(), NETWORK())

    assert words(one) != words(other)
    assert words(one) == words(changed("a function")[0])


def test_the_same_settings_and_seed_give_the_same_bits():
    again = jdfl.DPSGD(lr=np.float32(0.05), gradients=jdfl.Gradients(clip=1, mechanism=jdfl.Gaussian(jnp.float32(0.5))))
    named = PROBLEM().replace(name="another name")
    np.testing.assert_array_equal(
        *(run(algorithm, problem, NETWORK(), 3) for algorithm, problem in ((NOISY, PROBLEM()), (again, named)))
    )
    longer = jdfl.run(NOISY, PROBLEM(), NETWORK(), key=0, steps=5, metrics=[], resume=None)
    first = jdfl.run(NOISY, PROBLEM(), NETWORK(), key=0, steps=3, metrics=[])
    np.testing.assert_array_equal(
        jdfl.run(NOISY, PROBLEM(), NETWORK(), key=0, steps=5, metrics=[], resume=first).params, longer.params
    )


def test_what_is_shared_and_the_network_do_not_depend_on_settings():
    one, other = (stepping.run_keys(KEY, Program(alg), PROBLEM(), NETWORK()) for alg in (NOISY, NOISY.replace(lr=0.06)))
    same = {
        name: bool((getattr(one, name) == getattr(other, name)).all())
        for name in ("shared", "network", "choice", "private")
    }
    assert same == {"shared": True, "network": True, "choice": True, "private": False}


def test_the_fingerprint_adds_up_over_processes_that_have_some_nodes_each(monkeypatch):
    from jdfl.devices.processes import Portion
    from jdfl.engine import provenance

    x = np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32)
    whole = provenance._digest(jnp.asarray(x))
    parts, sums = [np.array([0, 1, 2]), np.array([3, 4, 4])], []
    monkeypatch.setattr(provenance, "summed", lambda number: sums.append(number) or sum(sums) % 2**64)
    for places in parts:
        monkeypatch.setattr(provenance, "portion", lambda m, places=places: places)
        found = provenance._digest(Portion(x[places], 5))
    assert found == whole
    for i, j in itertools.combinations(range(5), 2):
        assert provenance._digest(jnp.asarray(x)[np.r_[:i, j, i + 1 : j, i, j + 1 : 5]]) != whole


def test_digests_that_look_like_huge_numbers_stay_as_they_are():
    """One digest in a thousand is digits around an e: as float32 two of them would both be infinite, with a warning."""
    words = [
        provenance._rounded(word, np.float32) for word in ("5091021061391e33", "5091021061391e34", "1e300", "-1e39")
    ]
    assert words == ["5091021061391e33", "5091021061391e34", "1e300", "-1e39"]
    assert provenance._rounded("inf", np.float32) == "inf"
    assert provenance._rounded("nan", np.float32) == "nan"
    assert provenance._rounded("0.1", np.float32) == repr(float(np.float32(0.1)))
