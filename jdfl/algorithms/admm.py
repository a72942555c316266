"""ADMM, LT-ADMM and LT-ADMM-VR: consensus by relaxed alternating minimisation, with a variable for every link.

N. Bastianello, R. Carli, L. Schenato, M. Todescato: Asynchronous Distributed Optimization Over Lossy Networks via
Relaxed ADMM: Stability and Linear Convergence, 2021; X. Ren, N. Bastianello, K. H. Johansson, T. Parisini:
Communication-Efficient Stochastic Distributed Learning, 2026 (LT-ADMM).

    x_i  <- argmin_w f_i(w) + rho d_i ||w||^2 / 2 - <sum_j z_ij, w>                               (ADMM)
    tau times:  y_i <- y_i - lr v_i - beta (rho d_i x_i - sum_j z_ij),     from y_i = x_i         (LT-ADMM)
    x_i  <- y_i
    z_ij <- (1 - alpha) z_ij - alpha (z_ji - 2 rho x_j)                                           (both)
    LT-ADMM:       v_i = g_i(y_i)
    LT-ADMM-VR:    v_i = mean_{h in B_i} (g_ih(y_i) - c_ih) + mean_h c_ih,     then c_ih <- g_ih(y_i) for h in B_i

Node i has d_i neighbours, and rho is the penalty. The first line is the proximal operator of f_i / (rho d_i) at sum_j
z_ij / (rho d_i). It is computed by `inner` proximal gradient steps from the last x_i; with few of them the method is
inexact in every round, but its limit stays the optimum. ADMM starts from z_ij = rho x_i. Relaxation alpha = 1/2 is the
usual ADMM, `jdfl.DADMM` with half the penalty.

Only s_i = sum_j z_ij is used. With r_i = sum_j z_ji, u = s + r and v = s - r satisfy

    u_i <- (1 - 2 alpha) u_i + 2 alpha rho sum_j (x_j + x_i),       v_i <- v_i + 2 alpha rho sum_j (x_j - x_i)

Two vectors per node thus replace those of all links, and only x is sent: both nodes of a link know what the other
subtracts. v adds up differences, which lose nothing near consensus. Other methods with a variable per link do the same.

The formulas agree with those of the package decent-bench, by the first author, which starts from z_ij = 0 and computes
proximal operators as exactly as it can. The paper's lost messages, where a link keeps its z_ij, are left out.

The last term of a local step of LT-ADMM stays the same in all steps of a round. `jdfl.DiNNO` computes it at y_i
instead; with one local step, lr = beta and alpha = 1/2 it is LT-ADMM, for half the penalty. LT-ADMM starts from z_ij =
x_i, as in decent-bench. With `start="consensus"` it starts from z_ij = rho x_i, and parameters that agree stay where
they are. With clipped and noisy gradients LT-ADMM is LT-ADMM-DP of the same group, as far as summaries of that paper
say.

LT-ADMM-VR draws a batch B_i for every step and has a table c_ih of gradients of all examples h. The table begins with
the gradients at x_i, in every round or (`kept`) only in the first. `kept` saves a pass over the data per round but
needs a smaller lr, because gradients in the table may be many rounds old. A batch has distinct examples, and all sets
are equally likely. The examples' weights in f_i count in both means. The regulariser is not sampled. The table has q
numbers for each of m n parameters; q is the largest number of examples of a node. Gradients are counted by examples:
two per member of a batch, and every example of a node where the table begins. In decent-bench `kept` is `v2`.

Missing neighbours: refused, because both nodes of a link must know what the other one has received.

Axes: m nodes, n parameters, q examples of a node, b examples of a batch.
"""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import MODEL, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Bound, Count, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.network import Network, adding
from jdfl.problems import Problem

_BATCH = Stream("lt-admm-vr.batch", "private")
Relaxation = Annotated[float | Array, Bound("(0, 1)")]


class OverLinks(Algorithm):
    """The common part of methods with a variable for every link: the links must stay the same, and W is not used."""

    needs: ClassVar[dict[str, bool]] = {"fixed": True, "undirected": True}
    mixes: ClassVar[bool] = False


class LinkSums(NamedTuple):
    """Sums over a node's neighbours j of the variables of its links."""

    both: Array  # [m, n] u_i, the sum of z_ij + z_ji
    difference: Array  # [m, n] v_i, the sum of z_ij - z_ji

    @property
    def own(self) -> Array:
        """The sum s_i [m, n] of the z_ij."""
        return (self.both + self.difference) / 2


class State(NamedTuple):
    x: Array  # [m, n] parameters
    z: LinkSums  # of the variables of the links


@struct.dataclass
class ADMM(OverLinks):
    """ADMM: relaxed consensus ADMM with proximal steps; exact with a constant penalty.

    Raises ValueError (from `check`) for networks that change or have one-way links.
    """

    kind: ClassVar[str] = "admm"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    penalty: Positive = 0.5
    """Weight rho of the constraint of a link."""
    relaxation: Relaxation = 0.5
    """Weight alpha of the new values of the links' variables."""
    lr: StepSize = 0.2
    """Step size of the inner steps."""
    inner: Count = struct.field(pytree_node=False, default=10)
    """Steps towards the proximal operator; each shrinks the error by 1 + lr w or more, w being the quadratic weight."""
    gradients: Exact = Gradients()
    title: ClassVar[str] = "ADMM"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "penalty")

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, consensus(x, self.penalty, round))

    def step(self, state: State, round: Round) -> State:
        x, z = state
        x = minimised(self, x, self.penalty * degree(x, round), z.own, round)
        return State(x, exchanged(z, x, self.penalty, self.relaxation, round))


@struct.dataclass
class _LocalTraining(OverLinks):
    """The settings of LT-ADMM, and what its steps share whatever their gradients are."""

    lr: StepSize = 0.1
    beta: Positive = 0.1
    """Step size along the constraints."""
    penalty: Positive = 0.5
    """Weight rho of the constraint of a link."""
    relaxation: Relaxation = 0.5
    """Weight alpha of the new values of the links' variables."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps tau before each exchange of messages."""
    start: Literal["parameters", "consensus"] = struct.field(pytree_node=False, default="parameters")
    """Begin with links z_ij = x_i (an author's code), or with rho x_i."""
    tuned: ClassVar[tuple[str, ...]] = ("lr", "beta")

    def links(self, x: Array, round: Round) -> LinkSums:
        """The first variables of the links, as sums, for initial parameters x [m, n]."""
        return consensus(x, 1 if self.start == "parameters" else self.penalty, round)

    def towards(self, x: Array, z: LinkSums, round: Round) -> Array:
        """What a local step subtracts [m, n] because of the constraints: beta (rho d_i x_i - sum_j z_ij)."""
        return self.beta * (self.penalty * degree(x, round) * x - z.own)


@struct.dataclass
class LTADMM(_LocalTraining):
    """LT-ADMM: relaxed ADMM with local gradient steps; exact with gradients of all examples.

    It takes any gradients. Raises ValueError (from `check`) for networks that change or have one-way links.
    """

    kind: ClassVar[str] = "lt-admm"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "LT-ADMM"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, self.links(x, round))

    def step(self, state: State, round: Round) -> State:
        x, z = state
        away = self.towards(x, z, round)

        def local(here: Round, y: Array) -> Array:
            return y - self.lr * self.gradients(y, here) - away

        x = round.repeat(self.local_steps, local, x)
        return State(x, exchanged(z, x, self.penalty, self.relaxation, round))


class StateVR(NamedTuple):
    x: Array  # [m, n] parameters
    z: LinkSums  # of the variables of the links
    table: Array | None  # [m, q, n] last gradients of the examples, if kept


@struct.dataclass
class LTADMMVR(_LocalTraining):
    """LT-ADMM-VR: relaxed ADMM with local steps along variance-reduced gradients; exact with small batches.

    Raises ValueError (from `check`) for batches that exceed the data of a node, and networks that change or have
    one-way links.
    """

    kind: ClassVar[str] = "lt-admm-vr"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    batch: Count = struct.field(pytree_node=False, default=1)
    """Examples of a node in a local step."""
    kept: bool = struct.field(pytree_node=False, default=False)
    """Keep the table from round to round."""
    title: ClassVar[str] = "LT-ADMM-VR"
    exact: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if self.batch > (least := int(np.min(problem.sizes))):
            raise ValueError(
                f"Expected batch <= {least}, the fewest examples of a node, got batch = {self.batch}. Use a smaller "
                "batch, or jdfl.LTADMM."
            )

    def examples(self, problem: Problem) -> Array:
        """One example per gradient [m]."""
        return jnp.ones((problem.m,), jnp.int32)

    def init(self, round: Round) -> StateVR:
        x = round.problem.initial_params()
        return StateVR(x, self.links(x, round), _table(x, round) if self.kept else None)

    def step(self, state: StateVR, round: Round) -> StateVR:
        x, z, table = state
        problem, share = round.problem, round.problem.weight / jnp.sum(round.problem.weight, axis=1, keepdims=True)
        table = _table(x, round) if table is None else table
        away = self.towards(x, z, round)
        at = jnp.arange(x.shape[0])[:, None]

        def local(here: Round, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            y, table, mean = carry
            chosen = _sample(self.batch, here)
            data, part = problem.some(chosen), jnp.take_along_axis(share, chosen, axis=1)
            old, new = table[at, chosen], problem.each(problem.example_gradients, y, data)
            v = _sums(part / jnp.sum(part, axis=1, keepdims=True), new - old) + mean
            y = y - self.lr * (v + jax.vmap(jax.grad(problem.regulariser))(y)) - away
            new = problem.each(problem.example_gradients, y, data)
            here.trace.grads += 2 * self.batch
            return y, table.at[at, chosen].set(new), mean + _sums(part, new - old)

        x, table, _ = round.repeat(self.local_steps, local, (x, table, _sums(share, table)))
        z = exchanged(z, x, self.penalty, self.relaxation, round)
        return StateVR(x, z, table if self.kept else None)


def _table(x: Array, round: Round) -> Array:
    """The gradients of all examples [m, q, n] at x [m, n]."""
    round.trace.grads = round.trace.grads + round.problem.sizes
    return round.problem.each(round.problem.example_gradients, x, round.problem.data)


def _sample(batch: int, round: Round) -> Array:
    """The places [m, b] of distinct examples of every node in a local step."""

    def one(key: Array, weight: Array) -> Array:
        return lax.top_k(jnp.where(weight > 0, jax.random.uniform(key, weight.shape, jnp.float32), -1.0), batch)[1]

    return jax.vmap(one)(round.keys(_BATCH, round.local_step), round.problem.weight)


def _sums(weight: Array, g: Array) -> Array:
    """The weighted sums [m, n] of gradients g [m, b, n]."""
    return jnp.einsum("mb,mbn->mn", weight, g, precision="highest")


def consensus(x: Array, penalty: Any, round: Round) -> LinkSums:
    """The sums for z_ij = penalty x_j, if all rows of x [m, n] are the same: these z_ij keep x where it is."""
    return LinkSums(2 * penalty * degree(x, round) * x, jnp.zeros_like(x))


def exchanged(z: LinkSums, x: Array, penalty: Any, relaxation: Any, round: Round, channel: Channel = MODEL) -> LinkSums:
    """The sums after all nodes have sent their x [m, n] and updated the variables of their links."""
    apart = differences(x, round, channel)
    step = 2 * relaxation * penalty
    both = (1 - 2 * relaxation) * z.both + step * (apart + 2 * degree(x, round) * x)
    return LinkSums(both, z.difference + step * apart)


def differences(x: Array, round: Round, channel: Channel = MODEL) -> Array:
    """sum_j (x_j - x_i) [m, n] over the neighbours j, after all nodes have sent their x [m, n]."""
    return round.on(adding(round.graph)).pull(x, channel)


def degree(x: Array, round: Round) -> Array:
    """The number of neighbours of every node [m, 1], in the type of x."""
    return round.graph.in_degree.astype(x.dtype)[:, None]


def minimised(algorithm: Any, x: Array, weight: Array, slope: Array, round: Round) -> Array:
    """Nearly the minimiser w_i [m, n] of f_i(w) + weight_i ||w||^2 / 2 - <slope_i, w>, by proximal gradient steps.

    `inner` steps from x [m, n] with step size `lr` make f_i linear and keep the quadratic term, so that lr < 2 / L
    suffices whatever the weight is, L being the curvature of f_i. Each costs a gradient.
    """

    def step(here: Round, w: Array) -> Array:
        return (w - algorithm.lr * (algorithm.gradients(w, here) - slope)) / (1 + algorithm.lr * weight)

    return round.repeat(algorithm.inner, step, x)
