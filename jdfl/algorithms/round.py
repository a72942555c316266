"""One round as the step of an algorithm sees it: the gradients, messages, noise and keys of all nodes at once.

A step says what the nodes compute. How that is executed (codecs, late messages, blocks of nodes, devices) and what it
counts (messages, gradients, releases) is done here: while JAX traces a step, all that goes through its `Round` is
written down in a `Book`, from which counts, ledgers and statements about privacy follow. An algorithm counts and claims
nothing itself.

Axes: m nodes, of all or of one device, n parameters, b nodes of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.book import Book, Told
from jdfl.algorithms.messages import Messages
from jdfl.arrays import ops
from jdfl.base.streams import Stream, each
from jdfl.devices import nodes
from jdfl.privacy import Mechanism
from jdfl.privacy.flow import bounded, released
from jdfl.problems import Problem

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Round(Messages):
    """What a step knows of its round, and all that it can do besides arithmetic.

    `graph` says who hears whom, `k` counts rounds from 0, `node` [m] are the nodes' ids, and `ready` is what the
    algorithm's `prepare` made (of `prepared`, which has the `Wire`, too). What the step does is written into `book`.
    Inside `repeat` and `each_of` it is of one local step, or of a block of nodes.
    """

    problem: Problem
    local_step: Array | int = 0  # number of the local step in the round, of `local_steps`
    local_steps: int = 1
    inner: bool = False  # within `repeat`
    rows: Array | None = None  # [b] the nodes of a block; None: all

    @property
    def ready(self) -> Any:
        """What the algorithm's `prepare` has made, the same in all rounds; None where it makes nothing.

        Within `each_of` its arrays have the rows of all nodes still: `here.of` takes those of the block. A schedule for
        all rounds [T] is read at `round.k`.
        """
        return self.prepared.own

    # Noise

    def noisy(
        self,
        mechanism: Mechanism,
        x: Array,
        sensitivity: Any,
        stream: Stream,
        told: Told | Stream,
        *,
        index: Any = None,
        look: int = 0,
        following: bool = False,
    ) -> Array:
        """The rows of x [m, n] with a mechanism's noise of a stream.

        All noise that a mechanism draws is added here. Every local step has noise of its own.

        Args:
            mechanism: The noise.
            x: What is to be hidden, x [m, n], bounded before so that neighbouring data change a row by `sensitivity` at
                most.
            sensitivity: What noise is scaled by, in the mechanism's norm: a number for every node [m], or one [] for
                all.
            stream: What is drawn from, with the root "private".
            told: `told(problem, looks)` gives what the noise guarantees (see `release`). Or the stream whose release
                covers this noise, too: then nothing is counted.
            index: What tells several draws of a stream in one round apart, []; None: the local step.
            look: As for `release`.
            following: As for `release`.

        Raises:
            ValueError: For a stream that the round has drawn from before.
        """
        if isinstance(told, Stream):
            self.book.include(stream, told)
        else:
            self.release(stream, told, look=look, following=following)
        add = jax.vmap(mechanism.add, (0, 0, 0 if jnp.ndim(sensitivity) else None))
        return released(add(self.keys(stream, self.local_step if index is None else index), x, sensitivity))

    def correlated(
        self, mechanism: Mechanism, x: Array, sensitivity: Any, stream: Stream, told: Told, row: Array, hidden: Array
    ) -> tuple[Array, Array]:
        """The rows of x [m, n] with noise that is correlated with that of the rounds before, and what is hidden next.

        With x_k in round k, lower triangular C and fresh noise z_k of a mechanism, what others see of all rounds is
        X + C^-1 Z, which tells as much as C X + Z. The release of a round is the row k of that.

        Args:
            mechanism: The noise, which is Gaussian.
            x: What is to be hidden, x [m, n], bounded before.
            sensitivity: What noise is scaled by, as for `noisy`. What the rows of C add up to is not in it, so that
                nothing is claimed unless `privacy` of the method counts it.
            stream: What is drawn from, with the root "private".
            told: As for `noisy`.
            row: The row of C of this round, row [p], from its diagonal, which is positive, backwards.
            hidden: Minus the noise of the last p - 1 rounds, hidden [m, p - 1, n], the last one first; 0 where there
                were none. It must not leave the nodes.
        """
        self.book.correlated = True
        seen = bounded(row[0] * x + jnp.einsum("p,mpn->mn", row[1:], hidden, precision=ops.HIGHEST))
        noisy = self.noisy(mechanism, seen, sensitivity, stream, told) / row[0]
        return noisy, jnp.concatenate([(x - noisy)[:, None], hidden], axis=1)[:, : hidden.shape[1]]

    def pairwise(self, stream: Stream, x: Array) -> Array:
        """Noise like x [m, n] that cancels over every link: both its nodes draw it alike, and one takes it negative.

        A node has the sum over its neighbours of standard normal numbers. The two nodes of a link need a secret that
        nobody else knows, and the network has to be undirected. It is no release: it hides what `noisy` gives from
        those alone who do not know the secrets.

        Args:
            stream: What is drawn from, with the root "private".
            x: Rows x [m, n] whose shape and type the noise has.
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

    def release(self, stream: Stream, told: Told, *, look: int = 0, following: bool = False) -> None:
        """Count a release with noise of a stream, which the step adds by itself.

        Args:
            stream: What the noise is drawn from.
            told: `told(problem, looks)` gives what it guarantees, `looks` being the number of releases from one sample.
            look: Which release of one sample it is, from 0.
            following: Whether it is made only by the step that follows an exchange, and not by other local steps.

        Raises:
            ValueError: For noise of the stream that was drawn before in this round, or that guarantees something else.
        """
        self.book.release(stream, told, look)
        if not following:
            self.book.releases = self.book.releases + 1
        elif self.inner:
            self.book.once += 1
        else:
            self.book.releases = self.book.releases + jnp.asarray(self.follows_exchange, jnp.int32)

    @property
    def follows_exchange(self) -> Array | bool:
        """Whether what is computed here [] comes right after an exchange of messages, or before one.

        True in a round of exchange, and of several local steps in the first alone. Gradients with noisy =
        "communicating" have noise where it is true. It may be traced by JAX.
        """
        if self.inner:
            return self.local_step == 0
        return True if self.exchanging is None else self.exchanging

    # Parts of a round

    def repeat(self, count: int, step: Callable[["Round", T], T], carry: T) -> T:
        """`carry` after `count` local steps, each of which draws examples and noise of its own.

        Args:
            count: How many there are, at least 1. What a step does is counted as often.
            step: `step(here, carry)` gives the next `carry`. `here` is a round whose `local_step` counts from 0.
            carry: A tree of arrays whose shapes and types stay.
        """
        books: list[Book] = []

        def one(t: Array, carry: T) -> T:
            books.append(Book())  # JAX may trace it more than once
            local = {"local_step": self.local_step * count + t, "local_steps": self.local_steps * count}
            return step(replace(self, book=books[-1], inner=True, **local), carry)

        result = one(jnp.int32(0), carry) if count == 1 else lax.fori_loop(0, count, one, carry)
        self.book.absorb(books[-1], count)
        return result

    def each_of(self, due: Array, block: int | None, work: Callable[["Round"], T], otherwise: T | None = None) -> T:
        """A tree of rows [m, ...], of work that some of the nodes do.

        Args:
            due: The nodes that do it, due [m] bool.
            block: How many of them are worked on at a time, so that other nodes cost nothing. None: all nodes at once,
                and the rows of the rest mean nothing.
            work: `work(here)` gives the rows of the nodes of the round `here`, b of them; `here.of(x)` are their rows
                of an x [m, ...].
            otherwise: Leaves [m, ...], the rows of the nodes that are not due; needed with a `block`.
        """
        books: list[Book] = []

        def some(rows: Array, carry: T) -> T:
            books.append(Book())  # JAX may trace it more than once
            made = work(self._block(rows, books[-1]))
            return jax.tree.map(lambda all, new: all.at[rows].set(new, mode="drop"), carry, made)

        if block is None:
            books.append(Book())
            result = work(replace(self, book=books[-1]))
        else:
            result = ops.for_rows(due, min(nodes.count(self.m), block), some, otherwise)
        self.book.absorb(books[-1], due.astype(jnp.int32))
        return result

    def of(self, x: Array) -> Array:
        """The rows of x [m, ...] of this block's nodes, of all where it is no block.

        Within `each_of` fields of the state and what `ready` holds have to go through it, while keys, ids, gradients,
        codec and the problem of `here` are those of the block already.
        """
        return x if self.rows is None else x[self.rows]

    def _block(self, rows: Array, book: Book) -> "Round":
        """The round of the nodes `rows` [b] alone; ids out of range clip."""
        ready = self.prepared
        if ready.gradients is not None:
            ready = replace(ready, gradients=ready.gradients.rows(rows))
        if ready.wire is not None:
            ready = replace(ready, wire=ready.wire.rows(rows))
        moment = replace(self.moment, node=self.node[rows])
        return replace(self, moment=moment, problem=self.problem.nodes(rows), prepared=ready, book=book, rows=rows)
