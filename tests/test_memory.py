"""Runs that would not fit into memory are refused before anything is allocated."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jdfl
from jdfl import models
from jdfl.devices import memory
from jdfl.engine.placement import estimate, require_memory
from jdfl.problems import Dataset, neural_classification
from tests.refused import refused
from tests.toy import M, N, network, problem

pytestmark = pytest.mark.optimized

DPSGD = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(batch=2))


def network_of(images=60, m=6, **options):
    features = np.random.default_rng(0).integers(0, 256, (images, 4, 4, 1), dtype=np.uint8)
    data = Dataset("tiny", features, np.arange(images, dtype=np.int32) % 3)
    return neural_classification(data, m, model=models.mlp(shape=(4, 4, 1), classes=3, hidden=3), **options)


def test_the_estimate_is_the_sum_of_what_a_run_holds_and_activations_grow_with_the_batch(monkeypatch):
    needed, arrays = estimate(DPSGD, problem(), network()), len(jax.live_arrays())
    estimate(jdfl.DPSGD(lr=0.2, gradients=jdfl.Gradients(batch=2)), problem(), network())
    assert len(jax.live_arrays()) <= arrays + 1
    assert sum(needed.values()) >= 4 * (4 * M * N)  # w itself, and three arrays like it
    state = jdfl.run(DPSGD, problem(), network(), steps=1, metrics=[]).state
    assert needed["the algorithm's state"] == sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert needed["activations"] == 0
    heavier = estimate(jdfl.CEPS(s=3), problem(), network())
    assert heavier["the algorithm's state"] >= 2 * needed["the algorithm's state"]
    together, apart = network_of(), network_of(nodes_at_once=2)
    ring = jdfl.network.ring(6)

    def activations(problem, **options):
        return estimate(jdfl.DPSGD(gradients=jdfl.Gradients(**options)), problem, ring)["activations"]

    assert activations(together, batch=2) == 3 * activations(apart, batch=2) == 6 * together.activation_bytes(2)
    assert activations(together, batch=2) < activations(together, batch=8) <= activations(together)
    assert activations(together, batch=2, sampling="poisson") == activations(together)
    monkeypatch.setattr(memory, "available", lambda *_: 1000)
    with refused("nodes_at_once"):
        require_memory(DPSGD, together, ring)


def test_a_run_that_does_not_fit_is_refused_with_the_numbers(monkeypatch):
    needed = sum(estimate(DPSGD, problem(), network()).values())
    for room, said in (
        (needed - 1, (f"m = {M} nodes", f"3 x {M} x {N} numbers", f"At most m = {M - 1} nodes")),
        (needed // (2 * M), ("Not even one node",)),
    ):
        monkeypatch.setattr(memory, "available", lambda *_, room=room: room)
        with refused(*said):
            require_memory(DPSGD, problem(), network())
    monkeypatch.setattr(memory, "available", lambda *_: 2**34)
    with refused("batches of 2147483647 examples"):
        require_memory(jdfl.DPSGD(gradients=jdfl.Gradients(batch=2**31 - 1)), problem(), network())
    monkeypatch.setattr(memory, "available", lambda *_: needed)
    require_memory(DPSGD, problem(), network())
    monkeypatch.setattr(jdfl.engine.loop, "start", None)  # what surely fits and what is not known is not even traced
    for room in (None, 10**12):
        monkeypatch.setattr(memory, "available", lambda *_, room=room: room)
        require_memory(DPSGD, problem(), network())


def device(platform, stats):
    return SimpleNamespace(platform=platform, memory_stats=lambda: stats)


def test_a_gpu_says_what_it_has_left_and_several_have_as_much_each(monkeypatch):
    used = {"bytes_limit": 1000, "bytes_in_use": 300}
    for stats, left in ((used, 700), ({"bytes_limit": 1000}, 1000), ({}, None), (None, None)):
        monkeypatch.setattr(jax, "local_devices", lambda stats=stats: [device("gpu", stats)])
        assert memory.available() == left
        assert memory.available(4) == (None if left is None else 4 * left)


def test_a_cpu_has_what_the_system_and_its_control_group_leave(monkeypatch, tmp_path):
    monkeypatch.setattr(jax, "local_devices", lambda: [device("cpu", None)])
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.available() is None
    (tmp_path / "meminfo").write_text("MemTotal:       9000 kB\nMemAvailable:    700 kB\nBuffers: 3 kB\n")
    assert memory.available() == memory.available(4) == 700 * 1024  # several devices that it stands for share it
    (tmp_path / "memory.max").write_text("500000\n")
    (tmp_path / "memory.current").write_text("300000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    assert memory.available() == 300_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available() == 700 * 1024
