"""Runs on the disk: folders of runs, checkpoints, and results as files and in words.

Public names are listed in __init__.pyi; each module is imported on first use.
"""

import lazy_loader

from jdfl.base import suggest

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = suggest.attributes(__name__, _public, __all__)
