"""Nodes on devices: the nodes' axis, blocks of rows, placement of arrays, several processes, and available memory.

The same seed gives the same random streams, choices, counts and ledgers on any number of devices. Sums of floats are
computed in another order, so floats agree to a relative error of about 1e-6. Where they decide something, such as the s
largest entries or a stop rule, ties within rounding may be resolved differently. On a fixed number of devices all bits
are the same in every run.
"""

from jdfl.devices import nodes

__all__ = ["nodes"]
