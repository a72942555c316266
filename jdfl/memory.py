"""Whether a run fits into memory, estimated from shapes before anything is allocated.

    bytes = state + prepared constants + 3 m n (gradient, noise, mixture) + activations of the nodes at work

The data lie on the device already. What the compiler needs beyond that is not known, so a run that passes may still
fail. Axes: m nodes, n parameters.
"""

from typing import Any

import jax
import numpy as np

from jdfl import device_memory, loop, stepping
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.keys import typed_key
from jdfl.network.graph import Network
from jdfl.problems import Problem

_COPIES = 1000  # of [m, n], beside one per node, that no state is expected to exceed
_REMEDY = "Use fewer nodes, fewer parameters or a device with more memory."


def require_memory(algorithm: Algorithm, problem: Problem, network: Network, devices: int = 1) -> None:
    """Refuse a run whose arrays would not fit into the memory of the devices that share its nodes: ValueError.

    The message has the terms of the sum, what is available and the largest number of nodes that fits. Where the
    available memory is not known, and where it is plenty for any state, nothing is traced.
    """
    room = device_memory.available(devices)
    _require_batches(algorithm, problem, room)
    one = problem.m * problem.n * np.dtype(problem.dtype).itemsize
    if room is None or one * (_COPIES + problem.m) + _activations(algorithm, problem) <= room:
        return
    needed = estimate(algorithm, problem, network)
    most = int(problem.m * room // sum(needed.values()))  # all terms grow with the nodes
    remedy = _REMEDY
    if getattr(problem, "nodes_at_once", 0) is None:
        most, remedy = max(most, 0), f"{_REMEDY} nodes_at_once makes the activations smaller."
    device_memory.require(needed, most, problem.m, remedy, room)


def _require_batches(algorithm: Algorithm, problem: Problem, room: int | None) -> None:
    """Refuse batches, which are copies of so many examples of every node, that alone would not fit: ValueError."""
    batch = getattr(getattr(algorithm, "gradients", None), "batch", None)
    if isinstance(batch, int) and batch > problem.weight.shape[1]:
        each = max(1, _bytes(problem.data) // problem.weight.size)  # bytes of an example
        most = 0 if room is None else room // (batch * each)
        what = {f"batches of {batch} examples": problem.m * batch * each}
        device_memory.require(what, most, problem.m, "Use a smaller batch, or fewer nodes.", room)


def estimate(algorithm: Algorithm, problem: Problem, network: Network) -> dict[str, int]:
    """Bytes of a run by what they are for, in words, found by shapes alone."""
    setting = stepping.setting(planned(algorithm, problem, network, 1), problem, network, None, typed_key(0))
    prepared, carry, _ = jax.eval_shape(loop.start, setting, ())
    one = problem.m * problem.n * np.dtype(problem.dtype).itemsize
    return {
        "the algorithm's state": _bytes(carry.state),
        "its constants": _bytes(prepared),
        f"3 x {problem.m} x {problem.n} numbers for gradient, noise and mixture": 3 * one,
        "activations": _activations(algorithm, problem),
    }


def _activations(algorithm: Algorithm, problem: Problem) -> int:
    """Bytes of a gradient's forward pass of all nodes that are at work together; 0 where a problem does not say."""
    of_one = getattr(problem, "activation_bytes", None)
    if of_one is None:
        return 0
    gradients: Any = getattr(algorithm, "gradients", None)
    batch = getattr(gradients, "batch", None)
    if getattr(gradients, "sampling", None) == "poisson":
        batch = None
    nodes = getattr(problem, "nodes_at_once", None) or problem.m
    return of_one(batch or problem.weight.shape[1]) * min(nodes, problem.m)


def _bytes(tree: Any) -> int:
    """Of arrays or their shapes; keys count as their words."""

    def of(leaf: Any) -> int:
        size = int(np.prod(np.shape(leaf), dtype=np.int64))
        return size * getattr(getattr(leaf, "dtype", np.dtype(np.float32)), "itemsize", 4)

    return sum(of(leaf) for leaf in jax.tree.leaves(tree))
