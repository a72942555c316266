"""What a run refuses before anything is compiled, and what it costs: programs and copies; counters hold."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import Program
from jdfl.engine import compiling, loop, stepping
from jdfl.engine.result import Tally
from tests.refused import each_refused, refused
from tests.toy import SLOW, Gossip, M, network, problem, regression, ring, run


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
    broken = problem().data[0].at[4, 2, 7].set(jnp.nan)
    with refused("data[0]", "node 4", "example 2"):
        run(problem=problem().replace(data=(broken, problem().data[1])))
    with refused("'by_node'", "shape (6,)"):
        run(metrics=["objective", by_node])


ONES = np.ones(M)
NOISY = {"mechanism": jdfl.Gaussian(1.0)}


def test_ceps_refuses_settings_before_anything_is_compiled(compilations):
    run()
    before = compilations()
    choices = ({name: "wrong"} for name in ("noise", "sigma_rule", "first", "own", "own_coded", "phi"))
    wrong = *({"s": s} for s in (21, 0, 2.0, True)), {"rate": float("nan")}, {"mu": float("inf")}, {"period": 3}
    each_refused(lambda **given: run(jdfl.CEPS(**{"s": 3, **given})), *wrong, *choices)
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


@jdfl.base.struct.dataclass
class Heir(jdfl.Algorithm):
    """One of the former protocol that inherits."""

    def init(self, problem, round):  # pyright: ignore[reportIncompatibleMethodOverride]
        return problem.initial_params(), None


class Plain(jdfl.Algorithm):
    """No dataclass."""


def test_things_of_the_wrong_kind_are_named():
    for place, wrong, *named in (
        ("algorithm", Heir(), "Heir.init(round)", "init(problem, round)"),
        ("algorithm", Plain(), "Plain", "jdfl.base.struct.dataclass"),
        ("algorithm", jdfl.CEPS),
        ("algorithm", "ceps"),
        ("algorithm", jdfl.CEPS(s=3, codec="one-bit"), "codec"),
        ("algorithm", jdfl.CEPS(s=3, mechanism=0.5), "mechanism"),
        ("algorithm", jdfl.CEPS(s=3, own="always", rate=0.1), "rate = 0.1"),
        ("problem", "qsar"),
        ("network", nx.cycle_graph(6)),
        ("stop", 5e-3),
    ):
        with refused(*(named or [place])):
            run(**{"algorithm": jdfl.CEPS(s=3), place: wrong})


def test_names_compile_nothing_state_is_donated_and_data_is_not_copied(compilations):
    run(problem=problem().replace(name="first"), network=network().replace(name="that"))
    before = compilations()
    renamed = run(problem=problem().replace(name="other"), network=network().replace(name="another"), steps=11)
    assert compilations() == before
    assert (renamed.problem_name, renamed.network_name) == ("other", "another")
    setting = stepping.setting(Program(Gossip()), problem(), network(), None, jax.random.key(0))
    program, carry, first = loop.start(setting, ())
    data = {leaf.shape for leaf in jax.tree.leaves(problem().data)}
    assert not data & {leaf.shape for leaf in jax.tree.leaves((program, carry, first))}
    setting = setting.replace(program=program)
    later, _ = loop.advance(carry, setting, jnp.int32(5), 1, 5, ())
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((carry.state, carry.communications)))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((later, setting)))


def test_counters_beyond_an_int32_and_totals_beyond_a_float():
    result = run(Gossip(messages=2**29), options=jdfl.Options(chunk=1))
    assert result.history["messages"].tolist() == [k * M * 2**29 for k in range(13)]
    tally = Tally({"a": 2**60 + 1, "b": 3}, 1)
    limbs = np.full((1, 8), 2**31 - 1, np.int32)
    counts = dict.fromkeys(("sent_a", "sent_b", "grads", "examples", "communications", "releases"), limbs)
    for k in range(4):
        tally.add(np.array([k]), {"objective": np.array([0.5], np.float32)}, counts)
    each = (2**31 - 1) * sum(16**place for place in range(8))
    totals = tally.totals()
    assert totals.messages == {"a": 4 * each, "b": 4 * each}
    assert totals.bits == 4 * each * (2**60 + 4)
    assert totals.gradients == totals.communications == totals.releases == 4 * each
    assert tally.history()["messages"].tolist() == [2 * k * each for k in range(1, 5)]


def test_everything_runs_in_float64():
    with jax.enable_x64(True):
        rules = jdfl.all_of(jdfl.consensus_below(1e-30), jdfl.objective_below(-1.0, every=2), jdfl.gradient_below(1e-9))
        result = run(SLOW, problem=regression(dtype=np.float64), metrics=None, steps=np.int64(6), stop=rules)
        assert result.params.dtype == np.float64
        assert np.isfinite(result.history.to_numpy(dtype=float)).all()


@pytest.mark.parametrize("times", [None, 1.5, 4])
def test_programs_are_forgotten_close_to_the_limit(monkeypatch, tmp_path, compilations, times):
    monkeypatch.setattr(compiling, "_LIMIT", tmp_path / "limit")
    function, x = jax.jit(lambda x: 3 * x + 1), jnp.float32(2)
    function(x)
    mapped, before = compiling.pieces(), compilations()
    if times and not mapped:
        pytest.skip("no file says what this process has mapped")
    if times:
        (tmp_path / "limit").write_text(f"{int(times * mapped)}\n")
    compiling.make_room()
    assert float(function(x)) == 7  # compared on the host, which compiles nothing
    assert (compilations() > before) == (times == 1.5)
