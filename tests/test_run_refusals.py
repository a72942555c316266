"""What a run refuses, and when."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import jdfl
from tests.later import Later
from tests.toy import SLOW, Gossip, M, problem, ring, run


def test_a_seed_is_its_typed_key():
    seed, wide, typed, other = (run(SLOW, key=key).params for key in (5, np.int64(5), jax.random.key(5), 6))
    np.testing.assert_array_equal(seed, typed)
    np.testing.assert_array_equal(seed, wide)
    assert not np.isclose(seed, other).any()


@pytest.mark.parametrize(
    "key",
    [-1, "0", 0.0, True, 2**32, Later(lambda: jnp.zeros(2, jnp.uint32)), Later(lambda: jax.random.key(0)[None])],
)
def test_what_is_no_key_is_refused(key):
    with pytest.raises(ValueError, match=r"Expected .*key"):
        run(key=key)


broken = Later(lambda: problem.data[0].at[4, 2, 7].set(jnp.nan))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, "steps = 0"),
        ({"steps": True}, "steps = True"),
        ({"steps": 2.0}, "steps = 2.0"),
        ({"steps": 2**31}, "steps = 2147483648"),
        ({"every": 0}, "every = 0"),
        ({"options": jdfl.Options(chunk=0)}, "chunk = 0"),
        ({"options": jdfl.Options(chunk=True)}, "chunk = True"),
        ({"options": jdfl.Options(devices="x")}, "devices = 'x'"),
        ({"options": jdfl.Options(kernels=1)}, "kernels = 1"),
        ({"options": jdfl.Options(kernels=True)}, "Expected a GPU with options.kernels = True"),
        ({"options": jdfl.Options(diverged_above=np.array([1.0, 2.0]))}, "diverged_above"),
        (Later(lambda: {"network": ring(5)}), "network.m = 5 and problem.m = 6"),
        (
            Later(lambda: {"problem": problem.replace(data=(broken(), problem.data[1]))}),
            r"data\[0\], got nan at node 4, example 2",
        ),
        ({"metrics": ["nothing"]}, "metrics = 'nothing'"),
        ({"metrics": ["accuracy"]}, "'accuracy' needs labelled"),
        ({"stop": jdfl.consensus_below(-1.0)}, "tolerance = -1.0"),
        ({"algorithm": Gossip(rate=-1.0)}, "rate = -1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, words, compilations):
    run()  # the checks themselves are compiled by now
    before = compilations()
    with pytest.raises(ValueError, match=words):
        run(**options)
    assert compilations() <= before + ("problem" in options)  # finding the entry that is not finite


def by_node(w, problem):
    return jnp.sum(w, axis=1)


def test_a_metric_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match=r"one number from the metric 'by_node', got an array of shape \(6,\)"):
        run(metrics=["objective", by_node])


ones = np.ones(M)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"s": 21}, "s >= 1 and <= 20, got s = 21. s is the number of nonzeros"),
        ({"s": 0}, "s = 0"),
        ({"s": 2.0}, "s = 2.0"),
        ({"s": True}, "s = True"),
        ({"rate": 0.0}, r"rate in \(0, 1\], got rate = 0.0.*Fraction of its in-neighbours"),
        ({"rate": 1.5}, "rate = 1.5"),
        ({"rate": float("nan")}, "rate = nan"),
        ({"mu": 0.0}, "mu > 0 and finite, got mu = 0.0"),
        ({"mu": -1.0}, "mu = -1.0"),
        ({"mu": float("inf")}, "mu = inf"),
        ({"periods": (0, 3)}, r"periods\[0\] >= 1, got periods\[0\] = 0"),
        ({"periods": (4, 3)}, r"high >= 4, got high = 3.*periods"),
        ({"period": np.array([1, 2, 0, 1, 1, 1])}, "period >= 1, got period = "),
        ({"period": ones}, "whole numbers period"),
        ({"period": np.ones(5, int)}, r"period of shape \(6\), got \(5,\). Give one period"),
        ({"period": 3}, r"period to be an array.*got period = 3.*of every node"),
        ({"sigma": np.ones((6, 1))}, r"sigma of shape \(6\), got \(6, 1\). Give one constant"),
        ({"sigma": 0 * ones}, "sigma > 0 and finite"),
        ({"sigma": np.nan * ones}, "sigma > 0 and finite"),
        ({"noise": "keep"}, "noise to be one of 'kept', 'literal', got noise = 'keep'"),
        ({"sigma_rule": "n"}, "sigma_rule to be one of"),
        ({"first": "one"}, "first to be one of"),
        ({"own": "never"}, "own to be one of"),
        ({"own_coded": "yes"}, "own_coded to be one of"),
        ({"phi": "both"}, "phi to be one of"),
        ({"block": 0}, "block = 0"),
        ({"codec": jdfl.OneBit(d=0)}, "d >= 1, got codec.d = 0"),
        ({"codec": jdfl.OneBit(d=8, gamma=1.0)}, "gamma > 1 and finite, got codec.gamma = 1.0"),
        ({"codec": jdfl.OneBit(d=8, gamma=float("nan"))}, "gamma = nan"),
        ({"codec": jdfl.OneBit(d=8, s=21)}, "s = 21"),
        ({"codec": jdfl.OneBit(d=8, flips=9)}, "flips = 9"),
        ({"step_scale": 0.0}, "step_scale > 0 and finite"),
        ({"codec": jdfl.Sparse(value="int2")}, "value to be one of"),
        ({"codec": jdfl.OneBit(d=8, ensemble="dct")}, "ensemble to be one of"),
        ({"codec": jdfl.OneBit(d=8, inverse="log")}, "inverse to be one of"),
        ({"codec": jdfl.OneBit(d=8, norm_bits=16)}, "norm_bits to be one of"),
        ({"codec": jdfl.Sparse(s=0)}, "s = 0"),
        ({"codec": jdfl.Dense("float8")}, "precision to be one of"),
        ({"mechanism": jdfl.Gaussian(0.0), "clip": 1.0}, "multiplier > 0 and finite, got mechanism.multiplier = 0.0"),
        ({"mechanism": jdfl.Gaussian(1.0)}, "Noise without clipping protects nobody: give clip"),
        ({"mechanism": jdfl.Gaussian(1.0), "clip": -1.0}, "clip = -1.0"),
        ({"sigma": -1.0}, "sigma > 0 and finite, got sigma = -1.0"),
        ({"mechanism": jdfl.Gaussian(1.0), "sensitivity": 0.0}, "sensitivity > 0 and finite, got sensitivity = 0.0"),
        ({"mechanism": jdfl.Gaussian(1.0), "sensitivity": -1.0}, "sensitivity = -1.0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else ",".join(value),
)
def test_ceps_refuses_settings_before_anything_is_compiled(fields, words, compilations):
    run()
    before = compilations()
    with pytest.raises(ValueError, match=words):
        run(jdfl.CEPS(**{"s": 3, **fields}))
    assert compilations() == before


class Former:
    """An algorithm of the former protocol, which inherits from nothing."""

    def check(self, problem, network): ...
    def prepare(self, problem, round): ...
    def init(self, problem, round): ...
    def step(self, state, problem, round): ...


@jdfl.base.struct.dataclass
class Heir(jdfl.Algorithm):
    """One that inherits from it."""

    def init(self, problem, round):  # pyright: ignore[reportIncompatibleMethodOverride]
        return problem.begin(), None

    def step(self, state, problem, round):  # pyright: ignore[reportIncompatibleMethodOverride]
        return state, None


class Plain(jdfl.Algorithm):
    def init(self, round):
        return round.problem.begin()

    def step(self, state, round, /):
        return round.mix(state)


@jdfl.base.struct.dataclass
class Teller(jdfl.DPSGD):
    """One that qualifies its guarantee by a method that has another name now."""

    def told(self, guarantee, problem, steps):
        return guarantee


class FormerCodec:
    """A codec of the former protocol, whose `prepare` gives a codec."""

    free, pairwise, unbiased = True, False, False

    def contraction(self, n, sparsity): ...
    def lanes(self, n): ...
    def check(self, n, m, sparsity): ...
    def prepare(self, key, node, n, sparsity, dtype): ...
    def rows(self, i): ...
    def encode(self, key, x): ...
    def decode(self, key, payload, n, side=None): ...
    def bits(self, n): ...
    def pack(self, payload, n): ...
    def unpack(self, data, n): ...


@jdfl.base.struct.dataclass
class HeirCodec(jdfl.Sparse):
    """One that inherits from it."""

    def encode(self, key, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        return x


@pytest.mark.parametrize(
    ("place", "wrong", "words"),
    [
        ("algorithm", Former(), r"algorithm to be an algorithm.*jdfl\.Algorithm.*docs/own-algorithm\.md"),
        ("algorithm", Heir(), r"Heir\.init\(round\), got init\(problem, round\)\..*Algorithm: see docs/own-algorithm"),
        (
            "algorithm",
            Plain(),
            r"Plain to be a jdfl\.base\.struct\.dataclass, got a plain class\..*docs/own-algorithm\.md",
        ),
        ("algorithm", Teller(), r"no method `told` in Teller: rename it to `annotated`"),
        ("algorithm", jdfl.CEPS, "algorithm to be an algorithm"),
        ("algorithm", "ceps", "algorithm to be an algorithm"),
        ("algorithm", jdfl.CEPS(s=3, codec="one-bit"), "codec to be a codec"),
        (
            "algorithm",
            jdfl.CEPS(s=3, codec=FormerCodec()),  # pyright: ignore[reportArgumentType]
            r"codec to be a codec.*inherit from jdfl\.codecs\.Codec: see docs/own-codec\.md",
        ),
        (
            "algorithm",
            jdfl.CEPS(s=3, codec=HeirCodec()),
            r"HeirCodec\.encode\(key, x, wire\), got encode\(key, x\)\..*Codec: see docs/own-codec\.md",
        ),
        ("algorithm", jdfl.CEPS(s=3, mechanism=0.5), "mechanism to be a noise mechanism"),
        ("algorithm", jdfl.CEPS(s=3, periods=5), "periods = 5"),
        ("algorithm", jdfl.CEPS(s=3, own="always", rate=0.1), "rate = 0.1"),
        ("problem", "qsar", "problem to be a problem"),
        ("network", nx.cycle_graph(6), "network to be a network"),
        ("stop", 5e-3, "stop to be a stop rule"),
    ],
)
def test_things_of_the_wrong_kind_are_named(place, wrong, words):
    given = {"algorithm": jdfl.CEPS(s=3), "problem": jdfl.problems.example1(m=6, n=20, s=3, rows=(8, 9)), "stop": None}
    given |= {"network": jdfl.network.ring(6), place: wrong}
    with pytest.raises(ValueError, match=words):
        jdfl.run(given["algorithm"], given["problem"], given["network"], steps=2, stop=given["stop"])
