"""What is computed from the data without noise before or beside a run, by name.

No noise covers these, so that a run for which one of them was computed has no epsilon, unless its user declares that it
is public: known to everybody, or computed from other data.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

from jdfl import checks

Name = Literal["statistics", "partition", "hold-out", "curvature", "stop rule"]

REASONS: dict[str, str] = {
    "statistics": "columns are standardised by means and deviations of all records",
    "partition": "which node has a record depends on the labels of all records",
    "hold-out": "which records are held out for testing depends on the labels of all records",
    "curvature": "sigma_i is computed from the node's own data",
    "stop rule": "the stop rule looks at the data themselves, and all see when it fires",
}


def check_public(public: Any) -> tuple[str, ...]:
    """The names that are declared public, sorted and once each; ValueError for what is none of `Name`."""
    if isinstance(public, str) or not checks.is_a(public, Iterable):
        raise ValueError(f"Expected a tuple of names, got public = {public!r}. For example public=('hold-out',).")
    names = sorted(set(public), key=str)
    for name in names:
        checks.one_of(get_args(Name), "It is computed from the data without noise.", public=name)
    return tuple(names)
