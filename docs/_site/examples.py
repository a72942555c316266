"""The small example of every algorithm's page, in Python and as a command, and how it is made private.

Axes: all have m = 8 nodes and n = 20 parameters.
"""

from dataclasses import dataclass
from textwrap import wrap

from jdfl.algorithms import REGISTRY
from jdfl.algorithms.gradients import takes_noise

ROUNDS = 60
_NOISE = "gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))"
_PUSHED = 'gradients=jdfl.Gradients(clip=1.0, per="batch", norm="l1"), dpps=jdfl.DPPS(b=1.0, noise_rate=0.01)'


@dataclass(frozen=True)
class Example:
    """What differs from the other algorithms' examples."""

    arguments: str = ""
    network: str = "ring(8)"
    flags: str = "--network ring"
    private: str = _NOISE  # arguments of a run with noise and a claim; empty: there is none

    def algorithm(self, kind: str, *, private: bool = False) -> str:
        """The Python expression."""
        given = [text for text in (self.arguments, self.private if private else "") if text]
        return f"jdfl.{kind}({', '.join(given)})"


_DIRECTED = {"network": "d_out(8, 3)", "flags": "--network d-out --network.d 3"}
EXAMPLES = {
    **dict.fromkeys(("abm", "add-opt", "push-diging", "push-pull"), Example(**_DIRECTED)),
    "average-consensus": Example(**_DIRECTED, private="clip=1.0, dpps=jdfl.DPPS(b=1.0, noise_rate=0.01)"),
    "ceps": Example(
        's=3, sigma_rule="safe"',
        flags="--network ring --algorithm.s 3 --algorithm.sigma-rule safe --algorithm.codec dense",
        private="clip=1.0, sigma=1.0, mechanism=jdfl.Gaussian(2.0)",
    ),
    "cpgt": Example(private='gradients=jdfl.Gradients(clip=1.0, per="batch"), noise_x=20.0, noise_y=20.0'),
    "dpdo": Example(private='gradients=jdfl.Gradients(clip=1.0, per="batch"), epsilon=1.0'),
    "do-adp": Example(private="gradients=jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(2.0))"),
    "dp-dda": Example(private="gradients=jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(2.0))"),
    "directed-ceps": Example(
        "s=3, codec=jdfl.Sparse()",
        network="d_out(8, 3)",
        flags="--network d-out --network.d 3 --algorithm.s 3 --algorithm.codec sparse",
    ),
    "gossipfl": Example(network="random_matching(8)", flags="--network random-matching"),
    "iht-d-psgd": Example("s=3", flags="--network ring --algorithm.s 3"),
    "local-only": Example(private=""),
    "matcha": Example(
        network="matcha(jdfl.network.k_regular(8, 4), budget=0.5)",
        flags="--network matcha --network.base k-regular --network.base.degree 4 --network.budget 0.5",
    ),
    "dfedpgp": Example(**_DIRECTED, private=""),
    "privsgp-vr": Example(
        **_DIRECTED,
        private='gradients=jdfl.Gradients(batch=1, clip=1, per="batch", mechanism=jdfl.Gaussian(2))',
    ),
    "partpsp": Example(**_DIRECTED, private=_PUSHED),
    "pedfl": Example(private=_PUSHED),
    "porter": Example(private=f"tau=None, {_NOISE}"),
    "sgp": Example(**_DIRECTED, private=_PUSHED),
}


def example(name: str) -> Example:
    """That of the algorithm with this name in the registry."""
    return EXAMPLES.get(name) or Example(private=_NOISE if takes_noise(REGISTRY[name]) else "")


def python(name: str, kind: str, rounds: int = ROUNDS) -> str:
    """The example as Python lines."""
    one = example(name)
    return f"""import jdfl

problem = jdfl.problems.example1(m=8, n=20, s=3)
network = jdfl.network.{one.network}
algorithm = {one.algorithm(kind)}
result = jdfl.run(algorithm, problem, network, key=0, steps={rounds})
print(result.final["objective"], result.totals.bytes, "bytes")
"""


def command(name: str, rounds: int = ROUNDS) -> list[str]:
    """The example as lines of a command."""
    return [
        f"jdfl run --algorithm {name}",
        "--problem.m 8 --problem.n 20 --problem.s 3",
        *wrap(example(name).flags, 80, break_on_hyphens=False),
        f"--steps {rounds} --stop none --seed 0",
    ]
