"""The tables and figures of the papers, one script each."""

import atexit
import sys

from jdfl.base.terminal import Heartbeat

if sys.argv[0] == "-m":  # while Python looks for the script of `python -m experiments.NAME`, which then imports JAX
    beat = Heartbeat()
    beat.__enter__()
    beat.say("loading")
    atexit.register(beat.__exit__)
