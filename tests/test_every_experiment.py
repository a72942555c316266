"""Every experiment in its small version: rows, claims, ledgers of messages that can be packed, figures' provenance.

What experiments compute is in files of their own.
"""

import json
from functools import partial
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jdfl
from experiments import ceps_table1, gallery, ledger
from jdfl.arrays import ops
from jdfl.engine import batch, result, runner, stepping
from tests.test_experiments import EXPERIMENT_ROW
from tests.toy import regression

slow = partial(pytest.param, marks=pytest.mark.slow)
SCRIPTS = [one.name for one in gallery.experiments()]
WITH_OWN_FIGURES = ("every_method", "fair_comparison")  # of comparisons, which tell their own runs
WITHOUT_FIGURE = ("codec_warnings", "sensitivities")
SEEDS = {"codecs": ["--seeds", "5"], "gpsp_quality": ["--seeds", "3"]}  # of means that must reach something
ROWS = 3  # of parameters that are packed as messages


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
    totals, algorithm = result.totals, setting.program.algorithm
    assert set(totals.messages) == set(totals.message_bits)
    assert totals.bytes == sum(totals.messages[one] * bits for one, bits in totals.message_bits.items()) / 8
    if isinstance(getattr(algorithm, "codec", None), ceps_table1._Spy):
        return  # it notes what it is given to send, here too
    rows = np.asarray(params)[:ROWS]
    for channel, bits in totals.message_bits.items():
        if hasattr(algorithm, "codec"):
            rows = np.where(np.isfinite(rows), rows, 0).astype(rows.dtype)
            weight = rows.itemsize if isinstance(algorithm, jdfl.DirectedCEPS) else 0  # of push-sum, beside the vector
            assert packed(algorithm, setting.problem.m, rows) + weight == -(-bits // 8)
        elif channel == "sensitivity":  # one number to all
            assert bits == 8 * np.zeros((), rows.dtype).nbytes
        elif isinstance(algorithm, jdfl.DisPFL | jdfl.GossipFL | jdfl.RelaySGD):  # tests/field counts them
            continue
        else:  # the parameters of a node, or those that are shared, and the weight of push-sum
            shared = rows[0, : setting.problem.n_shared] if isinstance(algorithm, jdfl.PartPSP) else rows[0]
            weighed = isinstance(algorithm, jdfl.events.AGP) or type(algorithm).mass is not jdfl.Algorithm.mass
            pushed = weighed and channel != "tracker"
            assert bits == 8 * (np.append(shared, rows.dtype.type(1)) if pushed else shared).nbytes


def one_origin(folder: Path) -> None:
    """All figures tell the provenance of the table."""
    (made,) = [json.loads(path.read_text())["hash"] for path in folder.glob("*.provenance.json")]
    for path in folder.glob("*.png"):
        with Image.open(path) as drawn:
            assert drawn.info.get("Description") == f"Made by jdfl; provenance {made}", path.name


@pytest.fixture
def checked(monkeypatch):
    """The results whose ledger was looked at."""
    seen = []

    def assemble(start, setting, params, *rest):
        seen.append(result.assemble(start, setting, params, *rest))
        check(setting, params, seen[-1])
        return seen[-1]

    monkeypatch.setattr(runner, "assemble", assemble)
    monkeypatch.setattr(batch, "assemble", assemble)
    return seen


def test_a_wrong_ledger_would_be_seen(checked, monkeypatch):
    problem, network = regression(4, 20), jdfl.network.ring(4)
    method = jdfl.DOADP(lr=0.01, codec=jdfl.Sparse(share=0.15))
    jdfl.repeat(method, problem, network, keys=[0, 1], steps=3, metrics=())
    assert len(checked) == 2
    monkeypatch.setattr(jdfl.Sparse, "bits", lambda self, n, sparsity: 9 + 8 * 3)
    with pytest.raises(AssertionError):
        jdfl.run(method, problem, network, steps=3, metrics=())


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [one if one == "published_sums" else slow(one) for one in SCRIPTS])
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
    # The images of these quick runs are others than those of the claims.
    said = [one for one in ledger.claims() if one.run == name and not name.startswith("partpsp")]
    assert [fault for one in said for fault in one.faults(rows, ledger.rows_of(name))] == []
