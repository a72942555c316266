"""What a run refuses, before anything is compiled."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import jdfl
from tests.refused import each_refused, refused
from tests.toy import SLOW, Gossip, M, problem, ring, run


def test_a_seed_is_its_typed_key_and_what_is_no_key_is_refused():
    seed, wide, typed, other = (run(SLOW, key=key).params for key in (5, np.int64(5), jax.random.key(5), 6))
    np.testing.assert_array_equal(seed, typed)
    np.testing.assert_array_equal(seed, wide)
    assert not np.isclose(seed, other).any()
    each_refused(run, *({"key": key} for key in (-1, "0", 0.0, True, 2**32)))
    for key in (jnp.zeros(2, jnp.uint32), jax.random.key(0)[None]):
        with refused("key"):
            run(key=key)


def with_options(**given):
    return run(options=jdfl.Options(**given))


def by_node(w, problem):
    return jnp.sum(w, axis=1)


def test_settings_that_make_no_sense_are_refused(compilations):
    run()  # the checks themselves are compiled by now
    before = compilations()
    each_refused(run, *({"steps": steps} for steps in (0, True, 2.0, 2**31)), {"every": 0})
    each_refused(with_options, {"chunk": 0}, {"chunk": True}, {"devices": "x"}, {"kernels": 1})
    for options, named, values in (
        ({"options": jdfl.Options(kernels=True)}, ("options.kernels",), {}),
        ({"options": jdfl.Options(diverged_above=np.array([1.0, 2.0]))}, ("diverged_above",), {}),
        ({"network": ring(5)}, (), {"network.m": 5, "problem.m": 6}),
        ({"metrics": ["nothing"]}, (), {"metrics": "nothing"}),
        ({"metrics": ["accuracy"]}, ("'accuracy'",), {}),
        ({"stop": jdfl.consensus_below(-1.0)}, (), {"tolerance": -1.0}),
        ({"algorithm": Gossip(rate=-1.0)}, (), {"rate": -1.0}),
    ):
        with refused(*named, **values):
            run(**options)
    assert compilations() == before
    broken = problem.data[0].at[4, 2, 7].set(jnp.nan)
    with refused("data[0]", "node 4", "example 2"):
        run(problem=problem.replace(data=(broken, problem.data[1])))
    with refused("'by_node'", "shape (6,)"):
        run(metrics=["objective", by_node])


ONES = np.ones(M)
NOISY = {"mechanism": jdfl.Gaussian(1.0)}


def test_ceps_refuses_settings_before_anything_is_compiled(compilations):
    run()
    before = compilations()
    for name, wrong in {
        "s": (21, 0, 2.0, True),
        "rate": (0.0, 1.5, float("nan")),
        "mu": (0.0, -1.0, float("inf")),
        "sigma": (-1.0,),
        "period": (3,),
        "block": (0,),
        **dict.fromkeys(("noise", "sigma_rule", "first", "own", "own_coded", "phi"), ("wrong",)),
    }.items():
        each_refused(lambda **given: run(jdfl.CEPS(**{"s": 3, **given})), *({name: value} for value in wrong))
    for fields, named, values in (
        ({"periods": (0, 3)}, (), {"periods[0]": 0}),
        ({"periods": (4, 3)}, ("periods",), {"high": 3}),
        *(({"period": one}, ("period",), {}) for one in (ONES, np.ones(5, int), np.array([1, 2, 0, 1, 1, 1]))),
        *(({"sigma": one}, ("sigma",), {}) for one in (0 * ONES, np.nan * ONES, np.ones((6, 1)))),
        ({"step_scale": 0.0}, (), {"step_scale": 0.0}),
        ({"mechanism": jdfl.Gaussian(0.0), "clip": 1.0}, (), {"mechanism.multiplier": 0.0}),
        (NOISY, ("clip",), {}),  # noise without clipping protects nobody
        (NOISY | {"clip": -1.0}, (), {"clip": -1.0}),
        (NOISY | {"sensitivity": 0.0}, (), {"sensitivity": 0.0}),
        (NOISY | {"sensitivity": -1.0}, (), {"sensitivity": -1.0}),
    ):
        with refused(*named, **values):
            run(jdfl.CEPS(**{"s": 3, **fields}))
    wrong = ({"d": 0}, {"gamma": 1.0}, {"gamma": float("nan")}, {"s": 21}, {"flips": 9})
    choices = ({"ensemble": "dct"}, {"inverse": "log"}, {"norm_bits": 16})
    each_refused(lambda **given: run(jdfl.CEPS(s=3, codec=jdfl.OneBit(**given))), *wrong, *choices, d=8)
    assert compilations() == before


Former = type("Former", (), dict.fromkeys(("check", "prepare", "init", "step"), lambda *_: None))
CODEC = ("contraction", "lanes", "check", "prepare", "rows", "encode", "decode", "bits", "pack", "unpack")
FormerCodec = type("FormerCodec", (), dict.fromkeys((*CODEC, "free", "pairwise", "unbiased"), lambda *_: None))


@jdfl.base.struct.dataclass
class Heir(jdfl.Algorithm):
    """One of the former protocol that inherits."""

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


@jdfl.base.struct.dataclass
class HeirCodec(jdfl.Sparse):
    """A codec of the former protocol that inherits."""

    def encode(self, key, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        return x


@pytest.mark.parametrize(
    ("place", "wrong", "named"),
    [
        ("algorithm", Former(), ("algorithm", "docs/own-algorithm.md")),
        ("algorithm", Heir(), ("Heir.init(round)", "init(problem, round)")),
        ("algorithm", Plain(), ("Plain", "jdfl.base.struct.dataclass")),
        ("algorithm", Teller(), ("Teller", "annotated")),
        ("algorithm", jdfl.CEPS, ("algorithm",)),
        ("algorithm", "ceps", ("algorithm",)),
        ("algorithm", jdfl.CEPS(s=3, codec="one-bit"), ("codec",)),
        ("algorithm", jdfl.CEPS(s=3, codec=FormerCodec()), ("codec", "docs/own-codec.md")),
        ("algorithm", jdfl.CEPS(s=3, codec=HeirCodec()), ("HeirCodec.encode(key, x, wire)", "encode(key, x)")),
        ("algorithm", jdfl.CEPS(s=3, mechanism=0.5), ("mechanism",)),
        ("algorithm", jdfl.CEPS(s=3, periods=5), ("periods = 5",)),
        ("algorithm", jdfl.CEPS(s=3, own="always", rate=0.1), ("rate = 0.1",)),
        ("problem", "qsar", ("problem",)),
        ("network", nx.cycle_graph(6), ("network",)),
        ("stop", 5e-3, ("stop",)),
    ],
)
def test_things_of_the_wrong_kind_are_named(place, wrong, named):
    given = {"algorithm": jdfl.CEPS(s=3), "problem": problem, "network": ring(M), "stop": None, place: wrong}
    with refused(*named):
        jdfl.run(given["algorithm"], given["problem"], given["network"], steps=2, stop=given["stop"])
