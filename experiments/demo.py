"""An overview in half a minute: CEPS, all four variants, on its paper's Example 1 and on real data.

Run `python -m experiments.demo [--quick] [--seeds N] [--out DIR]`. Prints what was found and a table with the paper's
numbers and ours, and writes DIR/demo.json, DIR/demo.png and the page DIR/demo.html, which has all numbers. The real
data is breast_cancer, which is part of scikit-learn. `--quick` leaves out the variants with whole vectors.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from jdfl.base.terminal import Heartbeat

if TYPE_CHECKING:
    from experiments.common import Row

NAME = "demo"


def main(arguments: Sequence[str] | None = None, *, sooner: bool = False) -> "list[Row]":
    """Load, run, print and write everything, with a sign of life all the time.

    Args:
        arguments: The command line; None: nothing.
        sooner: Compile for this process as `experiments.common.compile_sooner` does.
    """
    with Heartbeat(sys.stdout) as beat:
        beat.say("loading")
        return import_module("experiments.demo_parts").demo(NAME, beat, arguments or (), sooner)


if __name__ == "__main__":
    main(sys.argv[1:], sooner=True)
