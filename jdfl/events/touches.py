"""What events touch: the rows of tables that they read and write, column by column.

Axes: E events, C columns of rows.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple

from jdfl.events.timeline import Events

_BLOCK = 2**17  # events that are checked at a time
NOTHING = ""  # the table of a column whose rows are nodes that take part without a row of theirs


class Touch(NamedTuple):
    """A row of a table that an event reads, writes, or both."""

    table: str
    mode: Literal["r", "w", "rw"]
    own: bool = False
    """Whether the row is the actor's own, which no other node ever sees, and every event that touches it writes the
    actor's row of another table: it orders nothing. Rows of all other touches count as sent."""
    many: bool = False
    """Whether it is one row for every in-neighbour of the actor, in the order of the table of in-neighbours; such a
    touch is the last of its kind, and read only."""


class Kind(NamedTuple):
    """A kind of event: its name, and what it touches, column by column of the rows."""

    name: str
    touches: tuple[Touch, ...]
    costly: bool = True
    """Whether it takes long, as gradients do. Where kinds differ in this, as many costly events as can be run at once,
    and the others between them."""

    @property
    def single(self) -> int:
        """The number of columns before those of the in-neighbours."""
        return sum(not touch.many for touch in self.touches)


def by_column(kind: Kind, columns: int) -> list[Touch]:
    """The touch of every column of a kind; one of in-neighbours has all columns from its own on."""
    last = kind.touches[-1]
    return [*kind.touches, *[last] * (columns - len(kind.touches) if last.many else 0)]


def check_rows(events: Events, kinds: Sequence[Kind]) -> None:
    """Raise ValueError for `own` rows that are not the actor's, and for rows that an event writes and touches twice."""
    for (_, some), (number, kind) in product(events.blocks(_BLOCK), enumerate(kinds)):
        here = some.kind == number
        rows, actor = some.rows[here], some.actor[here]
        for c, touch in enumerate(kind.touches):
            if touch.own and (bad := rows[:, c] != actor).any():
                raise ValueError(
                    f"Expected the actor's own row of the table {touch.table!r} in every event {kind.name!r}, got row "
                    f"{rows[bad, c][0]} of node {actor[bad][0]}. Leave out own=True."
                )
            for other, before in enumerate(kind.touches[:c]):
                written = touch.table == before.table != NOTHING and "w" in touch.mode + before.mode
                if written and not touch.many and ((rows[:, c] == rows[:, other]) & (rows[:, c] >= 0)).any():
                    raise ValueError(
                        f"Expected different rows of the table {touch.table!r} in an event {kind.name!r}, got one "
                        "twice. A node cannot be its own partner."
                    )
