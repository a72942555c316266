"""Neural networks as pure pairs (init, apply) on flat parameter vectors; flax is imported when the first one is made.

A new architecture is a class and a function in networks.py, a line in __init__.pyi and a name in opening.py.
"""

import lazy_loader

from jdfl.base import suggest

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = suggest.attributes(__name__, _public, __all__)
