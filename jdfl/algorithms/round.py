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
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.privacy import Mechanism
from jdfl.privacy.flow import released
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

    def noisy(self, mechanism: Mechanism, x: Array, sensitivity: Any, stream: Stream, told: Told | Stream) -> Array:
        """The rows of x [m, n] with a mechanism's noise of a stream, scaled by a `sensitivity` [m] or [].

        `told` says what that guarantees (see `release`), or is the stream whose release covers this noise, too.
        Every local step has noise of its own. Raises ValueError for a stream that the round has drawn from before.
        """
        if isinstance(told, Stream):
            self.book.include(stream, told)
        else:
            self.release(stream, told)
        add = jax.vmap(mechanism.add, (0, 0, 0 if jnp.ndim(sensitivity) else None))
        return released(add(self.keys(stream, self.local_step), x, sensitivity))

    def release(self, stream: Stream, told: Told, *, look: int = 0, following: bool = False) -> None:
        """Count a release with noise of a stream, about which `told(problem, looks)` says what it guarantees.

        `look` counts the releases of one sample. With `following` it is made only by what follows an exchange.
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
        """`carry` after `count` local steps, each `step(here, carry)` with a round of its own.

        `carry` is a tree of arrays whose shapes stay. `here.local_step` counts the steps from 0, so that each draws
        examples and noise of its own. What a step does is counted `count` times.
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
        """`work(here)`, a tree of rows, for the nodes that are `due` [m] bool, and `otherwise` [m, ...] for the rest.

        `here` is the round of b nodes, `block` at a time, so that other nodes cost nothing; `here.of(x)` are their rows
        of an x [m, ...]. With `block` None all nodes are worked on at once, and the rows of the rest mean nothing.
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
