"""In every experiment, every byte of the ledger is of a message that can be packed, and figures tell its provenance."""

import json
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jdfl
from experiments import gallery
from jdfl.arrays import ops
from jdfl.engine import batch, outcome, runner, stepping
from tests.toy import regression

SCRIPTS = [one.name for one in gallery.experiments()]
# They compute or attack, and have no results.
WITHOUT_RUNS = ("gpsp_quality", "lemma2_counterexample", "privacy_audit", "theorem1_counterexample")
WITH_OWN_FIGURES = ("fair_comparison",)  # of comparisons, which tell their own runs
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
    totals, algorithm = result.totals, setting.algorithm.algorithm
    assert set(totals.messages) == set(totals.message_bits)
    assert totals.bytes == sum(totals.messages[one] * bits for one, bits in totals.message_bits.items()) / 8
    rows = np.asarray(params)[:ROWS]
    for channel, bits in totals.message_bits.items():
        if hasattr(algorithm, "codec"):
            rows = np.where(np.isfinite(rows), rows, 0).astype(rows.dtype)
            assert packed(algorithm, setting.problem.m, rows) == -(-bits // 8)
        elif channel == "sensitivity":  # one number to all
            assert bits == 8 * np.zeros((), rows.dtype).nbytes
        else:  # push-sum: the parameters of a node, of PartPSP those that are shared, and its weight
            shared = rows[0, : setting.problem.n_shared] if isinstance(algorithm, jdfl.PartPSP) else rows[0]
            assert bits == 8 * np.append(shared, rows.dtype.type(1)).nbytes


def one_origin(folder: Path) -> None:
    """All figures tell the provenance of the table."""
    (made,) = [json.loads(path.read_text())["hash"] for path in folder.glob("*.provenance.json")]
    for path in folder.glob("*.png"):
        with Image.open(path) as drawn:
            assert drawn.info.get("Title") == f"provenance {made}", path.name


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


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_ledger_is_that_of_packed_messages(name, checked, tmp_path):
    import_module(f"experiments.{name}").main(["--quick", "--out", str(tmp_path)])
    assert (checked[0] > 0) == (name not in WITHOUT_RUNS)
    if name not in WITH_OWN_FIGURES:
        one_origin(tmp_path)
