"""Communication networks: topologies, mixing matrices, random and faulty links, and weighted sums over neighbours.

Public names are listed in __init__.pyi; each module is imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
