"""The cost of a round of PartPSP compared with a loop over the nodes in PyTorch, both on one core with one thread.

Run `python -m benchmarks.partpsp_vs_loop [--quick] [--out DIR]`; PyTorch is the optional dependency "benchmarks". Both
do the same work: PartPSP-1 on the perceptron 784-10-784-10 with a residual connection at width 784, batches of 100 in
the order of the data, one gradient for the local part and one for the shared part, Laplace noise scaled by the real
sensitivity on every message, a 4-Out network, synchronised every 4th round. Without noise they reach the same
parameters, which is checked first.

The loop is a list of modules, one after another, as is usual in PyTorch; its images are already in memory as numbers,
and it computes only the gradients it needs. The published code computes the sensitivity pair by pair; the loop is timed
with that and with one call of `torch.cdist`, and with both ways to draw the noise. jdfl is compared with the fastest;
the ratio to a round's products, tanh and noise alone is the largest possible gain.

Axes: N nodes, d shared parameters.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from jdfl.problems import Dataset, NeuralProblem, datasets, neural_classification

NEEDS = ("torch",)
RESULT = "With 40 nodes the loop takes {N=40 d=7850 n=24324 -> pairs, laplace / jdfl} times as long as jdfl."
GOALS = {10: ">= 3", 40: ">= 5"}
DEGREE, SYNCHRONISED = 4, 4
BATCH, RATE, NOISE_RATE, B = 100, 0.1, 1e-3, 1.0
TINY = 1e-9  # step size that changes nothing
CHECKED = 10  # rounds without noise after which parameters are compared


def problem_of(m: int) -> NeuralProblem:
    """MNIST over m nodes, pixels in [-1, 1], or random images of its size where there is no MNIST."""
    made = neural_classification(data(), m, model="mlp", shared="partpsp-1", standardise=False)
    return replace(made, mean=(0.5,), deviation=(0.5,))


def data() -> str | Dataset:
    """MNIST, or the same number of random images where it is not available."""
    try:
        datasets.locate("mnist")
    except (FileNotFoundError, ValueError):
        draw = np.random.default_rng(0)
        images = draw.integers(0, 256, (60_000, 28, 28, 1), np.uint8)
        return Dataset(
            "random images",
            images,
            draw.integers(0, 10, 60_000, np.int32),
            images[:100],
            np.arange(100, dtype=np.int32) % 10,
        )
    return "mnist"


def of_jdfl(problem: NeuralProblem, b: float | None, rounds: int) -> Callable[[], Any]:
    """A function that runs `rounds` rounds and returns the state."""
    network = jdfl.network.synchronised(jdfl.network.d_out(problem.m, DEGREE), SYNCHRONISED)
    dpps = jdfl.DPPS(b=b, noise_rate=NOISE_RATE, sensitivity="real")
    gradients = jdfl.Gradients(batch=BATCH, sampling="in order")
    algorithm = jdfl.PartPSP(lr_shared=RATE, lr_local=RATE, gradients=gradients, dpps=dpps)
    return rounds_of(algorithm, problem, network, rounds)


def of_parts(problem: NeuralProblem, rounds: int) -> Callable[[], Any]:
    """The matrix products of these rounds, tanh and noise, with almost nothing between them: a lower bound of a round.

    Eleven products per node: a pass for the local part and one for the shared part, which share the first layer.
    """
    images = problem.data[0].reshape(*problem.weight.shape, -1)
    x = images[:, :BATCH].astype(jnp.float32) / 255
    leaves = problem.model.unravel(problem.initial_params()[0])
    kernels = leaves["layer1.kernel"].T, leaves["layer2.kernel"], leaves["layer3.kernel"].T  # [10, 784] each

    def node(kernels: tuple[Array, ...], given: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
        (one, two, three), (x, key) = kernels, given
        a = x @ one.T
        b = jnp.tanh(a @ two)
        z = b @ three.T
        back = z @ three
        three, two = three - TINY * (z.T @ b), two - TINY * (a.T @ back)
        back = jnp.tanh(a @ two) @ three.T @ three
        one = one - TINY * ((back @ two.T).T @ x + jax.random.laplace(key, one.shape))
        return (one, two, three), None

    @jax.jit
    def parts(kernels: tuple[Array, ...]) -> tuple[Array, ...]:
        def step(t: Array, kernels: tuple[Array, ...]) -> tuple[Array, ...]:
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), t), problem.m)
            return lax.scan(node, kernels, (x, keys))[0]

        return lax.fori_loop(0, rounds, step, kernels)

    return lambda: jax.block_until_ready(parts(kernels))


def of_torch(problem: NeuralProblem, b: float | None, rounds: int, apart: str, draw: str) -> Callable[[], Any]:
    """The same rounds as a loop over modules."""
    from benchmarks.torch_loop import Loop

    nodes = Loop(problem, BATCH, DEGREE, SYNCHRONISED, RATE, NOISE_RATE, b)

    def work() -> Any:
        for _ in range(rounds):
            nodes.round(apart, draw)
        return nodes

    return work


def check(problem: NeuralProblem) -> None:
    """Check that without noise both ways reach the same parameters: AssertionError where they differ."""
    state = of_jdfl(problem, None, CHECKED)()
    nodes = of_torch(problem, None, CHECKED, "pairs", "laplace")()
    ours = np.concatenate([state.shared.y, state.local], axis=1)
    assert np.abs(ours - np.asarray(problem.initial_params())).max() > 0.01, "nothing was learnt"
    np.testing.assert_allclose(ours, nodes.parameters(problem.model), atol=1e-4, rtol=0)


def figures(problem: NeuralProblem, rounds: int, repeats: int) -> list[Row]:
    """Milliseconds of a round in every way, interleaved, and the loops over jdfl."""
    check(problem)
    loops = {f"{a}, {d}": (a, d) for a, d in product(("pairs", "cdist"), ("laplace", "exponential"))}
    ways = {"jdfl": of_jdfl(problem, B, rounds), "products, tanh and noise": of_parts(problem, rounds)}
    ways |= {name: of_torch(problem, B, rounds, *choice) for name, choice in loops.items()}
    seconds = interleaved(ways, repeats)
    case = f"N={problem.m} d={problem.n_shared} n={problem.n}"
    lines = [row(case, f"a round, {name}", [1e3 * s / rounds for s in times], "ms") for name, times in seconds.items()]
    best = min(loops, key=lambda name: float(np.median(seconds[name])))
    for name in loops:
        goal = GOALS.get(problem.m, "") if name == best else ""
        lines.append(row(case, f"{name} / jdfl", ratios(seconds[name], seconds["jdfl"]), "x", goal))
    lines.append(
        row(case, f"{best} / products, tanh and noise", ratios(seconds[best], seconds["products, tanh and noise"]), "x")
    )
    return lines


@benchmark("PartPSP-1 on one core, and a loop in PyTorch", goals=False)
def main(chosen: Options) -> list[Row]:
    """All figures; none where PyTorch is not installed."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("PyTorch is not installed, so there is nothing to compare with: pip install 'jdfl[benchmarks]'.")
        return []
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})  # for all threads that are started from here on
    torch.set_num_threads(1)
    try:
        sizes, repeats = ((4,), 2) if chosen.quick else ((10, 40, 80), 15)
        rows = []
        for m in sizes:
            problem = problem_of(m)
            rows += figures(problem, 4 if chosen.quick else max(4, 120 // m // 4 * 4), repeats)
    finally:
        os.sched_setaffinity(0, cores)
    return rows


if __name__ == "__main__":
    main()
