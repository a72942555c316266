"""What a run refuses, before anything is compiled."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

import jdfl
from tests.refused import each_refused, refused
from tests.toy import SLOW, Gossip, M, problem, ring, run


def test_a_seed_is_its_typed_key_and_what_is_no_key_is_refused():
    seed, typed, other = (run(SLOW, key=key).params for key in (np.int64(5), jax.random.key(5), 6))
    np.testing.assert_array_equal(seed, typed)
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
    for named, options in {
        "options.kernels": {"options": jdfl.Options(kernels=True)},
        "diverged_above": {"options": jdfl.Options(diverged_above=np.array([1.0, 2.0]))},
        "network.m = 5": {"network": ring(5)},
        "metrics = 'nothing'": {"metrics": ["nothing"]},
        "'accuracy'": {"metrics": ["accuracy"]},
        "tolerance = -1.0": {"stop": jdfl.consensus_below(-1.0)},
        "rate = -1.0": {"algorithm": Gossip(rate=-1.0)},
    }.items():
        with refused(named):
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
    for named, *wrong in (
        ("periods[0] = 0", {"periods": (0, 3)}),
        ("high = 3", {"periods": (4, 3)}),
        ("period", *({"period": one} for one in (ONES, np.ones(5, int), np.array([1, 2, 0, 1, 1, 1])))),
        ("sigma", *({"sigma": one} for one in (0 * ONES, np.nan * ONES, np.ones((6, 1))))),
        ("step_scale = 0.0", {"step_scale": 0.0}),
        ("mechanism.multiplier = 0.0", {"mechanism": jdfl.Gaussian(0.0), "clip": 1.0}),
        ("clip", NOISY, NOISY | {"clip": -1.0}),  # noise without clipping protects nobody
        ("sensitivity", NOISY | {"sensitivity": 0.0}, NOISY | {"sensitivity": -1.0}),
    ):
        for fields in wrong:
            with refused(named):
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


class Plain(jdfl.Algorithm):
    """No dataclass."""


@jdfl.base.struct.dataclass
class Teller(jdfl.DPSGD):
    """One that qualifies its guarantee by a method that has another name now."""

    def told(self, guarantee, problem, steps):
        return guarantee


def test_things_of_the_wrong_kind_are_named():
    for place, wrong, *named in (
        ("algorithm", Former(), "docs/own-algorithm.md"),
        ("algorithm", Heir(), "Heir.init(round)", "init(problem, round)"),
        ("algorithm", Plain(), "Plain", "jdfl.base.struct.dataclass"),
        ("algorithm", Teller(), "Teller", "annotated"),
        ("algorithm", jdfl.CEPS),
        ("algorithm", "ceps"),
        ("algorithm", jdfl.CEPS(s=3, codec="one-bit"), "codec"),
        ("algorithm", jdfl.CEPS(s=3, codec=FormerCodec()), "codec", "docs/own-codec.md"),
        ("algorithm", jdfl.CEPS(s=3, mechanism=0.5), "mechanism"),
        ("algorithm", jdfl.CEPS(s=3, own="always", rate=0.1), "rate = 0.1"),
        ("problem", "qsar"),
        ("network", nx.cycle_graph(6)),
        ("stop", 5e-3),
    ):
        with refused(*(named or [place])):
            run(**{"algorithm": jdfl.CEPS(s=3), place: wrong})
