"""Nodes on devices: the nodes' axis, blocks of rows, where arrays lie, several processes, and room in memory.

The same seed gives the same random streams, choices, counts and ledgers on any number of devices. Sums of floats are
made in another order, so that floats agree to about 1e-6 of their size; where they decide something, as the s largest
entries or a stop rule do, what is tied within rounding may be decided differently. On one number of devices all bits
are the same in every run.
"""

from jdfl.devices import nodes

__all__ = ["nodes"]
