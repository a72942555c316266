"""Settings of a node's gradients: which examples, clipped, with which noise; and what follows of its guarantee.

Axes: m nodes, q examples per node, n parameters.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.clipping import additions, check_slopes, formed, sloped
from jdfl.algorithms.sampling import Sampler
from jdfl.base import struct
from jdfl.base.settings import Count, Positive
from jdfl.privacy import (
    NO_NOISE,
    Clip,
    Gaussian,
    Guarantee,
    Mechanism,
    Sampling,
    check_mechanism,
    stretch,
)
from jdfl.privacy.mechanisms import event_of, is_exact
from jdfl.problems import Problem

_REPEATED = (
    "samples are drawn with replacement and may hold a record several times, so they make nothing stronger; "
    'sampling = "subset" or "poisson" does'
)
_MOST_ROUNDING = 0.1  # of a sensitivity
_PASSES = "a record counts in all of its node's releases, although a pass over the data looks at it in one of them"


@struct.dataclass
class GradientSettings:
    """What a person chooses of `Gradients`, held against a problem, and what may be said of noise that is scaled so."""

    flat: ClassVar[bool] = True  # on the command line and in YAML, its fields stand beside those of its algorithm
    batch: Count | None = struct.field(pytree_node=False, default=None)
    """Examples of one gradient; None: all of the node's."""
    sampling: Sampler = struct.field(pytree_node=False, default="replacement")
    """How a batch is drawn: each example on its own, different ones, every example by chance, or all in turn, shuffled
    for every pass or in the order of the data."""
    clip: Positive | None = None
    """Largest length of a gradient; None: as it is."""
    per: Literal["example", "batch"] = struct.field(pytree_node=False, default="example")
    """Whose gradient is clipped: every example's, or that of all that are looked at."""
    norm: Clip = struct.field(pytree_node=False, default="l2")
    """In which a gradient's length is measured; entries: every entry is cut off at clip."""
    mechanism: Mechanism | None = None
    """Noise on gradients; none: exact ones."""
    sensitivity: Positive | None = None
    """Assumed sensitivity that scales the noise of gradients that are not clipped; nothing enforces it."""
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    """What neighbouring data sets differ in: a record replaced, or there or not."""
    noisy: Literal["always", "communicating"] = struct.field(pytree_node=False, default="always")
    """Which gradients are noisy: all, or those that follow an exchange of messages."""

    def check(self, problem: Problem) -> None:
        """Refuse settings out of range: ValueError naming them.

        Refused are a batch larger than the smallest node's data, unless it is drawn with replacement; other sampling
        without a batch; noise without exactly one of clip and sensitivity, or a sensitivity without noise; and, for
        clipping per example, a `problem` whose slopes are not those of its loss.
        """
        if self.batch is not None:
            fewest = int(np.min(np.asarray(problem.sizes)))
            if self.sampling != "replacement" and self.batch > fewest:
                raise ValueError(
                    f"Expected batch <= {fewest}, the examples of the smallest node, with sampling = "
                    f"{self.sampling!r}, got batch = {self.batch}."
                )
        elif self.sampling != "replacement":
            raise ValueError(f"Expected a batch with sampling = {self.sampling!r}, got batch = None.")
        self._check_noise(problem)
        if self.clip is not None and self.per == "example":
            check_slopes(problem)

    def _check_noise(self, problem: Problem) -> None:
        if self.mechanism is None:
            if self.sensitivity is not None:
                raise ValueError(
                    f"Expected a mechanism beside sensitivity = {self.sensitivity!r}, got mechanism = None. Give "
                    "Gaussian(multiplier), or leave sensitivity out."
                )
            return
        check_mechanism(self.mechanism)
        if (self.clip is None) == (self.sensitivity is None):
            raise ValueError(
                f"Expected clip or sensitivity to scale the noise, got clip = {self.clip!r} and sensitivity = "
                f"{self.sensitivity!r}. Noise without clipping protects nobody: give clip, which bounds what one "
                "example can change; sensitivity only assumes a bound, and nothing is claimed then."
            )
        if not is_exact(self.mechanism):
            return
        if self.clip is None:
            raise ValueError(
                f"Expected a clip with exact noise, got sensitivity = {self.sensitivity!r}, which bounds no bit. Give "
                "clip, or Gaussian."
            )
        if self.noisy == "communicating":
            raise ValueError('Expected noisy = "always" with exact noise, got "communicating", which claims nothing.')
        whole = np.asarray(self.sensitivities(problem))
        plain = np.asarray(replace(self, mechanism=Gaussian(1.0)).sensitivities(problem))
        node = int(np.argmax(whole / plain))
        if whole[node] > (1 + _MOST_ROUNDING) * plain[node]:
            looked = int(self.examples(problem)[node])
            raise ValueError(
                f"Expected sums of gradients that rounding moves by less than {_MOST_ROUNDING:g} of what one record "
                f"changes, got {whole[node] / plain[node] - 1:.2g} for the {looked} examples of node {node} in "
                f"{problem.dtype}. Exact noise would have to hide that, too: use float64 (JAX_ENABLE_X64=1), fewer "
                "examples (batch), or Gaussian."
            )

    def sensitivities(self, problem: Problem) -> Array:
        """What the noise of every node [m] is scaled by, in the mechanism's norm: assumed, or what `clip` enforces.

        For a replaced record 2 clip w_t / divisor with the largest weight w_t of the node (2 clip for "replacement",
        whose draws may all hit one record), for a replaced node 2 clip; half of that for add-remove; times the most
        that lengths differ between the norm of the clip and that of the noise. For exact noise what float arithmetic
        may add to a change is in it (`_rounding`).
        """
        dtype = problem.dtype
        if self.clip is None or self.mechanism is None:
            return jnp.full((problem.m,), 0.0 if self.sensitivity is None else self.sensitivity, dtype)
        largest, total = jnp.max(problem.weight, axis=1), jnp.sum(problem.weight, axis=1)
        if self.per == "batch" or (self.batch is not None and self.sampling == "replacement"):
            share = jnp.ones_like(total)
        elif self.batch is not None and self.sampling in ("epochs", "in order"):
            least = jnp.min(jnp.where(problem.weight > 0, problem.weight, jnp.inf), axis=1)
            share = largest / (self.batch * least)
        elif self.batch is not None:
            share = largest * problem.sizes.astype(dtype) / (self.batch * total)
        else:
            share = largest / total
        change = (2.0 if self.adjacency == "replace-one" else 1.0) * share
        if is_exact(self.mechanism):
            change = change + self._rounding(problem, share)
        return change * stretch(self.norm, self.mechanism.norm, problem.n) * self.clip

    def _rounding(self, problem: Problem, share: Array) -> Array:
        """By how much rounding may move two sums of clipped gradients apart, in units of the clip [m].

        With u half the distance from 1 to the next number, a clipped gradient is too long by n / 2 + 16 roundings at
        most, a sum whose terms pass k additions is off by k u times the sum of their lengths (N. Higham, "Accuracy and
        Stability of Numerical Algorithms", 2002, section 4.2), and noise rounds its argument twice more. TPUs multiply
        with fewer digits than they store.
        """
        unit = float(jnp.finfo(problem.dtype).eps) / 2 * (8 if jax.default_backend() == "tpu" else 1)
        looked = problem.weight.shape[1] if self.batch is None or self.sampling == "poisson" else self.batch
        at_once = looked if self.norm != "entries" and sloped(problem) else formed(problem.m, problem.n, looked)
        passed = 0 if self.per == "batch" else additions(looked, at_once)
        # What is divided by is the weight of what is looked at, or for these two the weight to be expected.
        expected = self.batch is not None and self.sampling in ("poisson", "subset")
        reach = jnp.maximum(1.0, looked * share) if expected else jnp.ones_like(share)
        return 2.1 * unit * ((problem.n / 2 + 16) * share + (passed + 8) * reach)

    def examples(self, problem: Problem) -> Array:
        """How many examples one gradient of every node looks at [m] int32.

        `batch`, or all that a node has: without a batch, and for Poisson samples, for which every example is looked at
        in order to draw. What runs count as `examples` follows from it.
        """
        if self.batch is None or self.sampling == "poisson":
            return problem.sizes
        return jnp.full((problem.m,), self.batch, jnp.int32)

    def passes(self, problem: Problem) -> np.ndarray:
        """How many steps a pass over every node's data takes [m], of which a record is looked at in a known one.

        They are 1 where what is protected may be looked at in every step: a whole node, and records that are drawn by
        chance or all looked at.
        """
        sizes = np.asarray(problem.sizes)
        in_turn = self.sampling == "in order" and self.per == "example"
        return sizes // self.batch if self.batch and in_turn else np.ones_like(sizes)

    def guarantee(self, problem: Problem, looks: int = 1) -> Guarantee:
        """What may be said of messages that depend on the data through these gradients alone.

        `looks` gradients of a step see the same examples. One record is protected, or with per = "batch" a node's data.
        Nothing is claimed without a clip, nor with noisy = "communicating"; without a mechanism it is
        `jdfl.privacy.NO_NOISE`.

        Args:
            problem: The nodes' data, by which the sensitivity is found.
            looks: How many gradients of one step see the same examples, at least 1.
        """
        if self.mechanism is None:
            return NO_NOISE
        unit = "node" if self.per == "batch" and self.clip is not None else "record"
        told = Guarantee(
            unit=unit,
            adjacency=self.adjacency,
            observer="all messages",
            sensitivity=float(np.max(self.sensitivities(problem)) if self.sensitivity is None else self.sensitivity),
            enforced_by=None,
            claimed=False,
            reason="",
            event=event_of(self.mechanism, problem.n),
            sampling=self._sampling(looks) if unit == "record" else None,
            warnings=self._warnings(),
        )
        if self.clip is None:
            return replace(
                told,
                reason="gradients are not clipped, so nothing enforces the sensitivity that the noise is scaled by",
                remedy="Give clip instead of sensitivity.",
            )
        if self.noisy == "communicating":
            return replace(
                told,
                reason="gradients between two exchanges of messages have no noise, and what is sent depends on them",
                remedy='Use noisy="always".',
            )
        return replace(
            told,
            claimed=True,
            enforced_by=f"{'entrywise' if self.norm == 'entries' else self.norm} clipping of every "
            f"{'example' if unit == 'record' else 'node'}'s gradient to {float(self.clip):g}",
            reason="every gradient is clipped and noisy, and everything else is computed from these and from messages",
        )

    def _warnings(self) -> tuple[str, ...]:
        if self.batch not in (None, 1) and self.sampling == "replacement":
            return (_REPEATED,)
        return (_PASSES,) if self.sampling in ("epochs", "in order") else ()

    def _sampling(self, looks: int) -> Sampling | None:
        """What amplifies: samples without replacement, of which single draws are one."""
        if self.batch is None or self.sampling in ("epochs", "in order"):
            return None
        if self.sampling == "replacement" and self.batch > 1:
            return None
        return Sampling("poisson" if self.sampling == "poisson" else "subset", self.batch, looks)
