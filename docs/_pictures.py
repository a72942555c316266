"""Draws the pictures of the documentation from the objects that they show.

Run `python docs/_pictures.py [FOLDER]`; without a folder they go to docs/pictures.
Colours are Okabe and Ito's, which colour-blind readers can distinguish; no information
is in colour alone.
"""

import contextlib
import re
import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import jdfl
from jdfl.arrays import ops
from jdfl.codecs import Codec, transmit

ROOT = Path(__file__).parents[1]
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
M, N, S = 8, 40, 5
LONG, SIGNS = 200, 160  # of the vector that is coded
STEPS = 30


def sheet(columns: int, width: float, height: float, **options: object) -> tuple[Figure, list[Axes]]:
    """A figure and its axes from left to right."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False, **options)  # pyright: ignore[reportArgumentType]
    return figure, list(axes[0])


def played() -> jdfl.Result:
    """CEPS on a small problem, whose nodes each have a period of their own."""
    problem = jdfl.problems.example1(m=M, n=N, s=S, rows=(30, 60), seed=1)
    algorithm = jdfl.CEPS(s=S, rate=0.5, codec=jdfl.Sparse(), periods=(2, 6), sigma_rule="safe")
    return jdfl.run(algorithm, problem, graph(), steps=STEPS, metrics=["objective"])


def graph() -> jdfl.network.Static:
    """The network of the pictures."""
    return jdfl.network.erdos_renyi(M, 0.4, seed=2)


def rows() -> Figure:
    """All nodes as rows of one array, before and after a run."""
    end = np.asarray(played().params)
    figure, axes = sheet(2, 8, 2.4, sharey=True)
    limit = float(np.abs(end).max())
    for axis, (title, values) in zip(axes, {"before": 0 * end, f"after {STEPS} rounds": end}.items()):
        image = axis.imshow(
            values,
            cmap="PuOr",
            vmin=-limit,
            vmax=limit,
            aspect="auto",
            interpolation="nearest",
        )
        axis.set(title=title, xlabel="parameter", xticks=[0, N // 2, N - 1])
        axis.set_yticks(np.arange(M) - 0.5, minor=True)
        axis.grid(which="minor", axis="y", color=GREY, lw=0.5)
        axis.tick_params(which="minor", length=0)
    axes[0].set_ylabel("node")
    figure.colorbar(image, ax=axes, label="value", pad=0.01)
    return figure


def network() -> Figure:
    """A network and its mixing matrix."""
    W = jdfl.network.to_scipy(graph()).toarray()
    figure, (left, right) = sheet(2, 7, 3.2)
    drawn = nx.from_numpy_array(W - np.diag(np.diag(W)))
    nx.draw_networkx(
        drawn,
        nx.circular_layout(drawn),
        ax=left,
        node_color="white",
        edgecolors=BLUE,
        edge_color=GREY,
    )
    left.set_axis_off()
    right.imshow(W, cmap="Blues", vmin=0, vmax=1)
    for (i, j), weight in np.ndenumerate(W):
        if weight:
            right.text(j, i, f"{weight:.2f}".lstrip("0"), ha="center", va="center", fontsize=7)
    right.set(
        title="W",
        xlabel="sender j",
        ylabel="receiver i",
        xticks=range(M),
        yticks=range(M),
    )
    return figure


def round_() -> Figure:
    """What a round of CEPS does, and who did it when in a run."""
    parts = (
        "draw a share of\nthe neighbours",
        "they code,\nit decodes",
        "mean",
        "gradient there,\nstep, noise",
        "keep the s\nlargest entries",
    )
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=(1, 1.4))
    top.set(xlim=(0, len(parts)), ylim=(0, 1))
    top.set_axis_off()
    for i, part in enumerate(parts):
        box = FancyBboxPatch((i + 0.08, 0.15), 0.76, 0.7, boxstyle="round,pad=0.02", fc="white", ec=BLUE)
        top.add_patch(box)
        top.text(i + 0.46, 0.5, part, ha="center", va="center", fontsize=9)
        if i:
            top.add_patch(FancyArrowPatch((i - 0.13, 0.5), (i + 0.06, 0.5), arrowstyle="->", mutation_scale=12))
    period = np.asarray(played().ready.period)
    for i, every in enumerate(period):
        talks = np.arange(every, STEPS, every)
        bottom.plot(talks, np.full(len(talks), i), "s", color=ORANGE, ms=6)
        bottom.axhline(i, color=GREY, lw=0.5, zorder=0)
    bottom.set(
        xlabel="round",
        ylabel="node",
        yticks=range(M),
        xlim=(-0.5, STEPS - 0.5),
        title="■ communicates",
    )
    bottom.invert_yaxis()
    return figure


def arrived(codec: Codec, x: np.ndarray) -> np.ndarray:
    """What a receiver makes of the vector x [n]."""
    key, node = jax.random.key(3), jnp.zeros((1,), jnp.int32)
    wire = codec.prepare(key, node, len(x), S, jnp.float32)
    keys = jax.random.split(key, 1)
    return np.asarray(transmit(wire, keys, jnp.asarray(x[None]), jnp.ones((1,), jnp.bool_)))[0]


def coding() -> Figure:
    """A vector, its largest entries, signs of measurements, decoded, and the error."""
    draw = np.random.default_rng(4)
    x = np.zeros(LONG, np.float32)
    x[draw.choice(LONG, S, replace=False)] = draw.uniform(0.5, 2, S) * draw.choice([-1, 1], S)
    full = (x + 0.05 * draw.standard_normal(LONG)).astype(np.float32)
    codec, key, node = (
        jdfl.OneBit(d=SIGNS, s=S),
        jax.random.key(3),
        jnp.zeros((1,), jnp.int32),
    )
    wire = codec.prepare(key, node, LONG, S, jnp.float32)
    signs = np.asarray(codec.encode(jax.random.split(key, 1), jnp.asarray(x[None]), wire)[1])[0]
    decoded = arrived(codec, x)
    panels = {
        "parameters": full,
        "s largest": np.asarray(ops.top_s(jnp.asarray(full[None]), S))[0],
        f"{SIGNS} signs and a norm": np.where(signs > 0, 1, -1),
        "decoded": decoded,
        "decoded, less sent": decoded - x,
    }
    figure, axes = sheet(len(panels), 10, 2.2)
    for axis, (title, values) in zip(axes, panels.items()):
        axis.vlines(
            np.arange(len(values)),
            0,
            values,
            color=ORANGE if "sign" in title else BLUE,
            lw=1.5,
        )
        axis.axhline(0, color=GREY, lw=0.5)
        axis.set(title=title, ylim=(-2.3, 2.3), xticks=[0, len(values) - 1])
        axis.title.set_fontsize(9)
    return figure


def bytes_() -> Figure:
    """The size of a message by codec."""
    codecs = {
        "dense float32": jdfl.Dense(),
        "dense float16": jdfl.Dense("float16"),
        "QSGD": jdfl.QSGD(),
        "one-bit, 500 signs": jdfl.OneBit(d=500),
        "sparse float32": jdfl.Sparse(s=10),
        "sparse int8, enumerated": jdfl.Sparse(s=10, value="int8", index="enumerative"),
    }
    sizes = {name: codec.bits(1000) / 8 for name, codec in codecs.items()}
    figure, (axis,) = sheet(1, 7, 2.6)
    bars = axis.barh(list(sizes), list(sizes.values()), color=BLUE)
    axis.bar_label(bars, [f"{size:,g}" for size in sizes.values()], padding=3)
    axis.set(
        xscale="log",
        xlim=(10, 12_000),
        xlabel="bytes of a message, n = 1000, 10 nonzeros",
    )
    axis.invert_yaxis()
    return figure


def epsilon() -> Figure:
    """Epsilon by rounds, for D-PSGD with a noisy gradient in each."""
    rounds = np.unique(np.geomspace(1, 1000, 40).astype(int))
    figure, (axis,) = sheet(1, 6, 3)
    for multiplier, colour, style in (
        (4, ORANGE, "-"),
        (8, BLUE, "--"),
        (16, GREEN, ":"),
    ):
        told = [jdfl.privacy.gaussian_epsilon(np.sqrt(count) / multiplier, 1e-5) for count in rounds]
        axis.plot(
            rounds,
            told,
            style,
            color=colour,
            label=f"noise of {multiplier} sensitivities",
        )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="rounds, a release in each",
        ylabel="epsilon at delta = 1e-5",
    )
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    return figure


def comparison() -> Figure:
    """What the code of README.md draws."""
    code = re.search(
        r"<!-- slow -->\n```python\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)
    return names["fig"]


def first_figure() -> Figure:
    """What the script of docs/first-figure.md draws."""
    with tempfile.TemporaryDirectory() as folder:
        place = shutil.copytree(ROOT / "docs/first-figure", Path(folder) / "first-figure")
        with contextlib.chdir(place):
            return runpy.run_path("first_figure.py")["fig"]


PICTURES: dict[str, Callable[[], Figure]] = {
    "rows": rows,
    "network": network,
    "round": round_,
    "coding": coding,
    "bytes": bytes_,
    "epsilon": epsilon,
    "comparison": comparison,
    "first-figure": first_figure,
}


def main(folder: Path) -> None:
    """Draw all of them; the same objects give the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"svg.hashsalt": "jdfl", "svg.fonttype": "path", "font.size": 9})
    for name, draw in PICTURES.items():
        draw().savefig(folder / f"{name}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
