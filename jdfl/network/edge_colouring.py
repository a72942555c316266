"""Edges into matchings: a proper edge colouring with at most one colour more than the largest degree. On the host.

J. Misra, D. Gries, "A constructive proof of Vizing's theorem", 1992; the bound is V. G. Vizing's, 1964. It takes
O(m e) steps for m nodes and e edges.
"""

from collections.abc import Iterator

import numpy as np


class _Colouring:
    """at[i][c] is the node at the other end of i's edge of colour c."""

    def __init__(self, m: int, colours: int) -> None:
        self.at: list[dict[int, int]] = [{} for _ in range(m)]
        self.colours = range(colours)

    def free(self, i: int) -> Iterator[int]:
        """The colours that no edge of node i has."""
        return (c for c in self.colours if c not in self.at[i])

    def fan(self, u: int, v: int) -> tuple[list[int], int]:
        """Neighbours of u, v first, each one's edge to u of a colour free at the one before; a colour free at the last.

        The fan ends where that colour is free at u too, or else where no neighbour continues it.
        """
        fan = [v]
        while True:
            following, colour = None, -1
            for colour in self.free(fan[-1]):
                if colour not in self.at[u]:
                    return fan, colour
                if self.at[u][colour] not in fan:
                    following = self.at[u][colour]
            if following is None:
                return fan, colour
            fan.append(following)

    def invert(self, u: int, c: int, d: int) -> None:
        """Exchange c and d along the path of these colours that begins at u, where c is free."""
        path, colour = [u], d
        while colour in self.at[path[-1]]:
            path.append(self.at[path[-1]][colour])
            colour = c + d - colour
        for i in path:
            self.at[i] = {{c: d, d: c}.get(one, one): other for one, other in self.at[i].items()}

    def add(self, u: int, v: int) -> None:
        """Colour the edge u - v: edges of a fan take the colours of those that follow them."""
        fan, d = self.fan(u, v)
        if d in self.at[u]:
            self.invert(u, next(self.free(u)), d)
        last = next(i for i, x in enumerate(fan) if d not in self.at[x])  # the shortest part of it, still a fan
        colour_of = {other: colour for colour, other in self.at[u].items()}
        moved = [colour_of[x] for x in fan[1 : last + 1]]
        for x, colour in zip(fan[1:], moved):
            del self.at[x][colour]
        for x, colour in zip(fan, [*moved, d]):
            self.at[u][colour], self.at[x][colour] = x, u


def partners(u: np.ndarray, v: np.ndarray, m: int) -> np.ndarray:
    """The edges u[e] - v[e] as matchings: [m, M] int32 whom node i meets in matching j, itself where it meets nobody.

    The edges are distinct and join different nodes; there are at most Delta + 1 matchings, Delta being the largest
    degree.
    """
    degree = np.bincount(np.concatenate([u, v]), minlength=m)
    colouring = _Colouring(m, int(degree.max(initial=0)) + 1)
    for i, j in zip(u.tolist(), v.tolist()):
        colouring.add(i, j)
    used = sorted({colour for own in colouring.at for colour in own})
    return np.array([[own.get(colour, i) for colour in used] for i, own in enumerate(colouring.at)], np.int32)
