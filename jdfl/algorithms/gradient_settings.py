"""Settings of a node's gradients: which examples, what clipping, which noise; and the resulting guarantee.

Axes: m nodes, q examples per node, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.clipping import additions, check_slopes, formed, sloped
from jdfl.algorithms.sampling import Sampler
from jdfl.base import marking, struct
from jdfl.base.backend import backend
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
    "samples are drawn with replacement and may contain a record several times, so they do not amplify privacy; "
    'sampling = "subset" or "poisson" does'
)
_MOST_ROUNDING = 0.1  # of a sensitivity
_PASSES = "a record counts in all releases of its node, although a pass over the data uses it in only one of them"


@jax.jit
def _largest_and_sum(weight: Array) -> tuple[Array, Array]:
    return jnp.max(weight, axis=1), jnp.sum(weight, axis=1)


@struct.dataclass
class GradientSettings:
    """The user's choices for `Gradients`, their checks against a problem, and the guarantee of noise scaled by them."""

    flat: ClassVar[bool] = True  # on the command line and in YAML, its fields are listed with those of the algorithm
    batch: Count | None = struct.field(pytree_node=False, default=None)
    """Examples of one gradient; None: all local data."""
    sampling: Sampler = struct.field(pytree_node=False, default="replacement")
    """How a batch is drawn: each example independently, distinct ones, every example with equal probability, or all in
    turn, shuffled for every pass or in the order of the data."""
    clip: Positive | None = None
    """Largest norm of a gradient; None: no clipping."""
    per: Literal["example", "batch"] = struct.field(pytree_node=False, default="example")
    """What is clipped: every example's gradient, or the batch's."""
    norm: Clip = struct.field(pytree_node=False, default="l2")
    """The norm that is clipped; entries: every entry is clipped separately."""
    mechanism: Mechanism | None = None
    """Noise on gradients; None: no noise."""
    sensitivity: Positive | None = None
    """Sensitivity assumed for the noise where gradients are not clipped; nothing enforces it."""
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    """Neighbouring datasets differ in a record that is replaced, or one that is added or removed."""
    noisy: Literal["always", "communicating"] = struct.field(pytree_node=False, default="always")
    """Which gradients are noisy: all, or only those that follow an exchange of messages."""

    def check(self, problem: Problem) -> None:
        """Raise ValueError for settings out of range.

        Refused are a batch larger than the smallest node's data, unless it is drawn with replacement; other sampling
        without a batch; noise without exactly one of clip and sensitivity, or a sensitivity without noise; and, for
        clipping per example, a `problem` whose slopes do not belong to its loss.
        """
        if self.batch is not None:
            fewest = int(np.min(np.asarray(problem.sizes)))
            if self.sampling != "replacement" and self.batch > fewest:
                raise ValueError(
                    f"Expected batch <= {fewest}, the number of examples of the smallest node, with sampling = "
                    f"{self.sampling!r}, got batch = {self.batch}. Use a smaller batch or fewer nodes, or sampling = "
                    "'replacement', which may draw an example twice."
                )
        elif self.sampling != "replacement":
            raise ValueError(
                f"Expected a batch with sampling = {self.sampling!r}, got batch = None. Give one, such as batch=1."
            )
        self._check_noise(problem)
        if self.clip is not None and self.per == "example":
            check_slopes(problem)

    def _check_noise(self, problem: Problem) -> None:
        if self.mechanism is None:
            if self.sensitivity is not None:
                raise ValueError(
                    f"Expected a mechanism with sensitivity = {self.sensitivity!r}, got mechanism = None. Give "
                    "Gaussian(multiplier), or leave sensitivity out."
                )
            return
        check_mechanism(self.mechanism)
        if (self.clip is None) == (self.sensitivity is None):
            raise ValueError(
                f"Expected clip or sensitivity to scale the noise, got clip = {self.clip!r} and sensitivity = "
                f"{self.sensitivity!r}. Noise without clipping protects nobody: give clip, which bounds the effect of "
                "one example; sensitivity only assumes a bound, and nothing is claimed then."
            )
        if not is_exact(self.mechanism):
            return
        if self.clip is None:
            raise ValueError(
                f"Expected a clip with exact noise, got sensitivity = {self.sensitivity!r}, which bounds no bits. Give "
                "clip, or use Gaussian."
            )
        if self.noisy == "communicating":
            raise ValueError('Expected noisy = "always" with exact noise, got "communicating", which claims nothing.')
        whole = np.asarray(self.sensitivities(problem))
        plain = np.asarray(replace(self, mechanism=Gaussian(1.0)).sensitivities(problem))
        node = int(np.argmax(whole / plain))
        if whole[node] > (1 + _MOST_ROUNDING) * plain[node]:
            looked = int(self.examples(problem)[node])
            raise ValueError(
                f"Expected sums of gradients whose rounding is below {_MOST_ROUNDING:g} of the effect of one record, "
                f"got {whole[node] / plain[node] - 1:.2g} for the {looked} examples of node {node} in "
                f"{problem.dtype}. Exact noise would have to hide the rounding, too: use float64 (JAX_ENABLE_X64=1), "
                "fewer examples (batch), or Gaussian."
            )

    def sensitivities(self, problem: Problem) -> Array:
        """The sensitivity of every node [m], in the mechanism's norm: assumed, or enforced by `clip`.

        For a replaced record it is 2 clip w_t / divisor with the largest weight w_t of the node (2 clip for
        "replacement", whose draws may all pick one record), for a replaced node 2 clip; half of that for add-remove. It
        is multiplied by the largest ratio between the norm of the noise and the norm of the clip. For exact noise it
        includes what floating-point arithmetic may add (`_rounding`).
        """
        dtype = problem.dtype
        if self.clip is None or self.mechanism is None:
            return jnp.full((problem.m,), 0.0 if self.sensitivity is None else self.sensitivity, dtype)
        largest, total = _largest_and_sum(problem.weight)
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
        found = change * stretch(self.norm, self.mechanism.norm, problem.n) * self.clip
        return marking.scale(found, problem.weight, None if self.bound is None else marking.static(self))

    @property
    def bound(self) -> Any:
        """What is clipped, and how; None: not known."""
        return None

    def fits(self, bound: Any) -> bool:
        """Whether `sensitivities` are those of a value that is clipped to `bound`."""
        return self.bound == bound

    def _rounding(self, problem: Problem, share: Array) -> Array:
        """The largest effect of rounding on the difference of two sums of clipped gradients, in units of the clip [m].

        With u half the distance from 1 to the next number, the norm of a clipped gradient is too large by at most n / 2
        + 16 roundings. A sum whose terms pass through k additions has an error of k u times the sum of their norms (N.
        Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2), and noise rounds its argument
        twice more. TPUs multiply with fewer digits than they store.
        """
        unit = float(jnp.finfo(problem.dtype).eps) / 2 * (8 if backend() == "tpu" else 1)
        looked = problem.weight.shape[1] if self.batch is None or self.sampling == "poisson" else self.batch
        at_once = looked if self.norm != "entries" and sloped(problem) else formed(problem.m, problem.n, looked)
        passed = 0 if self.per == "batch" else additions(looked, at_once)
        # The divisor is the weight of the examples in use, or for these two samplings their expected weight.
        expected = self.batch is not None and self.sampling in ("poisson", "subset")
        reach = jnp.maximum(1.0, looked * share) if expected else jnp.ones_like(share)
        return 2.1 * unit * ((problem.n / 2 + 16) * share + (passed + 8) * reach)

    def examples(self, problem: Problem) -> Array:
        """The number of examples that one gradient of every node uses [m] int32.

        It is `batch`, or all local data: without a batch, and for Poisson samples, which read every example in order to
        draw. The count `examples` of a run follows from it.
        """
        if self.batch is None or self.sampling == "poisson":
            return problem.sizes
        return jnp.full((problem.m,), self.batch, jnp.int32)

    def passes(self, problem: Problem) -> np.ndarray:
        """The number of steps of a pass over every node's data [m], where a record is used in one known step of each.

        It is 1 where the protected unit may be used in every step: a whole node, and records that are drawn at random
        or all used.
        """
        sizes = np.asarray(problem.sizes)
        in_turn = self.sampling == "in order" and self.per == "example"
        return sizes // self.batch if self.batch and in_turn else np.ones_like(sizes)

    def guarantee(self, problem: Problem, looks: int = 1) -> Guarantee:
        """The guarantee of messages that depend on the data only through these gradients.

        `looks` gradients of a step use the same examples. The unit is one record, or with per = "batch" a node's data.
        Nothing is claimed without a clip, nor with noisy = "communicating"; without a mechanism it is
        `jdfl.privacy.NO_NOISE`.

        Args:
            problem: The nodes' data, which determine the sensitivity.
            looks: How many gradients of one step use the same examples, at least 1.
        """
        if self.mechanism is None:
            return NO_NOISE
        unit = "node" if self.per == "batch" and self.clip is not None else "record"
        claim = Guarantee(
            unit=unit,
            adjacency=self.adjacency,
            observer="all messages",
            sensitivity=float(np.max(self.sensitivities(problem) if self.sensitivity is None else self.sensitivity)),
            enforced_by=None,
            claimed=False,
            reason="",
            event=event_of(self.mechanism, problem.n),
            sampling=self._sampling(looks) if unit == "record" else None,
            warnings=self._warnings(),
        )
        if self.clip is None:
            return replace(
                claim,
                reason="gradients are not clipped, so nothing enforces the sensitivity that the noise is scaled by",
                remedy="Give clip instead of sensitivity.",
            )
        if self.noisy == "communicating":
            return replace(
                claim,
                reason="gradients between two exchanges of messages have no noise, and messages depend on them",
                remedy='Use noisy="always".',
            )
        return replace(
            claim,
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
        """The sampling that amplifies privacy: without replacement, which includes single draws."""
        if self.batch is None or self.sampling in ("epochs", "in order"):
            return None
        if self.sampling == "replacement" and self.batch > 1:
            return None
        return Sampling("poisson" if self.sampling == "poisson" else "subset", self.batch, looks)
