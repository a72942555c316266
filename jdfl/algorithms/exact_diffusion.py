"""Exact diffusion, LED and ProxSkip: adapt, correct, combine; with local steps, or in rounds that a coin chooses.

K. Yuan, B. Ying, X. Zhao, A. H. Sayed: Exact Diffusion for Distributed Optimization and Learning - Part I: Algorithm
Development, 2019; S. A. Alghunaim: Local Exact-Diffusion for Decentralized Optimization and Learning, 2023 (LED); K.
Mishchenko, G. Malinovsky, S. Stich, P. Richtarik: ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication
Acceleration! Finally!, 2022 (decentralized Scaffnew).

    exact diffusion:    z_i = x_i - lr g_i(x_i) - y_i,     x_i <- sum_j Wb_ij z_j,     y_i <- y_i + z_i - x_i
    LED:    tau times  z_i <- z_i - lr g_i(z_i) - beta y_i  from z_i = x_i,   then the same with these z_i
    ProxSkip:    the same as exact diffusion, with y_i <- y_i + beta (z_i - x_i), with probability p for all nodes
    otherwise    x_i <- z_i

Wb is I - gamma (I - W), and the run starts from y_i = 0. Exact diffusion has gamma = 1/2. Its paper prints psi_k =
x_{k-1} - lr g(x_{k-1}), phi_k = psi_k + x_{k-1} - psi_{k-1}, x_k = Wb phi_k, which would accumulate rounding errors
(see `step_sizes`); -y is x - psi of the last round. The y_i sum to zero, so nodes in consensus at a point with zero
average gradient stay there: all three are exact, and with tau = p = beta = 1 and gamma = 1/2 they are the same.

The paper on exact diffusion allows a left-stochastic W and a step size per node; this is its symmetric doubly
stochastic case. There x follows the recursion of NIDS (`nids`), whose bounds on the step size apply: lr < 2 / L is
sufficient, and `check` warns beyond it; lr > (3 + 1 / lambda_min(Wb)) / (2 L) diverges on least squares and is refused.

The paper on LED and the package decent-bench have gamma = 1. The gamma is ours, for W with negative eigenvalues:
without gradients, a mode of Wb with eigenvalue l decays if 0 < tau beta (1 - l) < 2 (1 + l), hence for gamma = 1/2 if
tau beta < 2. The paper on ProxSkip has the control variates h_i = -y_i / lr, beta = p, and lr tau / p for gamma.
decent-bench has gamma = 1 / (2 chi) and another beta.

Missing neighbours: refused, because corrections add up only if W stays the same.
"""

from dataclasses import replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_sizes import AddingUp
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense

COIN = Stream("proxskip.coin", "choice")


class State(NamedTuple):
    x: Array  # [m, n] parameters
    c: Array  # [m, n] -y, what mixing has added so far


@struct.dataclass
class ExactDiffusion(AddingUp):
    """Exact diffusion: take a local step, correct it, then mix; exact with a constant step size.

    It takes any gradients and codec; it is exact with gradients of all examples and lossless messages. With a lossy
    codec the sum of c stays zero, and the final error is about the codec's own. Raises ValueError (from `check`) for
    networks that change or are not symmetric, and step sizes that diverge.
    """

    kind: ClassVar[str] = "exact-diffusion"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "exact diffusion"

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, c = state
        phi = x - self.lr * self.gradients(x, round) + c
        pulled = round.pull(phi) / 2  # (Wb - I) phi
        return State(phi + pulled, c + pulled)


class Corrected(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] corrections: what mixing has taken away so far


class _Correcting(Algorithm):
    """The common part of LED and ProxSkip."""

    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC

    def init(self, round: Round) -> Corrected:
        x = round.problem.initial_params()
        return Corrected(x, jnp.zeros_like(x))


@struct.dataclass
class LED(_Correcting):
    """LED: local exact diffusion; exact with a constant step size and any number of local steps.

    It takes any gradients. Raises ValueError (from `check`) for networks that are not fixed and undirected with
    symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "led"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.02
    beta: Positive = 0.2
    """Step size of the correction in every local step."""
    gamma: Fraction = 0.5
    """Part of the mixing step that is taken: 1 mixes with W, 1/2 with (I + W) / 2."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "LED"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "beta")

    def step(self, state: Corrected, round: Round) -> Corrected:
        x, y = state

        def local(here: Round, phi: Array) -> Array:
            return phi - self.lr * self.gradients(phi, here) - self.beta * y

        phi = round.repeat(self.local_steps, local, x)
        pulled = self.gamma * round.pull(phi)  # (Wb - I) phi
        return Corrected(phi + pulled, y - pulled)


@struct.dataclass
class ProxSkip(_Correcting):
    """ProxSkip: decentralized Scaffnew, whose nodes exchange messages with probability p; exact.

    It takes any gradients. Raises ValueError (from `check`) for networks that are not fixed and undirected with
    symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "proxskip"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    p: Fraction = 0.5
    """Probability that a round has an exchange of messages, the same coin for all nodes."""
    gamma: Fraction = 0.5
    """Part of the mixing step that is taken: 1 mixes with W, 1/2 with (I + W) / 2."""
    beta: Fraction | None = None
    """Step size of the control variates; None: p."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "ProxSkip"

    def step(self, state: Corrected, round: Round) -> Corrected:
        x, y = state
        coin = jax.random.bernoulli(round.context.stream(COIN), jnp.asarray(self.p, jnp.float32))
        round = replace(round, exchanging=coin)
        z = x - self.lr * self.gradients(x, round) - y
        pulled = jnp.where(coin, self.gamma * round.pull(z), 0)  # (Wb - I) z
        return Corrected(z + pulled, y - (self.p if self.beta is None else self.beta) * pulled)
