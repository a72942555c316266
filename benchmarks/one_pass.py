"""Gradients of least squares that read the data once, and those of small nodes, compared with the library's.

Run `python -m benchmarks.one_pass [--quick] [--out DIR]`; two minutes on two cores.

A gradient A'(A x - b) needs the features twice: they come from memory twice, unless a part of them is still in a cache
the second time. For nodes of few numbers the products themselves take longer than memory does. Every form is compiled
by XLA as users' programs are, except the last: a loop in C++ that reads a row once, where a compiler is found.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from benchmarks.floors import floor
from benchmarks.machine import read_max, read_sum
from jdfl.devices import layout

NAME = "one_pass"
RESULT = (
    "D-PSGD with a million nodes runs at {D-PSGD, m=1,000,000 n=20 q=10 -> of the limit of memory, one device} of the"
    " limit of memory, with a device per core at {D-PSGD, m=1,000,000 n=20 q=10 -> of the limit of memory, a device a"
    " core}."
)
LIMIT = (
    "XLA for CPUs copies the rows of a loop's turn before a product of matrices reads them, which costs what the "
    "second pass over memory would; a product of a small node's matrix takes longer than its memory, on one core, and "
    "sums in place of products are not vectorized. So the library's form stays. Terms in place of the second product, "
    "which suit few examples only, gain by using both cores, as a device a core does for a whole round."
)
Form = Callable[[Array, Array, Array], Array]  # of x [m, n], A [m, q, n], b [m, q]


def products(x: Array, A: Array, b: Array) -> Array:
    """Both products for all nodes."""
    one = partial(jnp.dot, precision=lax.Precision.HIGHEST)
    return jax.vmap(lambda x, A, b: one(one(A, x) - b, A))(x, A, b)


def sums(x: Array, A: Array, b: Array) -> Array:
    """Sums over entries in place of products."""
    r = jnp.sum(A * x[:, None], axis=2) - b
    return jnp.sum(A * r[:, :, None], axis=1)


def product_and_terms(x: Array, A: Array, b: Array) -> Array:
    """A product, and then a sum of q terms in one loop over entries."""
    r = jax.vmap(partial(jnp.dot, precision=lax.Precision.HIGHEST))(A, x) - b
    return sum((A[:, t] * r[:, t, None] for t in range(1, A.shape[1])), A[:, 0] * r[:, 0, None])


def nodes(at_once: int) -> Form:
    """A few nodes at a time."""

    def form(x: Array, A: Array, b: Array) -> Array:
        parts = [leaf.reshape(-1, at_once, *leaf.shape[1:]) for leaf in (x, A, b)]
        return lax.map(lambda part: products(*part), tuple(parts)).reshape(x.shape)

    return form


def rows(at_once: int) -> Form:
    """A few rows of every node at a time."""

    def form(x: Array, A: Array, b: Array) -> Array:
        def part(k: Array, g: Array) -> Array:
            some = [lax.dynamic_slice_in_dim(leaf, k * at_once, at_once, 1) for leaf in (A, b)]
            return g + products(x, *some)

        return lax.fori_loop(0, A.shape[1] // at_once, part, jnp.zeros_like(x))

    return form


def by_hand(folder: Path) -> Form | None:
    """The loop in C++ on all cores; None without a compiler."""
    compiler = shutil.which("c++")
    if compiler is None:
        return None
    made = folder / "one_pass.so"
    words = [compiler, "-O3", "-march=native", "-fopenmp-simd", "-std=c++17", "-w", "-shared", "-fPIC"]
    words += [f"-I{jax.ffi.include_dir()}", str(Path(__file__).with_suffix(".cc")), "-o", str(made)]
    subprocess.run(words, check=True)
    handler = ctypes.cdll.LoadLibrary(str(made)).LeastSquares
    jax.ffi.register_ffi_target(NAME, jax.ffi.pycapsule(handler), platform="cpu")
    return lambda x, A, b: jax.ffi.ffi_call(NAME, jax.ShapeDtypeStruct(x.shape, x.dtype))(x, A, b)


def repeated(form: Form, A: Array, b: Array, times: int) -> Callable[[], Array]:
    """A function that takes a few steps of descent."""

    @partial(jax.jit, donate_argnums=0)
    def steps(x: Array, A: Array, b: Array) -> Array:
        return lax.fori_loop(0, times, lambda _, x: 0.9 * x - 1e-6 * form(x, A, b), x)

    kept = [jnp.ones((A.shape[0], A.shape[2]))]

    def work() -> Array:
        kept.append(steps(kept.pop(), A, b))
        return kept[0]

    return work


def compared(m: int, n: int, q: int, forms: dict[str, Form], times: int, repeats: int) -> list[Row]:
    """Milliseconds of all forms, of reading the features once, and ratios to the library's form."""
    keys = jax.random.split(jax.random.key(0), m)
    A = lax.map(lambda key: jax.random.normal(key, (q, n)), keys, batch_size=max(1, m // 100))
    b, x = A[:, :, 0], jnp.ones((m, n))
    problem = jdfl.problems.linear_regression(A, b)
    forms = {"the library's": lambda x, A, b: replace(problem, data=(A, b)).gradients(x)} | forms
    expected = q * problem.gradients(x)
    for form in [*forms.values()][1:]:
        assert jnp.allclose(form(x, A, b), expected, rtol=1e-3, atol=1e-3 * float(jnp.abs(expected).max()))
    works: dict[str, Callable[[], Any]] = {name: repeated(form, A, b, times) for name, form in forms.items()}
    reads = {"sum": lambda: [read_sum(A) for _ in range(times)], "max": lambda: [read_max(A) for _ in range(times)]}
    seconds = interleaved(works | reads, repeats)
    once = [min(pair) for pair in zip(seconds.pop("sum"), seconds.pop("max"))]
    case, ours = f"gradients, m={m:,} n={n} q={q}", seconds["the library's"]
    found = [row(case, name, [1e3 * s / times for s in each], "ms") for name, each in seconds.items()]
    found += [row(case, f"the library's / {name}", ratios(ours, each), "x") for name, each in seconds.items()][1:]
    found.append(row(case, "the features read once", [1e3 * s / times for s in once], "ms"))
    found.append(row(case, "read once / the library's", ratios(once, ours), "x", ">= 0.5"))
    return found


def whole_rounds(m: int, n: int, q: int, rounds: int, repeats: int) -> list[Row]:
    """A round of D-PSGD on one device, and on a device a core."""
    A = lax.map(lambda key: jax.random.normal(key, (q, n)), jax.random.split(jax.random.key(0), m), batch_size=m // 100)
    problem, network = jdfl.problems.linear_regression(A, A[:, :, 0]), jdfl.network.circulant(m, (1, 2, 3, 4))
    method = jdfl.DPSGD(lr=0.01)
    needed = floor(method, problem, network).total
    works = {
        "one device": rounds_of(method, problem, network, rounds),
        "a device a core": rounds_of(method, problem, network, rounds, layout.mesh_of(jax.device_count(), m)),
    }
    reads = {"sum": lambda: read_sum(A), "max": lambda: read_max(A)}
    seconds = interleaved(works | reads, repeats)
    fastest = min(seconds.pop("sum") + seconds.pop("max")) / A.nbytes  # seconds per byte
    case = f"D-PSGD, m={m:,} n={n} q={q}"
    found = [row(case, f"a round, {way}", [1e3 * s / rounds for s in each], "ms") for way, each in seconds.items()]
    for way, each in seconds.items():
        share = [needed * fastest * rounds / s for s in each]
        found.append(row(case, f"of the limit of memory, {way}", share, "x", ">= 0.5"))
    return found


@benchmark("Gradients of least squares", goals=False)
def main(chosen: Options) -> list[Row]:
    """All figures."""
    layout.simulate(os.cpu_count() or 1)
    few, many = (16, 400) if chosen.quick else (32, 1_000_000)
    n, q, repeats = (40, 20, 2) if chosen.quick else (1000, 500, 7)
    with tempfile.TemporaryDirectory() as folder:
        native = None if chosen.quick else by_hand(Path(folder))
        last: dict[str, Form] = {"products": products} | ({} if native is None else {"a loop in C++": native})
        large = {"pairs of nodes": nodes(2), "a fifth of the rows": rows(q // 5), "a tenth of the rows": rows(q // 10)}
        found = compared(few, n, q, large | {"sums": sums} | last, 10, repeats)
        small = {"sums": sums, "a product and terms": product_and_terms, "1 % of the nodes": nodes(many // 100)}
        found += compared(many, 20, 10, small | last, 3, repeats)
    found += whole_rounds(many, 20, 10, 5, repeats)
    return found


if __name__ == "__main__":
    main()
