"""Every experiment in its small version: rows, ledgers of messages that can be packed, figures that tell their origin.

What a single one must say is in SAID; the larger versions, and what experiments compute, are in files of their own.
"""

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jdfl
from experiments import (
    ceps_table3,
    directed_ceps,
    doadp_leakage,
    gallery,
    leakage,
    ledger,
    privacy_audit,
    sensitivities,
)
from experiments.common import Row
from jdfl.arrays import ops
from jdfl.engine import batch, outcome, runner, stepping
from tests import test_experiments_async as asynchronous
from tests.test_experiments import EXPERIMENT_ROW
from tests.toy import regression

slow = partial(pytest.param, marks=pytest.mark.slow)
SCRIPTS = [one.name for one in gallery.experiments()]
# They compute or attack, and have no results.
WITHOUT_RUNS = (
    "attack_bits",
    "doadp_leakage",
    "gpsp_quality",
    "leakage",
    "lemma2_counterexample",
    "muffliato_figure",
    "observers",
    "one_run_audit",
    "privacy_audit",
    "proof_steps",
    "published_sums",
    "robust_breakdown",
    "robustness_atlas",
    "theorem1_counterexample",
)
WITH_OWN_FIGURES = ("fair_comparison",)  # of comparisons, which tell their own runs
WITHOUT_FIGURE = ("codec_warnings", "sensitivities")
SEEDS = {"codecs": ["--seeds", "5"], "gpsp_quality": ["--seeds", "3"]}  # of means that must reach something
ROWS = 3  # of parameters that are packed as messages
ALONE = (jdfl.DECOR, jdfl.MAFALDA, jdfl.events.AsyncMethod)  # whose messages are the parameters and no number more
Cells = dict[tuple[str, str], Row]


@jax.jit
def encoded(keys, x, wire):
    """The messages of rows x [b, n], in one program for all results of one shape."""
    return wire.codec.encode(keys, x, wire)


def packed(algorithm, m: int, rows: np.ndarray) -> int:
    """Bytes of a message of an algorithm with a codec, which are the same for all `rows` [b, n] of b nodes."""
    n = rows.shape[1]
    sparsity = int(getattr(algorithm, "s", None) or n)
    wire = algorithm.codec.prepare(jax.random.key(1), jnp.arange(m, dtype=jnp.int32), n, sparsity, rows.dtype)
    x = ops.top_s(jnp.asarray(rows), sparsity)
    keys = jax.random.split(jax.random.key(2), len(rows))
    payload = encoded(keys, x, wire.rows(jnp.arange(len(rows))))
    messages = [jax.tree.map(lambda leaf: leaf[i], payload) for i in range(len(rows))]  # noqa: B023
    sizes = {len(algorithm.codec.pack(message, n, sparsity)) for message in messages}
    (size,) = sizes
    return size


def check(setting: stepping.Setting, params: np.ndarray, result: jdfl.Result) -> None:
    """The ledger's bits are those of messages as they are packed, times how many were sent."""
    totals, algorithm = result.totals, setting.algorithm.algorithm
    assert set(totals.messages) == set(totals.message_bits)
    assert totals.bytes == sum(totals.messages[one] * bits for one, bits in totals.message_bits.items()) / 8
    rows = np.asarray(params)[:ROWS]
    for channel, bits in totals.message_bits.items():
        if hasattr(algorithm, "codec"):
            rows = np.where(np.isfinite(rows), rows, 0).astype(rows.dtype)
            weight = rows.itemsize if isinstance(algorithm, jdfl.DirectedCEPS) else 0  # of push-sum, beside the vector
            assert packed(algorithm, setting.problem.m, rows) + weight == -(-bits // 8)
        elif channel == "sensitivity":  # one number to all
            assert bits == 8 * np.zeros((), rows.dtype).nbytes
        elif isinstance(algorithm, ALONE) and not isinstance(algorithm, jdfl.events.AGP):
            assert bits == 8 * rows[0].nbytes
        else:  # push-sum: the parameters of a node, of PartPSP those that are shared, and its weight
            shared = rows[0, : setting.problem.n_shared] if isinstance(algorithm, jdfl.PartPSP) else rows[0]
            assert bits == 8 * np.append(shared, rows.dtype.type(1)).nbytes


def one_origin(folder: Path) -> None:
    """All figures tell the provenance of the table."""
    (made,) = [json.loads(path.read_text())["hash"] for path in folder.glob("*.provenance.json")]
    for path in folder.glob("*.png"):
        with Image.open(path) as drawn:
            assert drawn.info.get("Description") == f"Made by jdfl; provenance {made}", path.name


def table1(cells: Cells, _: Path) -> None:
    """What is found by looking and trying is what the paper says, but for what CEPS adds to its messages."""
    off = {place for place, one in cells.items() if one.paper is not None and one.paper > one.mean}
    assert off == {("ceps", "privacy protection")}


def table3(cells: Cells, _: Path) -> None:
    """Two seeds are near the paper, and its second numbers for a setting are beside its first."""
    first = [one for (case, column), one in cells.items() if column == "rounds" and "column" not in case]
    assert len(first) == 4
    assert all(abs(one.mean - one.paper) <= 8 for one in first)  # the larger version takes five seeds
    again = {case: one.paper for (case, column), one in cells.items() if "column" in case and column == "rounds"}
    assert again["m=32 eps=0.5 r=0.2 DP-Perf, column eps=0.5"] == 30  # 28 in the columns m = 32 and r = .2
    assert len(again) == len(ceps_table3.AGAIN) * len(ceps_table3.VARIANTS)


def small_demo(_: Cells, folder: Path) -> None:
    """The page and the figure are there."""
    assert {path.name for path in folder.iterdir()} >= {"demo.png", "demo.html"}


def private_ceps(cells: Cells, _: Path) -> None:
    """The larger epsilon, 1, 8, 32, the lower the objective."""
    found = [one.mean for (case, column), one in cells.items() if column == "objective" and case.startswith("private")]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1 > found[-1]


def on_digits(cells: Cells, _: Path) -> None:
    """Every case says that its images are not the paper's."""
    assert all("digits" in case for case, _ in cells)


def what_codecs_reach(cells: Cells, _: Path) -> None:
    """int8 with places below 30 bytes as good as dense, one-bit at d = 300, and at 150 with side information."""
    value = {place: one.mean for place, one in cells.items()}
    dense = value["dense float32", "rounds"]
    assert value["sparse int8, enumerative", "bytes per message"] < 30
    assert value["sparse int8, enumerative", "rounds"] == dense
    assert abs(value["one-bit d=300, Hadamard", "rounds"] - dense) <= 2 + 1e-9
    assert abs(value["one-bit d=300, side", "rounds"] - dense) <= 2
    assert value["one-bit d=150, side", "rounds"] <= 33
    assert all(value[case, "agreed"] == 1 for case, _ in value)


def what_the_decoder_reaches(cells: Cells, _: Path) -> None:
    """Double Hadamard within .02 of Gaussian in cosine, exact inverse <= .065, and what is announced is measured."""
    value = {place: one.mean for place, one in cells.items()}
    assert abs(value["hadamard d=500 s=10", "cosine"] - value["gaussian d=500 s=10", "cosine"]) <= 0.02
    assert value["gaussian d=500 s=10", "relative error"] <= 0.065
    assert value["sparse 5 % d=500 s=10", "support"] < 0.85
    assert value["sparse 0.05 % d=500 s=10", "support"] < 0.1
    for case in {case for case, _ in value if case.startswith("gaussian")}:
        assert abs(value[case, "support"] - value[case, "announced"]) <= 0.08, case


def claims_stand(cells: Cells, _: Path) -> None:
    """What is claimed is not refuted, and what is broken is caught."""
    told = privacy_audit.verdict(list(cells.values()))
    assert told == ["claimed and not refuted: 2 of 2", "broken and caught: 3 of 3"]


def no_claim_is_exceeded(cells: Cells, _: Path) -> None:
    """By no setting."""
    assert sensitivities.verdict(list(cells.values())).startswith("settings that exceed their claim: 0 of 5")


def noise_ends_attacks(cells: Cells, _: Path) -> None:
    """A neighbour finds every record without noise, and none of them at an epsilon of 1."""
    value = {place: one.mean for place, one in cells.items()}
    inverted, joined = (
        "Inversion: D-PSGD, q = 1, {}: a neighbour",
        "Membership: D-PSGD, breast_cancer, {}: everyone, {}",
    )
    assert value[inverted.format("no noise"), "found"] == 1.0
    assert value[inverted.format("epsilon 1"), "found"] <= 1 / 16
    ratio = "likelihood ratio, others known"
    assert value[joined.format("no noise", ratio), "caught at 1%"] > 0.99
    assert value[joined.format("epsilon 1", ratio), "AUC"] < 0.56
    assert "goal: 0, met" in leakage.verdict(list(cells.values()))


def no_attack_exceeds(cells: Cells, _: Path) -> None:
    """No accounted epsilon is exceeded."""
    assert len({case for case, _ in cells}) >= 12
    assert all(one.mean == 0 for (_, column), one in cells.items() if column == "exceeded")


def less_noise_for_few_releases(cells: Cells, _: Path) -> None:
    """Activation spares releases and so noise; top-k does not."""
    cases = {case for case, _ in cells}
    assert {"paper, eps = 1", "sound, eps = 1", "noiseless", "do nothing"} < cases
    sound = {column: one.mean for (case, column), one in cells.items() if case == "sigma / G, sound, eps = 1"}
    assert sound["p = 0.8, k/d = 0.4"] == sound["p = 0.8, k/d = 1"]
    assert 0.8 < sound["p = 0.8, k/d = 1"] / sound["p = 1, k/d = 1"] < 1  # fewer releases


def correlation_helps(cells: Cells, _: Path) -> None:
    """By what noise does to parameters, and by the objective, which the sums of AntiPGD make worse."""
    value = {place: one.mean for place, one in cells.items()}
    ours, names = "MAFALDA-SGD, 8 diagonals", ("independent noise", "AntiPGD")
    assert value[ours, "noise / independent"] < 0.5
    assert value[f"mu = 0.5, {ours}", "objective"] < min(value[f"mu = 0.5, {name}", "objective"] for name in names)
    assert not any(one for (_, column), one in value.items() if column == "share above the sum")


def projections_and_push_sum_reach_it(cells: Cells, _: Path) -> None:
    """With fewer bytes than SGP, and with local steps in fewer rounds; sparse messages are the shortest."""
    value = {place: one.mean for place, one in cells.items()}
    for net in ("4-out", "random"):
        ours, sgp = f"{net}, {directed_ceps.ONE_BIT}", f"{net}, {directed_ceps.SGP}"
        assert value[ours, "reached"] == 1
        assert value[ours, "MB"] < value[sgp, "MB"]
        assert value[f"{ours}, 5 local steps", "rounds"] < value[ours, "rounds"] / 2
        assert value[f"{net}, directed CEPS, sparse int8", "MB"] < value[ours, "MB"]


def missing_noise_is_seen(cells: Cells, _: Path) -> None:
    """And nothing is, where nothing is missing."""
    refuted = {case: one.mean for (case, column), one in cells.items() if column == "refuted"}
    assert refuted == {"sound, 1,000 canaries": 0, "noise missing, 1,000 canaries": 1}


def runs_are_told(_: Cells, folder: Path) -> None:
    """The provenance lists the runs and the version."""
    (path,) = folder.glob("*.provenance.json")
    made = json.loads(path.read_text())
    assert len(made["runs"]) > 3
    assert made["versions"]["jdfl"] == jdfl.__version__


def the_formula_is_theirs_and_no_bound(cells: Cells, _: Path) -> None:
    """The published numbers come out of the formula, and the farthest node is known where it says that little is."""
    published = [one for one in cells.values() if one.paper is not None]
    assert len(published) == 9
    assert all(abs(one.mean / one.paper - 1) < 0.05 for one in published)
    far = "exponential, 64 nodes, distance 6"
    assert cells[far, "exact"].mean > 0.999 > 0.2 > cells[far, "formula"].mean
    counts = "nodes above the later formula"
    assert all(one.mean <= 1 + 1e-6 for (_, column), one in cells.items() if column != counts)  # what is guaranteed


def between_central_and_local(cells: Cells, _: Path) -> None:
    """DECOR is between central and local noise on sparse networks, and the epsilons are as its tables say."""
    for epsilon in (10, 40):
        central = cells[f"CDP, epsilon {epsilon}", "gap"].mean
        for name in ("grid", "ring"):
            own = cells[f"DECOR, {name}, epsilon {epsilon}", "gap"].mean
            assert central < own < cells[f"LDP, {name}, epsilon {epsilon}", "gap"].mean / 3
    accounted = [one for (_, column), one in cells.items() if column == "epsilon, their accountant"]
    assert all(abs(one.mean / one.paper - 1) < 1e-3 for one in accounted)


def most_intervals_cover(cells: Cells, folder: Path) -> None:
    """Of eight experiments; all 200 are run by hand."""
    shares = [one.mean for one in cells.values()]
    assert len(shares) == 6
    assert 0.8 <= np.mean(shares) <= 1


def bits_of_floats_tell(cells, out):
    """Half of the guesses at exact noise are wrong, and hardly any at floating-point noise."""
    wrong = {case.partition(",")[0]: one.mean for (case, _), one in cells.items()}
    assert wrong["Gaussian"] < 0.05
    assert abs(wrong["ExactGaussian"] - 0.5) < 5 * 0.5 / (2 * 2_000) ** 0.5


def messages_give_gradients_away(cells: Cells, _: Path) -> None:
    """Exactly without noise, in sums where messages are sparse, and not at all with the noise of epsilon = 8."""
    value = {place: one.mean for place, one in cells.items()}
    case = "(p, k/d) = (1, {:g}), {}".format
    for exact in (doadp_leakage.PUBLISHED, doadp_leakage.LINEAR, case(1, "no noise")):
        assert value[exact, "largest relative error of g"] < 1e-9
        assert value[exact, "entries of g recovered"] == 1
        assert value[exact, "relative error of the record"] < 1e-8
    assert value[doadp_leakage.MINUS, "relative error of g"] > 0.1
    sparse = case(0.3, "no noise")
    assert value[sparse, "relative error of g"] > 0.5 > 0.1 > value[sparse, "relative error of the sum"]
    assert value[sparse, "records identified"] == 1
    assert value[case(1, "epsilon = 8"), "relative error of g"] > 50
    assert value[case(1, "epsilon = 8"), "records identified"] < 0.1


def certificates_are_exact(cells: Cells, _: Path) -> None:
    """No attack inside of a radius, all outside; sparse models are more robust in linf; noise certifies nothing."""
    value = {place: one.mean for place, one in cells.items()}
    for (_, column), one in value.items():
        assert "just inside" not in column or one == 0
        assert "just outside" not in column or one == 1
        assert column != "wrongly certified" or one == 1
    names = ["CEPS, s = 10", "CEPS, s = 50", "dense"]
    radii = [value[f"digits_odd: {name}", "median linf radius"] for name in names]
    assert radii == sorted(radii, reverse=True)


SAID: dict[str, Callable[[Cells, Path], None]] = {
    "async_scale": asynchronous.more_nodes_cost_alike,
    "async_speedup": asynchronous.the_slow_node_slows_rounds,
    "async_staleness": asynchronous.clocks_make_stale,
    "attack_bits": bits_of_floats_tell,
    "attacks": no_attack_exceeds,
    "ceps_privacy": private_ceps,
    "ceps_robustness": certificates_are_exact,
    "ceps_stragglers": runs_are_told,
    "ceps_table1": table1,
    "ceps_table3": table3,
    "codecs": what_codecs_reach,
    "decor_figure": between_central_and_local,
    "demo": small_demo,
    "directed_ceps": projections_and_push_sum_reach_it,
    "doadp_leakage": messages_give_gradients_away,
    "doadp_figure4_table2": less_noise_for_few_releases,
    "gpsp_quality": what_the_decoder_reaches,
    "interval_coverage": most_intervals_cover,
    "mafalda_figure": correlation_helps,
    "muffliato_figure": the_formula_is_theirs_and_no_bound,
    "leakage": noise_ends_attacks,
    "one_run_audit": missing_noise_is_seen,
    "partpsp_skew": on_digits,
    "partpsp_table2": on_digits,
    "partpsp_table3": on_digits,
    "partpsp_table4": on_digits,
    "privacy_audit": claims_stand,
    "sensitivities": no_claim_is_exceeded,
    "unreliable": runs_are_told,
}


@pytest.fixture
def checked(monkeypatch):
    """How many results had their ledger looked at."""
    count = [0]

    def assemble(start, setting, params, *rest):
        result = outcome.assemble(start, setting, params, *rest)
        check(setting, params, result)
        count[0] += 1
        return result

    monkeypatch.setattr(runner, "assemble", assemble)
    monkeypatch.setattr(batch, "assemble", assemble)
    monkeypatch.setenv("JDFL_CACHE", "0")
    return count


def test_a_wrong_ledger_would_be_seen(checked, monkeypatch):
    problem, network = regression(4, 20), jdfl.network.ring(4)
    jdfl.run(jdfl.CEPS(s=3, codec=jdfl.OneBit(d=40)), problem, network, steps=4)
    jdfl.repeat(jdfl.SGP(lr=0.01), problem, network, keys=[0, 1], steps=3)
    assert checked == [3]
    monkeypatch.setattr(jdfl.Sparse, "bits", lambda self, n, sparsity: 9 + 8 * 3)
    with pytest.raises(AssertionError):
        jdfl.run(jdfl.CEPS(s=3, codec=jdfl.Sparse()), problem, network, steps=4)


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [one if one == "errata_checks" else slow(one) for one in SCRIPTS])  # it takes seconds
def test_its_small_version_is_what_it_says(name, checked, monkeypatch, tmp_path):
    if name.startswith("partpsp"):  # on the images that are always there
        monkeypatch.delenv("JDFL_DATA", raising=False)
    rows = import_module(f"experiments.{name}").main(["--quick", *SEEDS.get(name, ()), "--out", str(tmp_path)])
    written = json.loads((tmp_path / f"{name}.json").read_text())
    assert rows
    assert [set(one) for one in written] == [EXPERIMENT_ROW] * len(rows)
    if name not in WITHOUT_FIGURE:
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    if name not in WITH_OWN_FIGURES:
        one_origin(tmp_path)
    assert (checked[0] > 0) == (name not in WITHOUT_RUNS)
    # The images of these quick runs are others than those of the claims.
    said = [one for one in ledger.claims() if one.run == name and not name.startswith("partpsp")]
    assert [fault for one in said for fault in one.faults(rows, ledger.rows_of(name))] == []
    SAID.get(name, lambda *_: None)({(one.case, one.column): one for one in rows}, tmp_path)
