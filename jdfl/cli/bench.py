"""`jdfl bench`: the time of a round on this machine, and the limit that its memory sets."""

import dataclasses
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

import jdfl
from jdfl.base import checks
from jdfl.cli import flags
from jdfl.config import RunConfig, build, key_of
from jdfl.engine.cache import use_cache
from jdfl.engine.floors import floor
from jdfl.engine.placement import estimate

_ABOUT = """Measure the time of rounds of the run that these flags describe, without metrics, stop rule and files.

The limit is the time to move what a round has to move, at the speed at which this machine copies memory: the state, a
row for every message, and the examples of its gradients. A round takes less only where the processor's cache holds some
of it. Compilation is reported separately."""

_EXAMPLES = """examples:
  jdfl bench                                           CEPS on its Example 1
  jdfl bench --algorithm d-psgd --problem.m 4096 --problem.n 1000 --network ring --rounds 20
  jdfl bench --config runs/NAME/config.yaml --json

exit status: 0 done, 2 a mistake in the settings
"""
_COPIED = 2**26  # bytes of the array that is copied


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a measurement."""

    config: Path | None = None
    """File config.yaml of a run; other flags override it."""
    rounds: int = 50
    """Number of rounds that are timed together."""
    repeats: int = 5
    """Number of measurements."""
    json: bool = False
    """Print JSON."""


def parse(args: list[str]) -> tuple[RunConfig, Options]:
    """The configuration and options behind the flags of `jdfl bench`."""
    return flags.parse_run(args, Options(), prog="jdfl bench", about=_ABOUT, examples=_EXAMPLES)


def bench(config: RunConfig, options: Options) -> int:
    """Time and print; returns the exit status."""
    checks.whole(1, rounds=options.rounds, repeats=options.repeats)
    use_cache()
    algorithm, problem, network, _ = build(config)
    rounds = options.rounds
    how: dict[str, Any] = {"steps": rounds, "every": rounds, "metrics": (), "options": jdfl.Options(chunk=rounds)}
    first = jdfl.run(algorithm, problem, network, key=key_of(config), **how)
    if first.rounds < rounds:
        raise ValueError(f"Expected a run of {rounds} rounds, got {first.rounds}: {first.reason}. Give fewer --rounds.")
    runs = [jdfl.run(algorithm, problem, network, key=key_of(config), **how) for _ in range(options.repeats)]
    seconds = [run.seconds / rounds for run in runs]
    speed = copy_speed()
    least = floor(algorithm, problem, network, rounds=min(rounds, 120))  # a noise schedule may be for these alone
    middle = median(seconds)
    told: dict[str, Any] = {
        "nodes": problem.m,
        "parameters": problem.n,
        "rounds": rounds,
        "repeats": options.repeats,
        "seconds_per_round": {"least": min(seconds), "median": middle, "most": max(seconds)},
        "rounds_per_second": 1 / middle,
        "nodes_per_second": problem.m / middle,
        "compile_seconds": first.compile_seconds,
        "copy_bytes_per_second": speed,
        "least_bytes_per_round": dataclasses.asdict(least),
        "times_the_limit": middle / (least.total / speed),
        "memory_bytes": estimate(algorithm, problem, network),
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(told, indent=2) if options.json else _text(told), end="\n" if options.json else "")
    return 0


def _one_more(x: Array) -> Array:
    return x + 1


def copy_speed() -> float:
    """Bytes per second that are read and written where an array is copied; the best of five times."""
    x = jnp.zeros(_COPIED // 4, jnp.float32)
    copied = jax.jit(_one_more)
    jax.block_until_ready(copied(x))
    spent: list[float] = []
    for _ in range(5):
        begun = time.perf_counter()
        jax.block_until_ready(copied(x))
        spent.append(time.perf_counter() - begun)
    return 2 * _COPIED / min(spent)


def _text(told: dict[str, Any]) -> str:
    each, memory = told["seconds_per_round"], told["memory_bytes"]
    lines = [
        f"{told['nodes']:,} nodes, {told['parameters']:,} parameters, on {told['device']}",
        f"a round: {each['median'] * 1e3:.4g} ms (least {each['least'] * 1e3:.4g}, most {each['most'] * 1e3:.4g}; "
        f"{told['repeats']} times {told['rounds']} rounds)",
        f"{told['rounds_per_second']:,.4g} rounds/s, {told['nodes_per_second']:,.4g} nodes/s",
        f"{told['times_the_limit']:.3g} times what moving the least takes, at "
        f"{told['copy_bytes_per_second'] / 1e9:.3g} GB/s: "
        + ", ".join(f"{what} {size / 1e6:,.4g} MB" for what, size in told["least_bytes_per_round"].items()),
        f"compilation: {told['compile_seconds']:.3g} s",
        f"memory, estimated: {sum(memory.values()) / 1e6:,.4g} MB ("
        + ", ".join(f"{what} {size / 1e6:,.4g}" for what, size in memory.items())
        + ")",
    ]
    return "\n".join(lines) + "\n"
