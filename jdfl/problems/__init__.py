"""Learning problems: objectives over stacked data, data partitions, datasets and centralised optima.

The public names are listed in __init__.pyi; a module is imported when one of its names is first used.
"""

import lazy_loader

from jdfl.base import suggest

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = suggest.attributes(__name__, _public, __all__)
