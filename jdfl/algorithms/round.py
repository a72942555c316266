"""One round as an algorithm's step sees it: gradients, messages, noise and keys of all nodes at once.

A step defines what the nodes compute. How that is executed (codecs, delayed messages, blocks of nodes, devices) and
what it counts (messages, gradients, releases) is determined here. While JAX traces a step, everything that goes through
its `Round` is recorded in a `Book`, from which counts, ledgers and privacy statements are derived. An algorithm counts
and claims nothing itself.

Axes: m nodes, of all or of one device, n parameters, b nodes of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.book import Book, Claim
from jdfl.algorithms.messages import Messages
from jdfl.arrays import ops
from jdfl.base import marking
from jdfl.base.streams import Stream, each
from jdfl.devices import nodes
from jdfl.privacy import ExactGaussian, Gaussian, Laplace, Mechanism
from jdfl.privacy.flow import Booking
from jdfl.problems import Problem

T = TypeVar("T")
LOOKS = 4  # largest number of releases from one sample
_KNOWN = (Gaussian, Laplace, ExactGaussian)  # their noise has the law of their events


@dataclass(frozen=True, kw_only=True)
class Round(Messages):
    """What a step knows of its round, and everything it can do besides arithmetic.

    `graph` has the links and mixing weights, `k` is the number of the round from 0, `node` [m] are the nodes' ids, and
    `ready` is the result of the algorithm's `prepare` (`prepared` also has the `Wire`). What the step does is recorded
    in `book`. Inside `repeat` and `each_of` it describes one local step, or a block of nodes.
    """

    problem: Problem
    local_step: Array | int = 0  # number of the local step in the round, below `local_steps`
    local_steps: int = 1
    inner: bool = False  # within `repeat`
    rows: Array | None = None  # [b] the nodes of a block; None: all
    due: Array | None = None  # [m] bool the only nodes whose noise is counted; None: all
    turns: tuple[int | None, ...] = ()  # of the loops that this part of the step is in; None: blocks of nodes
    altered: bool = False  # whether a step has made it, or one that it was made from

    def __post_init__(self) -> None:
        if not marking.ours(3):  # after `__init__`
            object.__setattr__(self, "altered", True)

    @property
    def ready(self) -> Any:
        """The result of the algorithm's `prepare`, the same in all rounds; None where it returns nothing.

        Within `each_of` its arrays still have the rows of all nodes: `here.of` selects those of the block. A schedule
        for all rounds [T] is read at `round.k`.
        """
        return self.prepared.own

    # Noise

    def noisy(
        self,
        mechanism: Mechanism,
        x: Array,
        sensitivity: Any,
        stream: Stream,
        claim: Claim | Stream,
        *,
        look: int = 0,
        following: bool = False,
    ) -> Array:
        """The rows of x [m, n] plus a mechanism's noise, drawn from a stream.

        All noise of mechanisms is added here. Every local step has its own noise.

        Args:
            mechanism: The noise.
            x: The vectors to hide, x [m, n], bounded beforehand so that neighbouring data change a row by at most
                `sensitivity`.
            sensitivity: The scale of the noise, in the mechanism's norm: a number for every node [m], or one [] for
                all.
            stream: The stream of the noise, with the root "private".
            claim: `claim(problem, looks)` returns the guarantee of the noise (see `release`). Alternatively the stream
                whose release also covers this noise: then nothing is counted.
            look: As for `release`.
            following: As for `release`.

        Raises:
            ValueError: For a stream that the round has already drawn from, and one that is not private.
        """
        known: Any = {"mechanism": marking.static(mechanism), "honest": marking.plain(mechanism, *_KNOWN)}
        self.book.altered |= self.altered
        if isinstance(claim, Stream):
            booking = Booking(stream, turns=self.turns, **known)
            self.book.include(booking, claim)
        else:
            booking = self.release(stream, claim, look=look, following=following, **known)
        add = jax.vmap(mechanism.add, (0, 0, 0 if jnp.ndim(sensitivity) else None))
        y = marking.noisy(
            add(self.keys(stream, self.local_step * LOOKS + look), x, sensitivity), x, sensitivity, booking
        )
        return y if self.due is None else jnp.where(self.due[:, None], y, 0)  # other nodes release nothing

    def correlated(
        self, mechanism: Mechanism, x: Array, sensitivity: Any, stream: Stream, claim: Claim, row: Array, hidden: Array
    ) -> tuple[Array, Array]:
        """The rows of x [m, n] plus noise that is correlated with earlier rounds, and the next `hidden`.

        With x_k in round k, lower triangular C and fresh noise z_k of a mechanism, others see X + C^-1 Z over all
        rounds, which reveals as much as C X + Z. The release of round k is row k of that.

        Args:
            mechanism: The noise, which is Gaussian.
            x: The vectors to hide, x [m, n], bounded beforehand.
            sensitivity: The scale of the noise, as for `noisy`. It does not include the sensitivity of the rows of C,
                so nothing is claimed unless the method's `privacy` counts it.
            stream: The stream of the noise, with the root "private".
            claim: As for `noisy`.
            row: The row of C of this round, row [p], from its positive diagonal entry backwards.
            hidden: The negative noise of the last p - 1 rounds, hidden [m, p - 1, n], the latest first; 0 where there
                were none. It must not leave the nodes.
        """
        self.book.correlated = True
        seen = marking.bounded(row[0] * x + jnp.einsum("p,mpn->mn", row[1:], hidden, precision=ops.HIGHEST))
        noisy = self.noisy(mechanism, seen, sensitivity, stream, claim) / row[0]
        return noisy, jnp.concatenate([(x - noisy)[:, None], hidden], axis=1)[:, : hidden.shape[1]]

    def pairwise(self, stream: Stream, x: Array) -> Array:
        """Noise like x [m, n] that cancels over every link: both of its nodes draw it, with opposite signs.

        A node has the sum over its neighbours of standard normal numbers. The two nodes of a link need a secret that no
        other node knows, and the network must be undirected. It is not a release: it hides the result of `noisy` only
        from observers who do not know the secrets.

        Args:
            stream: The stream of the noise, with the root "private".
            x: Rows x [m, n] with the shape and type of the noise.
        """
        graph, key = self.graph, self.moment.stream(stream)
        ids = graph.gathered(self.node)

        def added(total: Array, slot: tuple[Array, Array]) -> tuple[Array, None]:
            other, there = ids[slot[0]], slot[1]
            low, high = jnp.minimum(self.node, other), jnp.maximum(self.node, other)
            keys = jax.vmap(jax.random.fold_in)(each(key, low, self.local_step), high)
            drawn = jax.vmap(lambda one: jax.random.normal(one, x.shape[1:], x.dtype))(keys)
            sign = jnp.where(there, jnp.where(self.node < other, 1, -1), 0).astype(x.dtype)
            return total + sign[:, None] * drawn, None

        return lax.scan(added, jnp.zeros_like(x), (graph.senders.T, graph.mask.T))[0]

    def release(self, stream: Stream, claim: Claim, *, look: int = 0, following: bool = False, **known: Any) -> Booking:
        """Count a release whose noise, from a stream, the step adds itself; returns what was booked.

        Args:
            stream: The stream of the noise.
            claim: `claim(problem, looks)` returns its guarantee, `looks` being the number of releases from one sample.
            look: The number of this release among those of one sample, from 0 to 3.
            following: Whether only the step that follows an exchange makes it, and not other local steps.
            known: What else is known of it, by the fields of `jdfl.privacy.flow.Booking`.

        Raises:
            ValueError: For noise of the stream that was already drawn in this round, or that has a different guarantee.
        """
        if not 0 <= look < LOOKS:
            raise ValueError(f"Expected 0 <= look < {LOOKS}, got look = {look!r}: others share the next step's noise.")
        booking = Booking(stream, look, self.turns, each=not following, **known)
        self.book.release(booking, claim)
        if not following:
            self.book.released(1)
        elif self.inner:
            self.book.once += 1
        else:
            self.book.released(jnp.asarray(self.follows_exchange, jnp.int32))
        return booking

    @property
    def follows_exchange(self) -> Array | bool:
        """Whether the current computation [] is next to an exchange of messages.

        True in a round of exchange; of several local steps, only in the first. Gradients with noisy = "communicating"
        have noise where it is true. It may be traced by JAX.
        """
        if self.inner:
            return self.local_step == 0
        return True if self.exchanging is None else self.exchanging

    # Parts of a round

    def repeat(self, count: int, step: Callable[["Round", T], T], carry: T) -> T:
        """`carry` after `count` local steps, each with its own examples and noise.

        Args:
            count: The number of local steps, at least 1. Counts are multiplied by it.
            step: `step(here, carry)` returns the next `carry`. `here` is a round whose `local_step` counts from 0.
            carry: A tree of arrays whose shapes and types stay the same.
        """
        books: list[Book] = []

        def one(t: Array, carry: T) -> T:
            books.append(Book())  # JAX may trace this more than once
            local: Any = {"local_step": self.local_step * count + t, "local_steps": self.local_steps * count}
            local["turns"] = self.turns if count == 1 else (*self.turns, count)
            return step(replace(self, book=books[-1], inner=True, **local), carry)

        result = one(jnp.int32(0), carry) if count == 1 else lax.fori_loop(0, count, one, carry)
        self.book.absorb(books[-1], count)
        return result

    def each_of(self, due: Array, block: int | None, work: Callable[["Round"], T], otherwise: T | None = None) -> T:
        """A tree of rows [m, ...] computed for some of the nodes.

        Args:
            due: The nodes to compute, due [m] bool.
            block: How many of them are processed at a time, so that other nodes cost nothing. None: all nodes at once,
                and the rows of the others are meaningless: they have no noise, and 0 in its place.
            work: `work(here)` returns the rows of the b nodes of the round `here`; `here.of(x)` selects their rows from
                an x [m, ...].
            otherwise: Leaves [m, ...], the rows of the nodes that are not due; required with a `block`.
        """
        books: list[Book] = []

        def some(rows: Array, carry: T) -> T:
            books.append(Book())  # JAX may trace this more than once
            made = work(self._block(rows, books[-1]))
            return jax.tree.map(lambda all, new: all.at[rows].set(new, mode="drop"), carry, made)

        if block is None:
            books.append(Book())
            result = work(replace(self, book=books[-1], due=due if self.due is None else self.due & due))
        else:
            result = ops.for_rows(due, min(nodes.count(self.m), block), some, otherwise)
        self.book.absorb(books[-1], due.astype(jnp.int32))
        return result

    def of(self, x: Array) -> Array:
        """The rows of x [m, ...] that belong to this block's nodes; all rows outside of a block.

        Within `each_of` apply it to fields of the state and to the contents of `ready`; keys, ids, gradients, codec and
        problem of `here` already belong to the block.
        """
        return x if self.rows is None else x[self.rows]

    def _block(self, rows: Array, book: Book) -> "Round":
        """The round for the nodes `rows` [b]; ids out of range are clipped."""
        ready = self.prepared
        if ready.gradients is not None:
            ready = replace(ready, gradients=ready.gradients.rows(rows))
        if ready.wire is not None:
            ready = replace(ready, wire=ready.wire.rows(rows))
        moment, problem, turns = (
            replace(self.moment, node=self.node[rows]),
            self.problem.nodes(rows),
            (*self.turns, None),
        )
        data, weight = marking.rows((problem.data, problem.weight), (self.problem.data, self.problem.weight))
        problem = replace(problem, data=data, weight=weight)
        return replace(self, moment=moment, problem=problem, prepared=ready, book=book, rows=rows, turns=turns)
